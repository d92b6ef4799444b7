"""The words of every launcher: what they say is what was planned, read by who reads them."""

import shlex

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import parsers
from numadoctor.host.binders import from_argv, from_engine
from numadoctor.model.plan import Instance, PlannedGpu, PoolBacking, PoolPolicy
from numadoctor.planning.launchers import LAUNCHERS, huge_page_commands, snippets
from numadoctor.planning.starting import Start

ids = st.sets(st.integers(0, 300), min_size=1, max_size=20).map(lambda s: tuple(sorted(s)))


@st.composite
def starts(draw: st.DrawFn) -> Start:
    nodes = draw(st.sets(st.integers(0, 255), min_size=1, max_size=4))
    count = draw(st.integers(0, 4))
    instance = Instance(
        draw(st.sampled_from(("instance-0", "a b", "ö"))),
        gpus=tuple(f"0000:{bus:02x}:00.0" for bus in range(count)),
        pool_size=draw(st.integers(0, 1 << 40)),
        backing=draw(st.sampled_from((None, *PoolBacking))),
        page_size=draw(st.sampled_from((None, 2 << 20, 1 << 30))),
        policy=draw(st.sampled_from(PoolPolicy)),
        nodes=tuple(sorted(nodes)),
        cpus=draw(ids),
    )
    by_gpu = [draw(st.sampled_from((*sorted(nodes), None))) for _ in range(count)]
    nics = draw(st.sampled_from(((), ("mlx5_0",), ("mlx5_0", "mlx5_1"))))
    return Start(
        instance,
        tuple(PlannedGpu(f"0000:{bus:02x}:00.0", bus, 0, "sysfs") for bus in range(count)),
        draw(st.sampled_from(("NVIDIA", "AMD", "Intel"))),
        nics,
        bool(nics),
        tuple(instance.cpus or () for _ in range(count)),
        tuple(by_gpu),
        draw(ids),
        "serve 'a model' --port 8000",
    )


def text(start: Start, launcher: str) -> str:
    (snippet,) = snippets(start, [launcher])
    return snippet.text


@given(starts())
def test_every_launcher_has_words_for_every_plan(start: Start) -> None:
    for snippet in snippets(start, LAUNCHERS):
        assert snippet.text.strip() == snippet.text
        assert "None" not in snippet.text
        assert all(note.endswith(".") for note in snippet.notes)


@given(starts())
def test_numactl_is_read_back_as_planned(start: Start) -> None:
    words = shlex.split(text(start, "numactl"))
    binders = list(from_argv(words[words.index("numactl") :], "here"))
    assert start.instance.cpus in [binder.cpus for binder in binders]
    memory = [binder for binder in binders if binder.memory]
    assert len(memory) == 1
    if start.instance.policy is PoolPolicy.LOCAL:
        assert memory[0].nodes is None
    else:
        assert memory[0].nodes == start.instance.nodes
    assert words[-3:] == ["a model", "--port", "8000"]


@given(starts())
def test_taskset_is_read_back_as_planned(start: Start) -> None:
    words = shlex.split(text(start, "taskset"))
    (binder,) = from_argv(words[words.index("taskset") :], "here")
    assert binder.cpus == start.instance.cpus


@given(starts())
def test_compose_is_yaml_that_compose_understands(start: Start) -> None:
    services = yaml.safe_load(text(start, "compose"))["services"]
    service = services[start.instance.name]
    assert parsers.parse_list(service["cpuset"].encode()) == start.instance.cpus
    assert set(service) <= {
        "image", "cpuset", "cap_add", "shm_size", "ulimits", "environment", "devices", "deploy",
        "command",
    }  # fmt: skip
    assert shlex.split(service["command"])[0] == "numactl"


@given(starts())
def test_kubernetes_is_yaml(start: Start) -> None:
    data = yaml.safe_load(text(start, "kubernetes"))
    assert data["cpuManagerPolicy"] == "static"
    assert data["resources"]["limits"]["cpu"] == len(start.instance.cpus or ())
    one = len(start.instance.nodes or ()) == 1
    assert data["topologyManagerPolicy"] == ("single-numa-node" if one else "restricted")


@given(starts())
def test_slurm_masks_are_those_of_the_plan(start: Start) -> None:
    words = dict(
        word.removeprefix("--").split("=", 1)
        for word in shlex.split(text(start, "slurm").replace("\\\n", " "))
        if word.startswith("--") and "=" in word and "bind" in word
    )
    kind, mask = words["cpu-bind"].split(":")
    assert kind == "mask_cpu"
    assert _members(mask) == start.instance.cpus
    if start.instance.policy is PoolPolicy.BIND:
        assert _members(words["mem-bind"].split(":")[1]) == start.instance.nodes


def _members(mask: str) -> tuple[int, ...]:
    number = int(mask, 16)
    return tuple(at for at in range(number.bit_length()) if number >> at & 1)


@given(starts())
def test_engines_bind_each_worker_to_the_node_of_its_gpu(start: Start) -> None:
    for launcher, option in (("vllm", "--numa-bind-nodes"), ("sglang", "--numa-node")):
        words = shlex.split(text(start, launcher).replace("\\\n", " "))
        known = start.gpus and None not in start.nodes_by_gpu
        assert (option in words) == bool(known)
        if known:
            at = words.index(option) + 1
            assert words[at : at + len(start.gpus)] == [str(node) for node in start.nodes_by_gpu]
            engine = "sglang" if launcher == "sglang" else "vllm"
            assert any(binder.memory for binder in from_engine([engine, *words], {}, "here"))


def start_of(policy: PoolPolicy, nodes: tuple[int, ...]) -> Start:
    instance = Instance("a", (), 1 << 30, policy=policy, nodes=nodes, cpus=(1, 2))
    return Start(instance, (), "", (), False, (), (), (0,), "COMMAND")


@pytest.mark.parametrize(
    ("policy", "nodes", "launcher", "holds", "lacks"),
    [
        # A cpuset binds without any call: the container needs no capability.
        (PoolPolicy.BIND, (1,), "docker", "--cpuset-mems 1", "SYS_NICE"),
        (PoolPolicy.INTERLEAVE, (0, 1), "docker", "--cap-add SYS_NICE", "membind"),
        # It may spill: the cpuset must not forbid it.
        (PoolPolicy.PREFERRED, (1,), "docker", "numactl --preferred=1", "--cpuset-mems"),
        (PoolPolicy.PREFERRED, (0, 1), "numactl", "--preferred-many=0-1", "--preferred="),
        (PoolPolicy.WEIGHTED, (0, 1), "systemd", "numactl --weighted-interleave=0-1", "NUMAPolicy"),
        (PoolPolicy.BIND, (0,), "systemd", "NUMAPolicy=bind\nNUMAMask=0", "numactl"),
        (PoolPolicy.LOCAL, (0,), "systemd", "NUMAPolicy=local", "NUMAMask"),
        (PoolPolicy.INTERLEAVE, (0, 1), "lightllm", "LIGHTLLM_ENABLE_NUMA_INTERLEAVE=1",
         "--interleave"),
    ],
)  # fmt: skip
def test_the_least_that_is_needed(
    policy: PoolPolicy, nodes: tuple[int, ...], launcher: str, holds: str, lacks: str
) -> None:
    words = text(start_of(policy, nodes), launcher)
    assert holds in words
    assert lacks not in words


def test_huge_pages_are_set_by_node() -> None:
    snippet = huge_page_commands([(0, 2 << 20, 512), (8, 1 << 30, 4)])
    assert snippet.text.splitlines() == [
        "echo 512 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
        "echo 4 > /sys/devices/system/node/node8/hugepages/hugepages-1048576kB/nr_hugepages",
    ]
