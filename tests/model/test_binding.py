"""The words of launchers for CPUs and nodes, read by who reads such words elsewhere."""

import shlex

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host.binders import from_argv
from numadoctor.lint.bindings import of_unit
from numadoctor.lint.docker import container_of
from numadoctor.lint.lines import parse_unit
from numadoctor.lint.shell import parse_shell
from numadoctor.lint.units import Unit
from numadoctor.model import Fix
from numadoctor.model.binding import bind, cpuset, numactl_options
from numadoctor.model.units import id_list

ids = st.sets(st.integers(0, 300), max_size=20).map(lambda s: tuple(sorted(s)))
some_ids = ids.filter(bool)
either = st.tuples(ids, ids).filter(any)


def texts(fixes: tuple[Fix, ...], launcher: str) -> list[str]:
    return [fix.text for fix in fixes if fix.launcher == launcher]


@given(either)
def test_numactl(both: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    cpus, nodes = both
    (text,) = texts(bind(cpus, nodes), "numactl")
    found = list(from_argv(shlex.split(text), "here"))
    assert [b.cpus for b in found if b.cpus] == ([cpus] if cpus else [])
    assert [b.nodes for b in found if b.memory] == ([nodes] if nodes else [])
    assert text.endswith(" COMMAND")


@given(some_ids, some_ids)
def test_numactl_names_whole_nodes_by_their_numbers(
    cpus: tuple[int, ...], on: tuple[int, ...]
) -> None:
    (text,) = texts(bind(cpus, cpu_nodes=on), "numactl")
    assert [b.cpu_nodes for b in from_argv(shlex.split(text), "here")] == [on]
    assert "physcpubind" not in text


@given(either)
def test_containers(both: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    cpus, nodes = both
    for fixes in (bind(cpus, nodes), cpuset(cpus, nodes)):
        (text,) = texts(fixes, "docker")
        assert texts(fixes, "podman") == [text]
        (command,) = parse_shell(f"docker run {text} image", "f")
        workload = container_of(command)
        assert workload is not None
        for word, wanted in ((workload.cpus, cpus), (workload.mems, nodes)):
            assert (word.text if word else "") == id_list(wanted)
        compose = [yaml.safe_load(text) for text in texts(fixes, "compose") if "cpuset:" in text]
        assert compose == ([{"cpuset": id_list(cpus)}] if cpus else [])
        update = f"--cpuset-mems {id_list(nodes)} CONTAINER"
        assert any(update in text for text in texts(fixes, "compose")) == bool(nodes)


@given(either, st.sampled_from(("bind", "interleave")))
def test_units(both: tuple[tuple[int, ...], tuple[int, ...]], policy: str) -> None:
    cpus, nodes = both
    (text,) = texts(bind(cpus, nodes, policy), "systemd")
    settings = parse_unit(text, "a.service")
    assert {setting.section for setting in settings} == {"Service"}
    assert {b.by: b.word.text for b in of_unit(Unit("a.service", tuple(settings)))} == {
        **({"CPUAffinity": id_list(cpus)} if cpus else {}),
        **({"NUMAMask": id_list(nodes)} if nodes else {}),
    }
    assert (f"NUMAPolicy={policy}" in text) == bool(nodes)
    (text,) = texts(cpuset(cpus, nodes), "systemd")
    *command, unit = shlex.split(text)[:3]
    assert (command, unit) == (["systemctl", "set-property"], "UNIT")
    assert dict(word.split("=") for word in shlex.split(text)[3:]) == {
        **({"AllowedCPUs": id_list(cpus)} if cpus else {}),
        **({"AllowedMemoryNodes": id_list(nodes)} if nodes else {}),
    }


@given(either)
def test_srun_has_masks_of_the_whole_machine(
    both: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    cpus, nodes = both
    (text,) = texts(bind(cpus, nodes), "slurm")
    masks = dict(word.split(":") for word in shlex.split(text) if "mask" in word)
    assert {name: _members(mask) for name, mask in masks.items()} == {
        **({"--cpu-bind=mask_cpu": cpus} if cpus else {}),
        **({"--mem-bind=mask_mem": nodes} if nodes else {}),
    }
    assert ("--exclusive" in text) == bool(cpus)


def _members(mask: str) -> tuple[int, ...]:
    number = int(mask, 16)
    return tuple(at for at in range(number.bit_length()) if number >> at & 1)


@given(either)
def test_the_kubelet_gives_one_node_or_as_few_as_can_be(
    both: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    cpus, nodes = both
    (text,) = texts(bind(cpus, nodes), "kubernetes")
    assert yaml.safe_load(text) == {
        "cpuManagerPolicy": "static",
        "topologyManagerPolicy": "single-numa-node" if len(nodes) < 2 else "restricted",
        "memoryManagerPolicy": "Static",
    }


@given(either, st.sets(st.sampled_from(("numactl", "docker", "slurm", "systemd")), min_size=1))
def test_launchers_can_be_chosen(
    both: tuple[tuple[int, ...], tuple[int, ...]], by: set[str]
) -> None:
    assert {fix.launcher for fix in bind(*both, by=by)} == by


@pytest.mark.parametrize(
    ("policy", "option"),
    [
        ("bind", "--membind=NODES"),
        ("interleave", "--interleave=NODES"),
        ("weighted-interleave", "--weighted-interleave=NODES"),
        ("preferred", "--preferred=NODES"),
        ("preferred-many", "--preferred-many=NODES"),
        ("local", "--localalloc"),
    ],
)
def test_policies_of_numactl(policy: str, option: str) -> None:
    assert numactl_options(nodes="NODES", policy=policy) == option


def test_a_name_in_place_of_ids_stands_as_it_is() -> None:
    assert [fix.text.splitlines()[0] for fix in cpuset(nodes="NODES")] == [
        "--cpuset-mems NODES",
        "--cpuset-mems NODES",
        "docker update --cpuset-mems NODES CONTAINER",
        "systemctl set-property UNIT AllowedMemoryNodes=NODES",
    ]
