"""Plans that people write, as nodes with places: YAML, TOML or JSON, within bounds.

Nothing in them is carried out or built by tag, and what aliases multiply is never
laid out (``numadoctor.lint.yamlfile``).
"""

import json
import re
import sys
from collections.abc import Iterable
from typing import Any

from numadoctor.host.given import read_given
from numadoctor.lint.nodes import Mapping, Node, Refused, Sequence, Word
from numadoctor.lint.yamlfile import MissingReader, parse_yaml
from numadoctor.planning.badplan import BadPlan

# A plan for a hundred instances has some 10,000 words.
LIMIT = 1 << 20

_TOML = re.compile(r"(?m)^\s*(\[\[?\s*[A-Za-z_\"']|[A-Za-z_-]+\s*=)")


def read_document(file: str) -> Node:
    """The root of the plan in ``file``; ``-`` is standard input.

    :raises BadPlan: it cannot be read or is of no form that is known
    """
    return parse_document(_read(file), file)


def _read(file: str) -> bytes:
    try:
        return read_given(file, LIMIT, dash=True)
    except OSError as error:
        raise BadPlan(file, "", f"cannot be read: {error.strerror}") from None


def parse_document(data: bytes, file: str) -> Node:
    """The root of the plan that ``data`` holds.

    :param file: tells the form by its ending; without a known one the text tells
    :raises BadPlan: it is of no form that is known
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadPlan(file, f"line {line}", "not UTF-8") from None
    if not text.strip():
        raise BadPlan(file, "", "is empty")
    ending = file.rpartition(".")[2].lower()
    if ending == "toml":
        return _toml(text, file)
    if ending == "json":
        return _json(text, file)
    if ending not in ("yaml", "yml"):
        if text.lstrip().startswith("{"):
            return _json(text, file)
        if _TOML.search(text):
            return _toml(text, file)
    return _yaml(text, file)


def _yaml(text: str, file: str) -> Node:
    try:
        documents = list(parse_yaml(text, file))
    except MissingReader:
        raise BadPlan(
            file, "", "YAML needs PyYAML: pip install 'numadoctor[lint]', or write TOML or JSON"
        ) from None
    except Refused as error:
        raise BadPlan(file, place_of(error.line, error.column), error.reason) from None
    if len(documents) != 1:
        raise BadPlan(file, "", f"holds {len(documents)} documents, and a plan is one")
    return documents[0]


def _toml(text: str, file: str) -> Node:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason, place = str(error), ""
        if match := re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", reason, re.DOTALL):
            reason, place = match[1], place_of(int(match[2]), int(match[3]))
        raise BadPlan(file, place, f"no TOML: {reason or 'nested too deep'}") from None
    return _nodes(data, file)


def _json(text: str, file: str) -> Node:
    def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise BadPlan(file, "", f'the name "{key[:60]}" stands twice in one object')
            found[key] = value
        return found

    try:
        data = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise BadPlan(file, place_of(error.lineno, error.colno), f"no JSON: {error.msg}") from None
    except RecursionError:
        raise BadPlan(file, "", "no JSON: nested too deep") from None
    except BadPlan:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise BadPlan(file, "", f"no JSON: {error}") from None
    return _nodes(data, file)


def nodes_of(data: Any, file: str) -> Node:
    """JSON data as nodes.

    :raises BadPlan: it is nested too deep
    """
    return _nodes(data, file)


def _nodes(data: Any, file: str, depth: int = 0) -> Node:
    """Data without places: line 0 stands for none."""
    if depth > 20:
        raise BadPlan(file, "", "nested too deep")
    if isinstance(data, dict):
        mapping = Mapping(file, 0, 0)
        for key, value in data.items():
            name = Word(file, 0, 0, str(key))
            mapping.entries[name.text] = (name, _nodes(value, file, depth + 1))
        return mapping
    if isinstance(data, list):
        return Sequence(file, 0, 0, [_nodes(item, file, depth + 1) for item in data])
    if data is None:
        return Word(file, 0, 0, "")
    style = '"' if isinstance(data, str) else ""
    try:
        return Word(file, 0, 0, str(data), style)
    except ValueError:  # an integer of more digits than Python writes
        raise BadPlan(file, "", "a number with too many digits") from None


def place_of(line: int | None, column: int | None = None) -> str:
    """``line 3, column 5``; empty where it is not known."""
    if not line:
        return ""
    return f"line {line}, column {column}" if column else f"line {line}"
