import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.evidence.numactl import FORMAT
from numadoctor.evidence.pasted import Pasted
from numadoctor.evidence.recognise import Refusal, recognise
from tests.evidence.pastes import numactl

Machine = tuple[dict[int, list[int]], dict[int, int], dict[int, list[int]]]


def read(text: str) -> tuple[list[Pasted], list[Refusal]]:
    found, refused = recognise(text.encode())
    return [p for p in found if p.format == FORMAT], [r for r in refused if r.format == FORMAT]


def is_true(pasted: Pasted, machine: Machine, *, whole: bool = False) -> None:
    cpus, sizes, distances = machine
    for node in pasted.nodes:
        assert node.cpus == tuple(cpus[node.id])
        assert node.memory_bytes == sizes[node.id] << 20
        assert node.free_bytes == sizes[node.id] // 2 << 20
        if node.distances or whole:
            assert node.distances == dict(zip(cpus, distances[node.id], strict=True))
    if whole:
        assert [node.id for node in pasted.nodes] == list(cpus)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    nodes = sorted(draw(st.sets(st.integers(0, 255), min_size=1, max_size=6)))
    owner = draw(st.lists(st.sampled_from([*nodes, None]), max_size=60))
    cpus = {n: [cpu for cpu, own in enumerate(owner) if own == n] for n in nodes}
    sizes = {n: draw(st.integers(0, 4_000_000)) for n in nodes}
    far = st.sampled_from([11, 12, 20, 21, 32, 40, 80, 254])
    distances = {n: [10 if n == other else draw(far) for other in nodes] for n in nodes}
    return cpus, sizes, distances


@given(machines(), st.booleans())
def test_what_the_program_prints_is_read(machine: Machine, compress: bool) -> None:
    (pasted,), refused = read(numactl(*machine, compress=compress))
    assert refused == []
    is_true(pasted, machine, whole=True)


@given(machines(), st.booleans(), st.data())
def test_a_text_that_ends_early(machine: Machine, compress: bool, data: st.DataObject) -> None:
    text = numactl(*machine, compress=compress)
    for pasted in read(text[: data.draw(st.integers(0, len(text)))])[0]:
        is_true(pasted, machine)


@given(machines(), st.booleans(), st.integers(8, 90), st.booleans())
def test_wrapped_or_cut_lines(machine: Machine, compress: bool, width: int, cut: bool) -> None:
    lines = numactl(*machine, compress=compress).splitlines()
    if compress or not cut:
        # What is cut from a list that is not counted cannot be seen.
        wide = [line[:width] for line in lines] if cut else lines
        if not cut:
            wide = [line[at : at + width] for line in lines for at in range(0, len(line), width)]
        for pasted in read("\n".join(line.rstrip() for line in wide) + "\n")[0]:
            is_true(pasted, machine)


@given(machines(), st.randoms(use_true_random=False), st.sampled_from(["drop", "twice", "mix"]))
def test_lines_lost_repeated_or_in_another_order(
    machine: Machine, random: object, how: str
) -> None:
    lines = numactl(*machine).splitlines()
    place = random.randrange(len(lines))  # type: ignore[attr-defined]
    if how == "drop":
        del lines[place]
    elif how == "twice":
        lines.insert(place, lines[place])
    else:
        random.shuffle(lines)  # type: ignore[attr-defined]
    for pasted in read("\n".join(lines) + "\n")[0]:
        is_true(pasted, machine)


@given(machines(), machines())
def test_two_outputs_one_after_the_other(first: Machine, second: Machine) -> None:
    found, refused = read(numactl(*first) + numactl(*second))
    assert refused == []
    is_true(found[0], first, whole=True)
    is_true(found[1], second, whole=True)


def test_counted_ranges_and_a_distance_of_32() -> None:
    text = (
        "available: 2 nodes (0-1)\nnode 0 cpus: 0-15 (16)\nnode 0 size: 100 MB\n"
        "node 0 free: 1 MB\nnode 1 cpus: 16-31 (16)\nnode 1 size: 100 MB\nnode 1 free: 1 MB\n"
        "node distances:\nnode     0    1 \n   0:   10   32 \n   1:   32   10 \n"
    )
    (pasted,), _ = read(text)
    assert pasted.nodes[1].cpus == tuple(range(16, 32))
    assert pasted.nodes[1].distances == {0: 32, 1: 10}


def test_without_distances_and_sizes() -> None:
    text = (
        "available: 1 nodes (0)\nnode 0 cpus: 0 1\nnode 0 size: <not available>\n"
        "node 0 free: <not available>\nNo distance information available.\n"
    )
    (pasted,), _ = read(text)
    assert pasted.nodes[0].memory_bytes is pasted.nodes[0].free_bytes is None
    assert pasted.notes == ()


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("0-1)", "0-2)", 1, "counts 2 nodes"),
        ("cpus: 0 1 2 3", "cpus: 0 1\n2 3", 3, "wrapped"),
        ("size: 4096 MB", "size: 4096", 3, "cut or wrapped"),
        ("node 1 free: 2048 MB\n", "", 10, "before all of node 1"),
        ("  1:   21   10 \n", "", 10, "not whole"),
        ("   21   10 ", "   21 ", 11, "1 distances from node 1 to 2 nodes"),
        ("node 1 cpus", "node 0 cpus", 5, "stands twice"),
    ],
)
def test_refusals_say_where_and_why(old: str, new: str, line: int, reason: str) -> None:
    text = numactl({0: [0, 1, 2, 3], 1: [4, 5]}, {0: 4096, 1: 4096}, {0: [10, 21], 1: [21, 10]})
    assert old in text
    found, refused = read(text.replace(old, new, 1))
    assert found == []
    assert (refused[0].line, reason in refused[0].reason) == (line, True), refused


def test_a_list_in_ranges_that_lost_its_count_was_cut() -> None:
    machine: Machine = (
        {0: [0, 1, 2, 3, 4, 6, 8, 10, 12], 1: [5, 7, 9, 11]},
        {0: 64, 1: 64},
        {0: [10, 21], 1: [21, 10]},
    )
    lines = numactl(*machine, compress=True).splitlines()
    pasted, refused = read("\n".join(line[:29].rstrip() for line in lines) + "\n")
    assert pasted == []
    assert any("without their number: cut" in refusal.reason for refusal in refused)
