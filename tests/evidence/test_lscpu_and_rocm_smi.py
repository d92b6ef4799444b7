import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.evidence import lscpu, rocm_smi
from numadoctor.evidence.pasted import Pasted
from numadoctor.evidence.recognise import Refusal, recognise
from tests.evidence import pastes


def read(text: str, format_: str) -> tuple[list[Pasted], list[Refusal]]:
    found, refused = recognise(text.encode())
    return [p for p in found if p.format == format_], [r for r in refused if r.format == format_]


NODES = {0: "0-15,32-47", 1: "16-31,48-55", 250: ""}
CPUS = {0: (*range(16), *range(32, 48)), 1: (*range(16, 32), *range(48, 56)), 250: ()}


@pytest.mark.parametrize("indent", ["", "  "])
def test_lscpu(indent: str) -> None:
    (pasted,), refused = read(pastes.lscpu(NODES, indent=indent), lscpu.FORMAT)
    assert refused == []
    assert {node.id: node.cpus for node in pasted.nodes} == CPUS
    assert pasted.online == tuple(range(56))


def test_lscpu_through_grep() -> None:
    text = "\n".join(line for line in pastes.lscpu(NODES).splitlines() if "NUMA" in line)
    (pasted,), _ = read(text + "\n", lscpu.FORMAT)
    assert {node.id: node.cpus for node in pasted.nodes} == CPUS
    assert pasted.online is None


def test_two_outputs_of_lscpu_are_two() -> None:
    found, _ = read(pastes.lscpu(NODES) + pastes.lscpu({0: "0-7"}), lscpu.FORMAT)
    assert [len(pasted.nodes) for pasted in found] == [3, 1]


@given(st.data())
def test_lscpu_that_ends_early_or_lost_lines(data: st.DataObject) -> None:
    text = pastes.lscpu(NODES)
    lines = text.splitlines()
    del lines[data.draw(st.integers(0, len(lines) - 1))]
    cut = text[: data.draw(st.integers(0, len(text)))]
    for damaged in (cut, "\n".join(lines) + "\n"):
        for pasted in read(damaged, lscpu.FORMAT)[0]:
            assert all(node.cpus in (None, CPUS[node.id]) for node in pasted.nodes)


@pytest.mark.parametrize(
    ("nodes", "reason"), [({0: "0-3", 1: "3-7"}, "two nodes"), ({0: "0-3,x"}, "not a number")]
)
def test_lscpu_refused(nodes: dict[int, str], reason: str) -> None:
    found, refused = read(pastes.lscpu(nodes), lscpu.FORMAT)
    assert found == []
    assert reason in refused[0].reason


@st.composite
def machines(draw: st.DrawFn) -> tuple[list[int], list[str]]:
    nodes = draw(st.lists(st.integers(-1, 12), min_size=2, max_size=5))
    links = st.lists(
        st.sampled_from(["XGMI", "PCIE"]), min_size=len(nodes) - 1, max_size=len(nodes) - 1
    )
    return nodes, draw(links)


def is_true(pasted: Pasted, nodes: list[int], links: list[str], *, whole: bool = False) -> None:
    for (one, other), link in pasted.relations.items():
        first, second = sorted((int(one[3:]), int(other[3:])))
        assert link == (links[first] if second == first + 1 else "PCIE")
    for device in pasted.devices:
        node = nodes[int(device.name[3:])]
        assert device.nodes == (None if node < 0 else (node,)) or (
            device.nodes is None and not whole
        )
    if whole:
        assert len(pasted.devices) == len(nodes)
        assert len(pasted.relations) == len(nodes) * (len(nodes) - 1)


@given(machines())
def test_rocm_smi(machine: tuple[list[int], list[str]]) -> None:
    (pasted,), refused = read(pastes.rocm(*machine), rocm_smi.FORMAT)
    assert refused == []
    is_true(pasted, *machine, whole=True)


@given(machines(), st.data())
def test_rocm_smi_damaged(machine: tuple[list[int], list[str]], data: st.DataObject) -> None:
    text = pastes.rocm(*machine)
    lines = text.splitlines()
    width = data.draw(st.integers(5, 90))
    del lines[data.draw(st.integers(0, len(lines) - 1))]
    for damaged in (
        text[: data.draw(st.integers(0, len(text)))],
        "\n".join(lines) + "\n",
        "\n".join(line[:width] for line in text.splitlines()) + "\n",
        "\n".join(
            line[at : at + width].rstrip()
            for line in text.splitlines()
            for at in range(0, len(line) or 1, width)
        )
        + "\n",
    ):
        found, refused = recognise(damaged.encode())
        assert {p.format for p in found} | {r.format for r in refused} <= {
            rocm_smi.FORMAT,
            "nvidia-smi topo -m",
        }
        for pasted in found:
            assert pasted.format == rocm_smi.FORMAT
            is_true(pasted, *machine)


def test_rocm_smi_of_the_nodes_alone_and_in_its_other_spelling() -> None:
    text = "GPU 0          : (Topology) Numa Node: 1\nGPU 0    : (Topology) Numa Affinity: 1\n"
    (pasted,), _ = read(text, rocm_smi.FORMAT)
    assert [(d.name, d.nodes, d.vendor) for d in pasted.devices] == [("GPU0", (1,), 0x1002)]
