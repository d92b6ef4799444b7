"""What Compose puts together: override files, extends, include, and how they are merged."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.lint.documents import Files
from numadoctor.lint.gathering import gather
from numadoctor.lint.interpolation import filled_text
from numadoctor.lint.layers import lay_file, lay_service
from numadoctor.lint.nodes import Mapping, Node, Sequence, Word
from numadoctor.lint.reading import read_files
from numadoctor.lint.workloads import Workload
from numadoctor.lint.yamlfile import parse_yaml


def lay_out(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def linted(folder: Path, *names: str) -> Files:
    return gather(read_files([str(folder / name) for name in names] or [str(folder)]), Files())


def workloads(files: Files) -> dict[str, Workload]:
    found = [w for document in files.documents for w in document.workloads]
    assert len({w.name for w in found}) == len(found), [w.name for w in found]
    return {w.name.removeprefix("service "): w for w in found}


def text(word: Word | None) -> str | None:
    return word.text if word else None


BASE = """\
services:
  engine:
    image: vllm/vllm-openai
    cpuset: 0-7
    shm_size: 16g
    cap_add: [SYS_NICE]
    security_opt: ["seccomp=./numa.json"]
    environment: {A: "1", B: "2"}
    ulimits: {memlock: -1}
    command: [--model, m]
"""


def test_extends_another_file(tmp_path: Path) -> None:
    lay_out(tmp_path, {
        "common/base.yml": BASE,
        "numa.json": '{"defaultAction": "SCMP_ACT_ALLOW"}',
        "compose.yaml": "services:\n  a:\n    extends: {file: common/base.yml, service: engine}\n"
        "    cap_add: [IPC_LOCK]\n    environment: [B=3]\n    command: --numa-bind\n",
    })  # fmt: skip
    files = linted(tmp_path)
    assert files.unread == []
    found = workloads(files)
    # The one that is extended is there for others: it is judged as what it becomes.
    assert list(found) == ["a"]
    engine = found["a"]
    assert (text(engine.image), text(engine.cpus), text(engine.shm), text(engine.memlock)) == (
        "vllm/vllm-openai", "0-7", "16g", "-1",
    )  # fmt: skip
    assert [w.text for w in engine.added] == ["SYS_NICE", "IPC_LOCK"]
    assert {n: w.text for n, w in engine.environment.items()} == {"A": "1", "B": "3"}
    assert [w.text for c in engine.commands for w in c.words] == ["--numa-bind"]
    assert engine.cpus is not None
    assert engine.cpus.file.endswith("common/base.yml")
    assert engine.cpus.line == 4
    # Paths begin in the project's folder, wherever the word stands.
    assert engine.seccomp is not None
    assert files.profile(engine.seccomp, file=engine.near)


def test_extends_a_service_that_extends(tmp_path: Path) -> None:
    lay_out(tmp_path, {"compose.yaml": BASE + "  b: {extends: engine, cpuset: 8-15}\n"
                       "  c: {extends: {service: b}, cap_add: !reset []}\n"
                       "  d: {extends: b, cap_add: !override [IPC_LOCK]}\n"})  # fmt: skip
    found = workloads(linted(tmp_path))
    assert {name: text(w.cpus) for name, w in found.items()} == {
        "engine": "0-7", "b": "8-15", "c": "8-15", "d": "8-15",
    }  # fmt: skip
    assert [[w.text for w in found[n].added] for n in "bcd"] == [["SYS_NICE"], [], ["IPC_LOCK"]]


def test_anchors_and_merge_keys_of_a_base(tmp_path: Path) -> None:
    lay_out(tmp_path, {
        "base.yml": "x-a: &a {shm_size: 8g, cpuset: 0-3}\nx-b: &b {cpuset: 4-7, ipc: host}\n"
        "services: {e: {<<: [*a, *b], image: vllm}}\n",
        "compose.yml": "services: {a: {extends: {file: base.yml, service: e}}}\n",
    })  # fmt: skip
    engine = workloads(linted(tmp_path))["a"]
    assert (text(engine.cpus), text(engine.shm), text(engine.ipc)) == ("0-3", "8g", "host")


@pytest.mark.parametrize("names", [(), ("compose.yaml",), ("compose.override.yaml",)])
def test_override_files_lie_beside(tmp_path: Path, names: tuple[str, ...]) -> None:
    lay_out(tmp_path, {
        "compose.yaml": BASE,
        "compose.override.yaml": "services: {engine: {cpuset: 8-15, cap_add: [IPC_LOCK]}}\n",
    })  # fmt: skip
    (engine,) = workloads(linted(tmp_path, *names)).values()
    assert text(engine.cpus) == "8-15"
    assert [w.text for w in engine.added] == ["SYS_NICE", "IPC_LOCK"]


def test_a_part_is_laid_over_the_file_that_has_its_services(tmp_path: Path) -> None:
    lay_out(tmp_path, {
        "compose.yaml": BASE + "  db: {image: postgres, cpuset: 0-1}\n",
        "compose.gpu.yaml": "services: {engine: {gpus: all, cpuset: 0-15}}\n",
        "compose.other.yaml": "services: {x: {image: y}}\n",
    })  # fmt: skip
    files = linted(tmp_path)
    found = [
        (Path(d.file).name, w.name, text(w.cpus)) for d in files.documents for w in d.workloads
    ]
    assert sorted(found, key=str) == [
        ("compose.gpu.yaml", "service engine", "0-15"),
        ("compose.other.yaml", "service x", None),
        ("compose.yaml", "service db", "0-1"),
        ("compose.yaml", "service engine", "0-7"),
    ]


def test_the_files_that_compose_file_names(tmp_path: Path) -> None:
    lay_out(tmp_path, {
        ".env": "A=1\nCOMPOSE_FILE=base.yml:prod/gpu.yml\n",
        "base.yml": BASE,
        "prod/gpu.yml": "services: {engine: {cpuset: 16-31}}\n",
    })  # fmt: skip
    (engine,) = workloads(linted(tmp_path)).values()
    assert text(engine.cpus) == "16-31"


def test_the_variables_of_an_env_file(tmp_path: Path) -> None:
    lay_out(tmp_path, {
        ".env": "# x\nCPUS=0-31 # near\nexport SHM='16gb'\nEMPTY=\nTAG=\"v1\"\nB=$CPUS\n",
        "compose.yaml": "services:\n  e:\n    image: vllm:${TAG:-latest}\n    cpuset: $CPUS\n"
        "    shm_size: ${SHM:?set it}\n    ipc: ${EMPTY:-host}\n    runtime: ${B}\n"
        "    command: [sh, -c, 'exec vllm $$X ${TP:-4}']\n    privileged: ${TAG:+false}\n",
    })  # fmt: skip
    engine = workloads(linted(tmp_path))["e"]
    assert {n: text(getattr(engine, n)) for n in ("image", "cpus", "shm", "ipc", "runtime")} == {
        "image": "vllm:v1", "cpus": "0-31", "shm": "16gb", "ipc": "${EMPTY:-host}",
        "runtime": "${B}",
    }  # fmt: skip
    assert text(engine.privileged) == "false"
    assert [w.text for w in engine.commands[0].words] == ["vllm", "$$X", "${TP:-4}"]


def test_aliases_of_any_depth(tmp_path: Path) -> None:
    deep = "".join(f"x-{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 3000))
    lay_out(tmp_path, {
        ".env": "A=1\n",
        "compose.yaml": f"x-0: &a0 [$A]\n{deep}services: {{e: {{image: x, command: *a2999}}}}\n",
        "compose.override.yaml": f"x-0: &a0 [$A]\n{deep}services: {{e: {{labels: *a2999}}}}\n",
    })  # fmt: skip
    assert list(workloads(linted(tmp_path))) == ["e"]


@given(st.text(max_size=60), st.dictionaries(st.sampled_from(["A", "B"]), st.text(max_size=5)))
def test_any_text_with_variables(value: str, variables: dict[str, str]) -> None:
    assert filled_text(value, {}) == value
    filled_text(value, variables)


def test_include(tmp_path: Path) -> None:
    lay_out(tmp_path, {
        "compose.yaml": "include:\n- in/a.yaml\n- path: [in/b.yaml, in/over.yaml]\n"
        "services: {engine: {image: vllm}, own: {cpuset: 4-5}}\n",
        "in/a.yaml": "include: [c.yaml]\nservices: {a: {image: x, cpuset: 0-1}}\n",
        "in/b.yaml": "services: {b: {image: x}, own: {image: y}}\n",
        "in/c.yaml": "services: {c: {image: x}}\n",
        "in/over.yaml": "services: {b: {cpuset: 2-3}}\n",
    })  # fmt: skip
    files = linted(tmp_path)
    assert files.unread == []
    found = workloads(files)
    assert {name: text(w.cpus) for name, w in found.items()} == {
        "engine": None, "own": "4-5", "a": "0-1", "b": "2-3", "c": None,
    }  # fmt: skip
    assert text(found["own"].image) == "y"
    assert [Path(d.file).name for d in files.documents] == ["compose.yaml"]
    assert workloads(linted(tmp_path, "compose.yaml")).keys() == found.keys()


BROKEN = {
    "gone": ("extends: {file: gone.yml, service: e}", "no such file"),
    "lacks": ("extends: {file: base.yml, service: e}", "extends e, which base.yml lacks"),
    "same": ("extends: nobody", "extends nobody, which compose.yaml lacks"),
    "itself": ("extends: a", "extends itself: a → a"),
    "nothing": ("extends: {file: base.yml}", "extends names no service"),
    "bad": ("extends: {file: bad.yml, service: e}", "bad.yml:2:1: no YAML"),
    "cycle": ("extends: {file: round.yml, service: r}", "extends itself: a → r → a"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_followed_is_told_in_a_line(tmp_path: Path, case: str) -> None:
    entry, told = BROKEN[case]
    lay_out(tmp_path, {
        "base.yml": BASE, "bad.yml": "services: [\n",
        "round.yml": "services: {r: {extends: {file: compose.yaml, service: a}}}\n",
        "compose.yaml": f"services:\n  a: {{{entry}}}\n  b: {{image: x}}\n",
    })  # fmt: skip
    for names in ((), ("compose.yaml",)):
        files = linted(tmp_path, *names)
        found = workloads(files)
        at = "round.yml:1:" if case == "cycle" else "compose.yaml:2:"
        assert any(told in line and at in line for line in files.unread), files.unread
        refused = found["a"].refused
        assert refused is not None
        assert told in refused.reason
        assert found["b"].refused is None


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("extends: {file: ../x.yml, service: e}", "outside of the folders"),
        ("extends: {file: /etc/hostname, service: e}", "outside of the folders"),
        ("extends: {file: link.yml, service: e}", "outside of the folders"),
        ("extends: {file: 'https://x.org/y.git', service: e}", "not on this machine"),
        ("extends: {file: '${X}.yml', service: e}", "filled in later"),
    ],
)
def test_what_is_out_of_reach_is_unknown_and_no_fault(
    tmp_path: Path, entry: str, told: str
) -> None:
    inner = lay_out(tmp_path, {
        "x.yml": BASE, "in/compose.yaml": f"services: {{a: {{{entry}}}}}\n"
    }) / "in"  # fmt: skip
    (inner / "link.yml").symlink_to(tmp_path / "x.yml")
    files = linted(inner)
    refused = workloads(files)["a"].refused
    assert refused is not None
    assert told in refused.reason
    assert files.unread == []


def test_includes_that_cannot_be_followed(tmp_path: Path) -> None:
    lay_out(tmp_path, {
        "compose.yaml": "include: [gone.yaml, b.yaml, 'oci://x/y']\nservices: {a: {image: x}}\n",
        "b.yaml": "include: [compose.yaml]\nservices: {b: {image: x}}\n",
    })  # fmt: skip
    files = linted(tmp_path)
    assert sorted(line.rpartition(": ")[2] for line in files.unread) == [
        "compose.yaml → b.yaml → compose.yaml", "no such file",
    ]  # fmt: skip
    found = workloads(files)
    assert [n for n, w in found.items() if w.refused is None] == ["a", "b"]
    assert sum(w.refused is not None for w in found.values()) == 3


def test_many_services_that_extend_in_a_row(tmp_path: Path) -> None:
    rows = "".join(f"  s{n}: {{extends: s{n + 1}}}\n" for n in range(3000))
    lay_out(tmp_path, {"compose.yaml": f"services:\n{rows}  s3000: {{image: x}}\n"})
    files = linted(tmp_path)
    assert len(files.unread) == 2950
    assert all("more than 50 steps" in line for line in files.unread)
    found = workloads(files)
    assert [found[f"s{n}"].refused is None for n in (2949, 2950, 2999)] == [False, True, True]


def test_services_that_multiply_what_they_extend(tmp_path: Path) -> None:
    keys = "".join(f"    k{n}: 1\n" for n in range(2000))
    rows = "".join(f"  s{n}: {{extends: base}}\n" for n in range(2000))
    lay_out(tmp_path, {"compose.yaml": f"services:\n  base:\n    image: x\n{keys}{rows}"})
    assert any("multiply" in line for line in linted(tmp_path).unread)


def test_files_that_include_each_other_many_times(tmp_path: Path) -> None:
    files = {}
    for n in range(40):
        names = f"[c{n + 1}.yaml, ./c{n + 1}.yaml]"
        files[f"c{n}.yaml"] = f"include: {names}\nservices: {{s{n}: {{image: x}}}}\n"
    lay_out(tmp_path, {**files, "c40.yaml": "services: {s40: {image: x}}\n"})
    assert any("1,000 files" in line for line in linted(tmp_path, "c0.yaml").unread)


def root(yaml: str) -> Mapping:
    (node,) = parse_yaml(yaml, "f")
    assert isinstance(node, Mapping)
    return node


VALUES = st.recursive(
    st.sampled_from(["a", "0-7", "null", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["a", "b", "services", "cap_add", "environment", "ulimits", "volumes"]),
        inner, max_size=3,
    ),
    max_leaves=12,
)  # fmt: skip


def nodes(value: object) -> Node:
    if isinstance(value, list):
        return Sequence("f", 1, 1, [nodes(item) for item in value])
    if isinstance(value, dict):
        entries = {k: (Word("f", 1, 1, k), nodes(v)) for k, v in value.items()}
        return Mapping("f", 1, 1, entries)
    return Word("f", 1, 1, str(value))


@given(VALUES, VALUES)
def test_any_two_values_are_laid_over_each_other(one: object, other: object) -> None:
    base, over = nodes({"services": {"s": one}}), nodes({"services": {"s": other}})
    assert isinstance(base, Mapping)
    assert isinstance(over, Mapping)
    before = repr((base, over))
    lay_file(base, over)
    lay_service(base, over)
    assert repr((base, over)) == before, "neither is changed"


@given(st.dictionaries(st.sampled_from("abc"), st.sampled_from(["x", "y"])))
def test_nothing_over_a_service_changes_nothing(values: dict[str, str]) -> None:
    service = nodes(values)
    assert isinstance(service, Mapping)
    laid = lay_service(service, nodes({}))
    assert isinstance(laid, Mapping)
    assert laid.entries == service.entries
    over = lay_service(nodes({}), service)
    assert isinstance(over, Mapping)
    assert over.entries == service.entries


def test_volumes_and_tmpfs_are_known_by_their_targets() -> None:
    base = root("volumes: ['a:/x', 'b:/y']\ntmpfs: ['/dev/shm:size=1g']")
    over = root("volumes: [{source: c, target: /x}]\ntmpfs: ['/dev/shm:size=2g', /run]")
    laid = lay_service(base, over)
    assert isinstance(laid, Mapping)
    assert [w.text for w in laid.sequence("tmpfs").words()] == ["/dev/shm:size=2g", "/run"]
    assert [type(item).__name__ for item in laid.sequence("volumes").items] == ["Mapping", "Word"]
