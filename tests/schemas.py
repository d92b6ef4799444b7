"""The JSON schemas of docs/schema/, and whether data follows them."""

import functools
import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

FOLDER = Path(__file__).parents[1] / "docs" / "schema"


@functools.cache
def schema(command: str) -> dict[str, Any]:
    """The schema of what ``numadoctor COMMAND -o json`` writes."""
    found = json.loads((FOLDER / f"{command}.schema.json").read_text())
    Draft202012Validator.check_schema(found)
    assert isinstance(found, dict)
    return found


@functools.cache
def _validator(command: str) -> Draft202012Validator:
    # A schema may refer to another by its file name.
    others = [(p.name, Resource.from_contents(json.loads(p.read_text()))) for p in FOLDER.iterdir()]
    registry: Registry[Any] = Registry().with_resources(others)
    return Draft202012Validator(schema(command), registry=registry)


def validate(command: str, data: object) -> None:
    """Fail with all that is wrong, each with its place."""
    errors = [f"{e.json_path}: {e.message[:300]}" for e in _validator(command).iter_errors(data)]
    assert not errors, "\n".join(errors)
