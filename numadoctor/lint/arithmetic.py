"""Arithmetic expansions of a shell, as far as their names hold known numbers."""

import ast
import operator
import re
from collections.abc import Callable

_EXPANSION = re.compile(r"\$\(\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)\)")
_NAME = re.compile(r"\$?\{?([A-Za-z_][A-Za-z0-9_]*)\}?")
_ALLOWED = re.compile(r"[0-9+\-*/%() ]{1,200}")
# A shell reads 010 as octal.
_OCTAL = re.compile(r"(?<![0-9])0[0-9]")

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_MOST = 1 << 31


def expanded(text: str, known: Callable[[str], str | None]) -> str:
    """A text with the values of its ``$((…))``; those that are not known stay.

    :param known: the value of a name, or None
    """

    def value(match: "re.Match[str]") -> str:
        inner = _NAME.sub(lambda name: known(name[1]) or "?", match[1])
        if not _ALLOWED.fullmatch(inner) or _OCTAL.search(inner):
            return match[0]
        try:
            tree = ast.parse(inner.strip().replace("/", "//"), mode="eval")
            return str(_evaluated(tree.body))
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
            return match[0]

    return _EXPANSION.sub(value, text)


def _evaluated(node: ast.expr) -> int:
    """The number of an expression of whole numbers.

    :raises ValueError: it is another one, negative on the way, or too large
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        found = node.value
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        found = _OPERATORS[type(node.op)](_evaluated(node.left), _evaluated(node.right))
    else:
        raise ValueError("no whole numbers")
    # Below 0 a shell's division and remainder are not Python's.
    if not 0 <= found < _MOST:
        raise ValueError("out of range")
    return found
