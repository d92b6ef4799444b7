import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host import Host
from numadoctor.host.devices.amd import KFD, KfdNode, kfd_nodes, node_of
from numadoctor.model import Node, NodeKind
from tests.host.machines import Changes, TreeRoot

CPU = "cpu_cores_count 16\nsimd_count 0\n"
NODES = tuple(Node(n, NodeKind.HOST, (n,), 1 << 30) for n in (0, 8))


def gpu(location: int, *, domain: int = 0, minor: int = 128, unique: int = 0) -> str:
    return (
        f"cpu_cores_count 0\nsimd_count 304\nlocation_id {location}\ndomain {domain}\n"
        f"drm_render_minor {minor}\nunique_id {unique}\n"
    )


def link(to: int, kind: int = 2, weight: int = 20) -> str:
    return f"type {kind}\nversion_major 0\nnode_from 2\nnode_to {to}\nweight {weight}\n"


def host(files: Changes) -> Host:
    return Host(TreeRoot({f"{KFD}/{path}": text for path, text in files.items()}))


def test_the_nodes() -> None:
    files = {
        "0/properties": CPU,
        "1/properties": CPU,
        "2/properties": gpu(0xC108, domain=1, minor=130, unique=0xDEADBEEF),
        "2/io_links/0/properties": link(1),
        "2/io_links/1/properties": link(3, kind=99),
        "2/io_links/2/properties": link(4, kind=11, weight=30),
        "2/p2p_links/0/properties": link(5, kind=11),
        "generation_id": "2",
    }
    assert kfd_nodes(host(files)) == (
        KfdNode(0, 16, "", None, "", ()),
        KfdNode(1, 16, "", None, "", ()),
        KfdNode(2, 0, "0001:c1:01.0", 130, "00000000deadbeef", (1, 4), ((4, 2),)),
    )
    # The sparse NUMA ids are those of the kernel, in order.
    assert node_of(host(files), "0001:c1:01.0", NODES) == 8
    assert node_of(host(files), "0000:c1:01.0", NODES) is None


@pytest.mark.parametrize(
    "files",
    [
        {},
        # Another number of CPU nodes than the kernel has: which is which cannot be told.
        {"0/properties": CPU, "2/properties": gpu(0x300), "2/io_links/0/properties": link(0)},
        # A GPU that is linked to both, or to none.
        {
            "0/properties": CPU, "1/properties": CPU, "2/properties": gpu(0x300),
            "2/io_links/0/properties": link(0), "2/io_links/1/properties": link(1),
        },
        {"0/properties": CPU, "1/properties": CPU, "2/properties": gpu(0x300)},
        # A container that may not use the GPU reads an empty file.
        {"0/properties": CPU, "1/properties": CPU, "2/properties": ""},
    ],
)  # fmt: skip
def test_what_cannot_be_told(files: Changes) -> None:
    assert node_of(host(files), "0000:03:00.0", NODES) is None


@pytest.mark.parametrize(
    ("weight", "hops"),
    # The weight of a way between partitions, of none told, and of what no driver writes.
    [(15, 1), (30, 2), (45, 3), (13, 1), (41, 1), (0, 1), (1 << 64, 1)],
)
def test_hops(weight: int, hops: int) -> None:
    files = {"2/properties": gpu(0x300), "2/io_links/0/properties": link(3, 11, weight)}
    assert kfd_nodes(host(files))[0].xgmi == ((3, hops),)


@pytest.mark.parametrize("text", ["", "node_to 3\n", "type 11\n", "junk\n"])
def test_a_link_that_cannot_be_read(text: str) -> None:
    files = {"2/properties": gpu(0x300), "2/io_links/0/properties": text}
    assert kfd_nodes(host(files))[0].unread
    assert not kfd_nodes(host({"2/properties": gpu(0x300)}))[0].unread


@given(st.dictionaries(st.sampled_from(["0", "1", "2", "x"]), st.binary(max_size=60), max_size=4))
def test_any_text_gives_nodes_or_nothing(texts: dict[str, bytes]) -> None:
    files: dict[str, bytes] = {f"{name}/properties": text for name, text in texts.items()}
    assert len(kfd_nodes(host(files))) <= len(texts)
