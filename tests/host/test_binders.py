"""Settings that bind are found, with what they name, and nothing else is taken for one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import FolderRoot, Host
from numadoctor.host.binders import (
    Binder,
    Role,
    from_argv,
    from_engine,
    from_environment,
    parents,
    parse_places,
    parse_strided,
    read_binders,
)
from numadoctor.host.parsers import format_list
from numadoctor.model import Denied
from tests.trees import Tree


def of(environment: dict[str, str]) -> list[Binder]:
    return list(from_environment(environment, "environ"))


def only(binders: list[Binder]) -> Binder:
    (binder,) = binders
    return binder


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{0:4}:2:8", (0, 1, 2, 3, 8, 9, 10, 11)),
        ("{0:4},{8:2}", (0, 1, 2, 3, 8, 9)),
        ("{0,2,4}", (0, 2, 4)),
        ("{0:3:2}", (0, 2, 4)),
        ("{0:2}:3", (0, 1, 2, 3, 4, 5)),
        (" { 0 , 1 } ", (0, 1)),
        ("cores", None),
        ("sockets(2)", None),
        ("{0:4},!{2}", None),
        ("{0:4", None),
        ("{}", None),
        ("", None),
        ("{0:999999}:999999", None),
    ],
)
def test_places(text: str, expected: tuple[int, ...] | None) -> None:
    assert parse_places(text) == expected


cpu_sets = st.sets(st.integers(0, 500), min_size=1, max_size=20)
place_lists = st.lists(
    st.tuples(st.integers(0, 99), st.integers(1, 8), st.integers(1, 4)), min_size=1, max_size=4
)


@given(place_lists)
def test_places_are_those_that_were_written(intervals: list[tuple[int, int, int]]) -> None:
    text = ",".join(f"{{{first}:{count}:{step}}}" for first, count, step in intervals)
    expected = {first + step * n for first, count, step in intervals for n in range(count)}
    assert parse_places(text) == tuple(sorted(expected))


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 20), st.integers(1, 4)), min_size=1))
def test_strided_lists_are_those_that_were_written(parts: list[tuple[int, int, int]]) -> None:
    text = " ".join(f"{first}-{first + more}:{step}" for first, more, step in parts)
    expected = {n for first, more, step in parts for n in range(first, first + more + 1, step)}
    assert parse_strided(text) == tuple(sorted(expected))


@pytest.mark.parametrize("text", ["0-3:0", "a", "-1", "3-", "0-9999999", "0;1"])
def test_what_is_no_strided_list_gives_none(text: str) -> None:
    assert parse_strided(text) is None


@given(st.text(max_size=60))
def test_any_text_is_survived(text: str) -> None:
    for parse in (parse_places, parse_strided):
        result = parse(text)
        assert result is None or all(0 <= cpu < 1 << 24 for cpu in result)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "SLURM_CPU_BIND_TYPE",
                "SLURM_CPU_BIND_LIST",
                "SLURM_MEM_BIND_TYPE",
                "SLURM_MEM_BIND_LIST",
                "SLURM_LOCALID",
                "OMP_PLACES",
                "OMP_PROC_BIND",
                "KMP_AFFINITY",
                "GOMP_CPU_AFFINITY",
                "VLLM_CPU_OMP_THREADS_BIND",
                "NCCL_IGNORE_CPU_AFFINITY",
            ]
        ),
        st.text(max_size=20) | st.sampled_from(["mask_cpu:", "0x3,0xc", "map_mem:", "0,1"]),
    )
)
def test_any_environment_is_survived(environment: dict[str, str]) -> None:
    for binder in of(environment):
        assert binder.setting.partition("=")[0] in environment
        assert binder.off[1]


def test_slurm_masks_go_round_by_local_task() -> None:
    environment = {
        "SLURM_CPU_BIND_TYPE": "mask_cpu:",
        "SLURM_CPU_BIND_LIST": "0x000F,0x00F0",
        "SLURM_MEM_BIND_TYPE": "map_mem:",
        "SLURM_MEM_BIND_LIST": "0,1",
    }
    first = of({**environment, "SLURM_LOCALID": "0"})
    assert [(b.cpus, b.nodes) for b in first] == [((0, 1, 2, 3), None), (None, (0,))]
    fourth = of({**environment, "SLURM_LOCALID": "3"})
    assert [(b.cpus, b.nodes) for b in fourth] == [((4, 5, 6, 7), None), (None, (1,))]
    assert [(b.role, b.memory) for b in first] == [(Role.LAUNCH, False), (Role.NONE, True)]


@pytest.mark.parametrize(
    "environment",
    [
        {"SLURM_CPU_BIND_TYPE": "", "SLURM_MEM_BIND_TYPE": "none"},
        {"SLURM_CPU_BIND_TYPE": "none", "SLURM_CPU_BIND_LIST": "0x3"},
        {"OMP_NUM_THREADS": "8"},
        {"OMP_PROC_BIND": "false", "OMP_PLACES": "cores"},
        {"KMP_AFFINITY": "verbose"},
        {"KMP_AFFINITY": "disabled"},
        {"TLLM_NUMA_AWARE_WORKER_AFFINITY": "0"},
        {"SGLANG_SET_CPU_AFFINITY": "0", "SGLANG_NUMA_BIND_V2": "1"},
        {"VLLM_CPU_OMP_THREADS_BIND": "nobind"},
        {"NCCL_IGNORE_CPU_AFFINITY": "0"},
        {"LIGHTLLM_ENABLE_NUMA_INTERLEAVE": "0"},
        {"OMPI_MCA_hwloc_base_binding_policy": "none"},
    ],
)
def test_switched_off_is_no_binder(environment: dict[str, str]) -> None:
    assert of(environment) == []


@pytest.mark.parametrize(
    ("environment", "name", "role", "cpus"),
    [
        ({"OMP_PROC_BIND": "close"}, "OpenMP", Role.THREADS, None),
        ({"OMP_PLACES": "{0:2}"}, "OpenMP", Role.THREADS, (0, 1)),
        ({"GOMP_CPU_AFFINITY": "0-6:2"}, "GNU OpenMP", Role.THREADS, (0, 2, 4, 6)),
        (
            {"KMP_AFFINITY": "granularity=fine,proclist=[0-1,{4,5}],explicit"},
            "Intel/LLVM OpenMP",
            Role.THREADS,
            (0, 1, 4, 5),
        ),
        (
            {"KMP_AFFINITY": "granularity=fine,compact,1,0"},
            "Intel/LLVM OpenMP",
            Role.THREADS,
            None,
        ),
        ({"TLLM_NUMA_AWARE_WORKER_AFFINITY": "1"}, "TensorRT-LLM", Role.REWRITE, None),
        ({"SGLANG_SET_CPU_AFFINITY": "true"}, "SGLang", Role.REWRITE, None),
        (
            {"VLLM_CPU_OMP_THREADS_BIND": "0-1|4-5"},
            "vLLM (CPU)",
            Role.REWRITE,
            (0, 1, 4, 5),
        ),
        ({"VLLM_CPU_OMP_THREADS_BIND": "auto"}, "vLLM (CPU)", Role.REWRITE, None),
        ({"NCCL_IGNORE_CPU_AFFINITY": "1"}, "NCCL", Role.HELPERS, None),
        ({"OMPI_MCA_hwloc_base_binding_policy": "core"}, "Open MPI", Role.LAUNCH, None),
    ],
)
def test_variables(
    environment: dict[str, str], name: str, role: Role, cpus: tuple[int, ...] | None
) -> None:
    binder = only(of(environment))
    assert (binder.name, binder.role, binder.cpus) == (name, role, cpus)


def test_a_pool_policy_is_told_from_a_task_policy() -> None:
    binder = only(of({"LIGHTLLM_ENABLE_NUMA_INTERLEAVE": "1"}))
    assert (binder.pool, binder.memory, binder.role) == (True, False, Role.NONE)


@given(
    st.sampled_from(["--membind", "-m", "--interleave", "-i", "--preferred", "-p", "-w", "-P"]),
    st.sets(st.integers(0, 300), min_size=1, max_size=5),
    st.sampled_from(["joined", "apart", "shell"]),
)
def test_numactl_memory_options(option: str, nodes: set[int], style: str) -> None:
    listed = format_list(nodes)
    long = option.startswith("--")
    words = ["/usr/bin/numactl", "-b", "--all"]
    if style == "joined":
        words += [f"{option}={listed}" if long else f"{option}{listed}"]
    else:
        words += [option, listed]
    words += ["python3", "-m", "7", "--interleave=9"]
    argv = ["sh", "-c", " ".join(words)] if style == "shell" else words
    binder = only(list(from_argv(argv, "cmdline")))
    assert (binder.name, binder.memory, binder.nodes) == ("numactl", True, tuple(sorted(nodes)))
    assert binder.role is Role.NONE


def test_numactl_cpu_options() -> None:
    argv = ["timeout", "9", "numactl", "--cpunodebind=1", "-C", "0-3", "-l", "./x", "-C", "5"]
    by_node, by_number, local = from_argv(argv, "cmdline")
    assert (by_node.role, by_node.cpu_nodes, by_node.cpus) == (Role.LAUNCH, (1,), None)
    assert (by_number.role, by_number.cpus) == (Role.LAUNCH, (0, 1, 2, 3))
    assert (local.memory, local.nodes, local.setting) == (True, None, "numactl -l")


@pytest.mark.parametrize("value", ["all", "!0", "same", "+0", "netdev:eth0"])
def test_a_word_without_fixed_meaning_names_no_nodes(value: str) -> None:
    assert only(list(from_argv(["numactl", f"--membind={value}", "x"], "cmdline"))).nodes is None


@pytest.mark.parametrize(
    ("argv", "cpus"),
    [
        (["taskset", "-c", "0-1,4", "x"], (0, 1, 4)),
        (["taskset", "-ac", "3", "x"], (3,)),
        (["taskset", "0xf0", "x"], (4, 5, 6, 7)),
        (["taskset", "--cpu-list", "2", "x"], (2,)),
    ],
)
def test_taskset(argv: list[str], cpus: tuple[int, ...]) -> None:
    assert only(list(from_argv(argv, "cmdline"))).cpus == cpus


@pytest.mark.parametrize("argv", [[], ["numactl"], ["numactl", "-m"], ["taskset", "-p"], ["vi"]])
def test_command_lines_that_bind_nothing(argv: list[str]) -> None:
    assert all(binder.nodes is None for binder in from_argv(argv, "cmdline"))


@given(st.lists(st.text(max_size=12) | st.sampled_from(["numactl", "taskset", "-m", "--numa"])))
def test_any_command_line_is_survived(argv: list[str]) -> None:
    list(from_argv(argv, "cmdline"))
    list(from_engine(argv, {}, "cmdline"))


def test_engines() -> None:
    sglang = ["python3", "-m", "sglang.launch_server", "--numa-node", "0", "0", "1", "--tp", "8"]
    binder = only(list(from_engine(sglang, {}, "cmdline")))
    assert (binder.role, binder.nodes, binder.cpu_nodes) == (Role.REWRITE, (0, 1), (0, 1))
    assert only(list(from_engine(sglang[:3], {}, "c"))).role is Role.YIELD
    assert list(from_engine(sglang[:3], {"SGLANG_AUTO_NUMA_BIND": "false"}, "c")) == []

    vllm = ["vllm", "serve", "--numa-bind", "--numa-bind-nodes", "0", "1", "--numa-bind-cpus"]
    binder = only(list(from_engine([*vllm, "0-3", "8-11"], {}, "c")))
    assert (binder.role, binder.nodes) == (Role.REWRITE, (0, 1))
    assert binder.cpus == (0, 1, 2, 3, 8, 9, 10, 11)
    assert only(list(from_engine(vllm[:3], {}, "c"))).role is Role.YIELD

    trtllm = ["trtllm-serve", "serve", "model"]
    assert only(list(from_engine(trtllm, {}, "c"))).role is Role.CLEAR
    assert list(from_engine(trtllm, {"TLLM_NUMA_AWARE_WORKER_AFFINITY": "0"}, "c")) == []

    assert only(list(from_engine(["torchrun", "--numa-binding=node"], {}, "c"))).name == "torchrun"
    llama = ["llama-server", "--numa"]
    assert only(list(from_engine([*llama, "distribute"], {}, "c"))).name == "llama.cpp"
    assert list(from_engine([*llama, "numactl"], {}, "c")) == []
    # Other programs have an option of that name as well.
    assert list(from_engine(["qemu-system-x86_64", "--numa", "node"], {}, "c")) == []


def host_of(tmp_path: Path, tree: Tree) -> Host:
    return Host(FolderRoot(str(tree.build(tmp_path / "root"))))


def test_a_process_inherits_from_its_parents_in_their_order(tmp_path: Path) -> None:
    host = host_of(
        tmp_path,
        Tree(
            files={
                "/proc/9/status": "Name:\tpython3\nPPid:\t8\n",
                "/proc/9/cmdline": "python3\\0-m\\0numactl\\0",
                "/proc/9/environ": "SLURM_CPU_BIND_TYPE=mask_cpu:\\0SLURM_CPU_BIND_LIST=0x3\\0",
                "/proc/8/status": "Name:\tsh\nPPid:\t7\n",
                "/proc/8/cmdline": "sh\\0-c\\0numactl -m 1 python3\\0",
                "/proc/7/status": "Name:\ttimeout\nPPid:\t0\n",
                "/proc/7/cmdline": "timeout\\0" + "9s\\0sh\\0-c\\0numactl -m 1 python3\\0",
            }
        ),
    )
    assert parents(host, "/proc/9") == ("/proc/8", "/proc/7")
    binders = read_binders(host, "/proc/9")
    # The same command line, seen in two parents, is one binder.
    assert [(b.name, b.memory) for b in binders] == [("Slurm", False), ("numactl", True)]


def test_parents_that_form_a_circle_end(tmp_path: Path) -> None:
    host = host_of(
        tmp_path,
        Tree(
            files={
                "/proc/9/status": "PPid:\t8\n",
                "/proc/8/status": "PPid:\t9\n",
            }
        ),
    )
    assert parents(host, "/proc/9") == ("/proc/8", "/proc/9")


def test_an_environment_that_may_not_be_read_is_no_answer(tmp_path: Path) -> None:
    host = host_of(
        tmp_path, Tree(files={"/proc/9/status": "PPid:\t0\n"}, errors={"/proc/9/environ": 13})
    )
    with pytest.raises(Denied):
        read_binders(host, "/proc/9")
