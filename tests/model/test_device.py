import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.model import Device, Distance, distance

ROOT, OTHER_ROOT = "pci0000:00", "pci0000:80"
PORT, UP, DOWN, DOWN_2 = "0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:02:01.0"


def device(address: str, *path: str, node: int | None = 0) -> Device:
    return Device(address, 0x030200, 0x10DE, 0x2330, "gpu", node, "sysfs", path=path)


GPU = device("0000:03:00.0", ROOT, PORT, UP, DOWN)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (GPU, Distance.SELF),
        # Below the same switch, and the other function of the same card.
        (device("0000:04:00.0", ROOT, PORT, UP, DOWN_2), Distance.PIX),
        (device("0000:03:00.1", ROOT, PORT, UP, DOWN), Distance.PIX),
        # A switch below the switch.
        (device("0000:07:00.0", ROOT, PORT, UP, DOWN_2, "0000:05:00.0"), Distance.PXB),
        # Another root port of the same host bridge, and on the root bus itself.
        (device("0000:20:00.0", ROOT, "0000:00:02.0"), Distance.PHB),
        (device("0000:00:05.0", ROOT), Distance.PHB),
        (device("0000:81:00.0", OTHER_ROOT, "0000:80:01.0"), Distance.NODE),
        (device("0000:81:00.0", OTHER_ROOT, "0000:80:01.0", node=1), Distance.SYS),
        (device("0000:81:00.0", OTHER_ROOT, "0000:80:01.0", node=None), None),
        # Below one host bridge the node does not matter.
        (device("0000:20:00.0", ROOT, "0000:00:02.0", node=None), Distance.PHB),
        (device("0000:81:00.0", node=0), Distance.NODE),
        (device("0000:81:00.0", node=None), None),
    ],
)
def test_distances(other: Device, expected: Distance | None) -> None:
    assert distance(GPU, other) is expected
    assert distance(other, GPU) is expected


def test_functions_of_one_card_below_a_root_port() -> None:
    one = device("0000:01:00.0", ROOT, PORT)
    assert distance(one, one._replace(address="0000:01:00.1")) is Distance.PIX


def test_labels_are_those_of_nvidia_smi() -> None:
    assert [step.label for step in Distance] == ["X", "PIX", "PXB", "PHB", "NODE", "SYS"]
    assert sorted(Distance) == list(Distance)


PATHS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=4).map(
    lambda names: tuple("/".join(names[: n + 1]) for n in range(len(names)))
)


@given(PATHS, PATHS, st.none() | st.integers(0, 2), st.none() | st.integers(0, 2))
def test_distance_in_any_tree(
    one: tuple[str, ...], two: tuple[str, ...], node: int | None, other: int | None
) -> None:
    a, b = device("0000:01:00.0", *one, node=node), device("0000:02:00.0", *two, node=other)
    found = distance(a, b)
    assert found is distance(b, a)
    shared = len(set(one) & set(two))
    if shared:
        assert found in ((Distance.PIX, Distance.PXB) if shared > 1 else (Distance.PHB,))
    elif node is None or other is None:
        assert found is None
    else:
        assert found is (Distance.NODE if node == other else Distance.SYS)
