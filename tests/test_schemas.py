"""What the commands write as JSON follows docs/schema/, on every sample host and here."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from numadoctor.host import sample_names
from numadoctor.model import Status
from tests.schemas import FOLDER, schema, validate

WHERE = [*(f"sample:{name}" for name in sample_names()), None]


def numadoctor(*arguments: str, **environment: str) -> tuple[int, str]:
    """Exit code and standard output of the command, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "numadoctor", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def written(*arguments: str) -> Any:
    code, text = numadoctor(*arguments, "-o", "json")
    assert code in (0, 1)
    return json.loads(text)


def sysroot(where: str | None) -> list[str]:
    return [] if where is None else ["--sysroot", where]


@pytest.mark.parametrize("where", WHERE)
def test_check(where: str | None) -> None:
    data = written("check", *sysroot(where))
    validate("check", data)
    assert {finding["status"] for finding in data["findings"]} <= {s.value for s in Status}
    assert sum(data["summary"].values()) == len(data["findings"])
    assert data["summary"]["error"] == 0
    assert data["exit_code"] == (1 if data["summary"]["fail"] else 0)


@pytest.mark.parametrize("where", WHERE)
def test_topology(where: str | None) -> None:
    data = written("topology", *sysroot(where))
    validate("topology", data)
    assert bool(data["nodes"]) is data["numa"]
    ids = [node["id"] for node in data["nodes"]]
    assert ids == sorted(set(ids))


def test_list_and_explain() -> None:
    listed = written("list")
    validate("list", listed)
    assert listed["samples"] == list(sample_names())
    assert listed["problems"] == []
    explained = written("explain", *(check["id"] for check in listed["checks"]))
    validate("explain", explained)
    assert explained["checks"] == listed["checks"]


def test_every_schema_is_one() -> None:
    names = {path.name.removesuffix(".schema.json") for path in FOLDER.glob("*.schema.json")}
    assert names >= {"check", "topology", "list", "explain", "syscalls"}
    for name in names:
        assert schema(name)["$id"] == f"{name}.schema.json"


def test_every_property_of_ours_is_described_or_speaks_for_itself() -> None:
    plain = {"kind", "severity", "path", "text", "schema_version"}

    def undescribed(part: Any, name: str = "") -> list[str]:
        if not isinstance(part, dict):
            return []
        found = []
        for key, value in part.get("properties", {}).items():
            known = "description" in value or "$ref" in value or key in plain
            # Counters of one object are described with it; so are the two directions of a figure.
            if not known and "description" not in part and not key.startswith(("read", "write")):
                found.append(f"{name}.{key}")
            found += undescribed(value, f"{name}.{key}")
        found += undescribed(part.get("items"), name)
        for key, value in part.get("$defs", {}).items():
            found += undescribed(value, key)
        return found

    for command in ("check", "topology", "list", "explain"):
        assert undescribed(schema(command)) == [], command


# The keys that were promised to other programs, written down apart from the code.
PROMISED = {
    "topology": {
        "numa": bool,
        "nodes[]": {"id": int, "kind": str, "cpus": list, "memory_bytes": int, "distances": dict},
        "allowed": {"cpus": list, "nodes": list},
        "devices[]": {
            "address": str, "class": str, "vendor": str, "kind": str, "node": int,
            "node_source": str,
        },
    },
    "syscalls": {
        "calls[]": {
            "name": str, "verdict": str, "errno": (str, type(None)),
            "blocked_by": (str, type(None)), "fixes": list,
        },
    },
    "check": {
        "schema_version": int,
        "findings[]": {
            "id": str, "name": str, "status": str, "subject": str, "message": str, "cause": str,
            "evidence": list, "fixes": list,
        },
        "summary": {status.value: int for status in Status},
        "exit_code": int,
    },
}  # fmt: skip


@pytest.mark.parametrize("command", sorted(PROMISED))
def test_promised_keys_are_there(command: str) -> None:
    data = written(command, "--sysroot", "sample:two-socket")

    def holds(part: Any, promise: Any, place: str) -> None:
        if not isinstance(promise, dict):
            assert isinstance(part, promise), place
            return
        for key, inner in promise.items():
            name = key.removesuffix("[]")
            assert name in part, f"{place}.{name}"
            several = part[name] if key.endswith("[]") else [part[name]]
            assert several, f"{place}.{name} is empty"
            for one in several:
                holds(one, inner, f"{place}.{key}")

    holds(data, PROMISED[command], command)


def test_distances_are_keyed_by_node() -> None:
    nodes = written("topology", "--sysroot", "sample:gpu-memory-nodes")["nodes"]
    ids = {str(node["id"]) for node in nodes}
    assert ids == {"0", "8", "250", "251", "252", "253", "254", "255"}
    assert all(set(node["distances"]) == ids for node in nodes)
    assert all(node["distances"][str(node["id"])] == 10 for node in nodes)


@pytest.mark.parametrize(
    ("command", "sample"),
    [
        ("check", "two-socket"),
        ("check", "container-docker"),
        ("topology", "gpu-memory-nodes"),
        ("syscalls", "container-docker"),
    ],
)
def test_the_same_host_gives_the_same_bytes(command: str, sample: str, tmp_path: Path) -> None:
    arguments = (command, "--sysroot", f"sample:{sample}", "-o", "json")
    first = numadoctor(*arguments, PYTHONHASHSEED="1")
    second = numadoctor(*arguments, PYTHONHASHSEED="2", HOME=str(tmp_path), TZ="Asia/Tokyo")
    assert first == second
