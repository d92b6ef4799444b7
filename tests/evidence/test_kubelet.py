import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.evidence.kubelet import FORMAT
from numadoctor.evidence.merge import Given, merge
from numadoctor.evidence.pasted import Pasted
from numadoctor.evidence.recognise import recognise
from numadoctor.model import Status, Topology
from tests.evidence.pastes import numactl

LOG = 'Jan 02 03:04:05 host kubelet[7]: I0102 03:04:05.6 7 scope_container.go:83] "TopologyHints" '
JSON = (
    LOG
    + 'hints={"nvidia.com/gpu":[{"NUMANodeAffinity":242,"Preferred":true}],'
    + '"cpu":[{"NUMANodeAffinity":2,"Preferred":true},{"NUMANodeAffinity":18,"Preferred":false}]}'
    + ' pod="a/b" containerName="c"\n'
    + LOG.replace("TopologyHints", "ContainerTopologyHint")
    + 'bestHint={"NUMANodeAffinity":2,"Preferred":true} pod="a/b"\n'
)
PRINTED = (
    "topology_manager.go:198] [topologymanager] TopologyHints for pod 'a_b(1)', container 'c': "
    "map[cpu:[{01 true} {10 true} {11 false}] nvidia.com/gpu:[{11110010 true}]]\n"
)


def read(text: str) -> Pasted:
    (pasted,), refused = recognise(text.encode())
    assert (pasted.format, refused) == (FORMAT, ())
    return pasted


def hints(text: str) -> dict[tuple[str, tuple[int, ...]], bool]:
    return {(hint.resource, hint.nodes): hint.preferred for hint in read(text).hints}


def test_a_number_is_a_mask_and_no_list_of_digits() -> None:
    assert hints(JSON) == {
        ("nvidia.com/gpu", (1, 4, 5, 6, 7)): True,
        ("cpu", (1,)): True,
        ("cpu", (1, 4)): False,
        ("the pod", (1,)): True,
    }


def test_binary_digits() -> None:
    told = {
        ("cpu", (0,)): True,
        ("cpu", (1,)): True,
        ("cpu", (0, 1)): False,
        ("nvidia.com/gpu", (1, 4, 5, 6, 7)): True,
    }
    assert hints(PRINTED) == told
    quoted = LOG + 'hints={"cpu":[{"NUMANodeAffinity":"10","Preferred":true}]}\n'
    assert hints(quoted) == {("cpu", (1,)): True}


def topology(*texts: str) -> Topology:
    return merge([Given(f"{n}.txt", *recognise(text.encode())) for n, text in enumerate(texts)])


def test_nodes_of_a_hint_without_cpus_are_told() -> None:
    """Eight CPUs a node from node 1 on; GPUs on nodes 6 and 7, which have none."""
    cpus = {n: list(range(n * 8, n * 8 + 8)) if 1 <= n <= 5 else [] for n in range(8)}
    text = numactl(
        cpus, dict.fromkeys(cpus, 1000), {n: [10 if n == o else 20 for o in cpus] for n in cpus}
    )
    warned = [r for r in topology(JSON, text).remarks if r.status is Status.WARN]
    assert [remark.text for remark in warned] == [
        "hint for nvidia.com/gpu: mask 242 is nodes 1,4-7; 6-7 of them have no CPUs"
    ]


def test_without_more_the_nodes_are_known_and_nothing_of_them() -> None:
    found = topology(JSON)
    assert [node.id for node in found.nodes] == [1, 4, 5, 6, 7]
    assert {remark.status for remark in found.remarks} == {Status.INFO}


@given(st.integers(1, (1 << 64) - 1), st.booleans(), st.integers(0, 200))
def test_any_mask_in_any_spelling(mask: int, preferred: bool, cut: int) -> None:
    nodes = tuple(bit for bit in range(64) if mask >> bit & 1)
    digits = f"{mask:b}"
    digits = digits.zfill(len(digits) + len(digits) % 2)
    word = str(preferred).lower()
    for text in (
        f'TopologyHints hints={{"x":[{{"NUMANodeAffinity":{mask},"Preferred":{word}}}]}}\n',
        f"TopologyHints map[x:[{{{digits} {word}}}]]\n",
    ):
        assert hints(text) == {("x", nodes): preferred}
        for pasted in recognise(text[:cut].encode())[0]:
            assert [hint.nodes for hint in pasted.hints] == [nodes]


@pytest.mark.parametrize("mask", ["0", str(1 << 64), "-1", "99999999999999999999"])
def test_what_is_no_mask_is_no_hint(mask: str) -> None:
    text = f'TopologyHints hints={{"x":[{{"NUMANodeAffinity":{mask},"Preferred":true}}]}}\n'
    assert recognise(text.encode()) == ((), ())
