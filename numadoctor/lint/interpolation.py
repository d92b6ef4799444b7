"""Variables of Compose files, as far as the .env beside them tells (Compose Specification).

A variable of the environment in which somebody calls Compose outranks .env; what .env
does not say is therefore left as it stands, defaults included.
"""

import os
import re

from numadoctor.lint.nodes import Mapping, Node, Sequence, Word
from numadoctor.lint.reading import read_file
from numadoctor.lint.yamlfile import DEEPEST

_LINE = re.compile(r"(?m)^[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.]*)[ \t]*=([^\r\n]*)")
_QUOTED = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)\"""")
_REFERENCE = re.compile(
    r"\$\$|\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-?+])([^{}]*))?\}|([A-Za-z_][A-Za-z0-9_]*))"
)


def variables_beside(folder: str) -> dict[str, str]:
    """The variables of the .env in a folder; those that refer to others are left out."""
    path = os.path.join(folder, ".env")
    if not os.path.isfile(path):
        return {}
    text = read_file(path).data.decode("utf-8", "replace")
    found = {}
    for name, rest in _LINE.findall(text):
        quoted = _QUOTED.match(rest.strip())
        value = quoted[0][1:-1] if quoted else rest.partition(" #")[0].strip()
        if "$" not in value or rest.strip().startswith("'"):
            found[name] = value
    return found


def filled_text(text: str, variables: dict[str, str]) -> str:
    """A text with the values of variables that are known."""

    def value(match: "re.Match[str]") -> str:
        known = variables.get(match[1] or match[4] or "")
        sign = match[2] or ""
        # With a colon, an empty value is as none.
        if known is None or (not known and sign.startswith(":")):
            return match[0]
        return match[3] if sign.endswith("+") else known

    return _REFERENCE.sub(value, text)


def filled(root: Mapping, variables: dict[str, str]) -> Mapping:
    """A file with the values that are known in the place of variables."""
    made: dict[int, Node] = {}

    def fill(node: Node, depth: int) -> Node:
        if isinstance(node, Word):
            if "$" not in node.text:
                return node
            text = filled_text(node.text, variables)
            return Word(node.file, node.line, node.column, text, node.style or "'")
        if depth > DEEPEST:
            return node
        if id(node) not in made and isinstance(node, Mapping):
            entries = {
                n: (word, fill(value, depth + 1)) for n, (word, value) in node.entries.items()
            }
            place = node.file, node.line, node.column
            made[id(node)] = Mapping(*place, entries, node.repeated, node.tags)
        elif id(node) not in made and isinstance(node, Sequence):
            items = [fill(item, depth + 1) for item in node.items]
            made[id(node)] = Sequence(node.file, node.line, node.column, items)
        return made[id(node)]

    found = fill(root, 0)
    assert isinstance(found, Mapping)
    return found
