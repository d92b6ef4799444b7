"""Plans that people write: the same in every form, and one clear line for what is wrong."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.model.plan import Instance, Plan, PoolBacking, PoolPolicy
from numadoctor.planning.badplan import BadPlan
from numadoctor.planning.documents import LIMIT, parse_document
from numadoctor.planning.intent import plan_data, plan_of, read_plan
from tests.schemas import validate

T = TypeVar("T")

YAML = """\
# two engines on one machine
pool_size: 64GiB
policy: bind
instances:
  - name: left
    gpus: [0, 1]
    nodes: 0
    cpus: 1-7,17-23
  - name: right
    gpus: [0000:9a:00.0, GPU-1b2c]
    policy: interleave
    backing: shm
    nodes: [0, 1]
    match: --port 8001
"""

TOML = """\
pool_size = "64GiB"
policy = "bind"

[[instances]]
name = "left"
gpus = [0, 1]
nodes = 0
cpus = "1-7,17-23"

[[instances]]
name = "right"
gpus = ["0000:9a:00.0", "GPU-1b2c"]
policy = "interleave"
backing = "shm"
nodes = [0, 1]
match = "--port 8001"
"""

JSON = json.dumps(
    {
        "pool_size": 64 << 30,
        "policy": "bind",
        "instances": [
            {"name": "left", "gpus": ["0", "1"], "nodes": [0], "cpus": "1-7,17-23"},
            {
                "name": "right",
                "gpus": ["0000:9a:00.0", "GPU-1b2c"],
                "policy": "interleave",
                "backing": "posix",
                "nodes": "0-1",
                "match": "--port 8001",
                "cpus": None,
            },
        ],
    }
)

EXPECTED = (
    Instance(
        "left",
        ("0", "1"),
        64 << 30,
        policy=PoolPolicy.BIND,
        nodes=(0,),
        cpus=(*range(1, 8), *range(17, 24)),
    ),
    Instance(
        "right",
        ("0000:9a:00.0", "GPU-1b2c"),
        64 << 30,
        PoolBacking.POSIX,
        policy=PoolPolicy.INTERLEAVE,
        nodes=(0, 1),
        match="--port 8001",
    ),
)


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plan.yaml", YAML),
        ("plan.toml", TOML),
        ("plan.json", JSON),
        ("plan", YAML),
        ("plan", TOML),
        ("plan", JSON),
    ],
)
def test_the_same_plan_in_every_form(tmp_path: Path, name: str, text: str) -> None:
    assert read_plan(write(tmp_path, name, text)).instances == EXPECTED


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "plan.yaml: is empty"),
        ("instances: 3\n", 'plan.yaml: line 1, column 12, instances: a list is expected, not "3"'),
        ("instances: []\n", "instances: there is none"),
        ("- a\n", "line 1, column 1: names and values are expected, not a list"),
        ("gpus: [0]\n", "it has no instances"),
        (
            "instances:\n- gpuz: [0]\n",
            'line 2, column 3, instances[0]: "gpuz" is no word of a plan; did you mean "gpus"?',
        ),
        ("instances:\n- nodes: 0-x\n", "line 2, column 10, instances[0].nodes: bad list '0-x'"),
        ("instances:\n- policy: near\n", '"near" is not one of local, preferred, bind'),
        ("instances:\n- pool_size: much\n", "instances[0].pool_size: bad size 'much'"),
        ("instances:\n- pool_size: {a: 1}\n", "a word is expected, not names and values"),
        ("instances:\n- page_size: 3MiB\n", "a power of two"),
        ("instances:\n- name: a\n- name: a\n", 'instances[1].name: "a" is the name of another'),
        ("instances:\n- name: a\n  name: b\n", '"name" stands twice'),
        ("instances:\n- gpus: [0, 0]\n", '"0" stands twice'),
        ("instances:\n- shares: {a: 1}\n", '"a" is no node'),
        ("instances:\n- {pool_size: 3, shares: {0: 1}}\n", "they add up to 1, and pool_size is 3"),
        ("instances:\n- {nodes: 1, shares: {0: 1}, policy: bind}\n", "nodes that are not in nodes"),
        ("version: 2\ninstances: [{}]\n", "plans of version 1 are understood"),
        ("fits: false\ninstances: [{}]\n", "it does not fit"),
        ("instances: [\n", "line 2"),
        ("a: &a [*a]\n", "line"),
        ("instances: !!python/object/apply:os.system ['true']\n", "instances: a word|instances"),
        ("a: b\n---\nc: d\n", "holds 2 documents"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadPlan) as error:
        read_plan(write(tmp_path, "plan.yaml", text))
    told = str(error.value)
    assert re.search(says if "|" in says else re.escape(says), told), told
    assert "plan.yaml" in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("plan.toml", "[[instances]]\nname = \n", "line 2"),
        ("plan.toml", "a = " + "[" * 5000, "no TOML"),
        ("plan.json", '{"instances": [}', "line 1, column 16: no JSON"),
        ("plan.json", "[" * 100_000, "no JSON: nested too deep"),
        ("plan.json", '{"instances": [], "instances": []}', "stands twice"),
        ("plan.json", '{"instances": [' + "9" * 5000 + "]}", "digits"),
        ("plan.json", "1" + " " * LIMIT, "larger than 1 MiB"),
        ("plan.json", '{"a": ' * 30 + "1" + "}" * 30, "nested too deep"),
        ("plan.yaml", "[" * 10_000, "line 1"),
    ],
)
def test_other_forms(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(BadPlan) as error:
        read_plan(write(tmp_path, name, text))
    assert says in str(error.value)
    assert len(str(error.value)) < 400


def test_what_aliases_multiply_is_never_laid_out(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    lines.append("instances: *a29")
    with pytest.raises(BadPlan, match="is no word of a plan"):
        read_plan(write(tmp_path, "plan.yaml", "\n".join(lines)))
    with pytest.raises(BadPlan, match="anchor"):
        read_plan(write(tmp_path, "plan.yaml", "instances: *b\n"))


def test_ranges_do_not_fill_the_memory(tmp_path: Path) -> None:
    text = "instances:\n" + "- cpus: 0-65000\n" * 200
    with pytest.raises(BadPlan, match=r"line 3, .*more than 65,536 ids"):
        read_plan(write(tmp_path, "plan.yaml", text))


@pytest.mark.parametrize(
    "data",
    [
        yaml.safe_load(YAML.replace("0000:9a:00.0", "'0000:9a:00.0'")),
        json.loads(JSON),
        {"instances": [{}]},
        {"version": 1, "instances": [{"shares": {"0": "1GiB", "8": 1 << 30}}], "nics": "mlx5_0"},
    ],
)
def test_what_people_write_follows_the_schema(data: object) -> None:
    validate("plan", data)
    assert plan_of(data)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"instances": []},
        {"instances": [{"gpuz": 1}]},
        {"instances": [{"policy": "near"}]},
        {"instances": [{"pool_size": "much"}]},
        {"instances": [{"shares": {"a": 1}}]},
        {"version": 2, "instances": [{}]},
    ],
)
def test_what_the_schema_refuses_is_refused(data: object) -> None:
    with pytest.raises(AssertionError):
        validate("plan", data)
    with pytest.raises(BadPlan):
        plan_of(data)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for file, says in (
        (str(tmp_path / "absent.yaml"), "No such file"),
        (str(tmp_path), "directory"),
        ("a\0b", "no file can have this name"),
        ("/dev/zero", "larger than"),
    ):
        with pytest.raises(BadPlan, match=says):
            read_plan(file)
    binary = tmp_path / "plan.yaml"
    binary.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(BadPlan, match="line 2: not UTF-8"):
        read_plan(str(binary))


def test_without_the_reader_of_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(BadPlan, match=r"pip install 'numadoctor\[lint\]', or write TOML or JSON"):
        read_plan(write(tmp_path, "plan.yaml", YAML))
    assert read_plan(write(tmp_path, "plan.toml", TOML)).instances == EXPECTED
    assert read_plan(write(tmp_path, "plan.json", JSON)).instances == EXPECTED


def assert_one_line(read: Callable[[], T]) -> T | None:
    """What ``read`` gives, or None where it refuses in one line."""
    try:
        return read()
    except BadPlan as error:
        told = str(error)
    assert "\n" not in told
    return None


@given(st.binary(max_size=200), st.sampled_from(("a.yaml", "a.toml", "a.json", "a")))
def test_any_bytes_are_a_plan_or_refused(data: bytes, name: str) -> None:
    assert_one_line(lambda: parse_document(data, name))


words = st.text(max_size=8) | st.sampled_from(("0-3", "64GiB", "bind", "0:1", "posix", "*", ""))
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=8,
)
names = st.sampled_from(
    ("name", "gpus", "pool_size", "backing", "page_size", "policy", "nodes", "cpus", "nics",
     "shares", "match")
)  # fmt: skip


@given(st.lists(st.dictionaries(names, values, max_size=6), max_size=3))
def test_any_values_are_a_plan_or_refused(instances: list[dict[str, Any]]) -> None:
    plan = assert_one_line(lambda: plan_of({"instances": instances}))
    assert plan is None or len(plan.instances) == len(instances)


ids = st.none() | st.sets(st.integers(0, 1000), max_size=5).map(lambda s: tuple(sorted(s)))
tokens = st.from_regex(r"[A-Za-z0-9_:.-]{1,12}", fullmatch=True)
lists = st.none() | st.lists(tokens, unique=True, max_size=4).map(tuple)
plans = st.lists(
    st.builds(
        Instance,
        tokens,
        lists,
        st.none() | st.integers(0, 1 << 50),
        st.none() | st.sampled_from(PoolBacking),
        st.none() | st.sampled_from((4096, 2 << 20, 1 << 30)),
        st.none() | st.sampled_from(PoolPolicy),
        ids,
        ids,
        lists,
        st.just({}),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda one: one.name,
).map(lambda instances: Plan(tuple(instances), "here"))


@given(plans)
def test_what_is_written_is_read_back(plan: Plan) -> None:
    written = json.loads(json.dumps(plan_data(plan)))
    assert plan_of(written) == plan
