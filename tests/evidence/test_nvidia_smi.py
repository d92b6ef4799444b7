import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.evidence.nvidia_smi import FORMAT
from numadoctor.evidence.pasted import Pasted
from numadoctor.evidence.recognise import Refusal, recognise
from numadoctor.host.parsers import parse_list
from tests.evidence.pastes import EIGHT, Smi


def read(text: str) -> tuple[list[Pasted], list[Refusal]]:
    found, refused = recognise(text.encode())
    return [p for p in found if p.format == FORMAT], [r for r in refused if r.format == FORMAT]


def one(text: str) -> Pasted:
    found, refused = read(text)
    assert refused == []
    assert len(found) == 1
    return found[0]


def is_true(pasted: Pasted, smi: Smi, *, whole: bool = False) -> None:
    """Nothing that is read is another thing than what is there."""
    truth = smi.truth()
    assert set(pasted.relations) <= set(truth)
    assert {pair: truth[pair] for pair in pasted.relations} == pasted.relations
    by_name = {device.name: device for device in pasted.devices}
    for number in range(smi.gpus):
        device = by_name.get(f"GPU{number}")
        if device is None:
            assert not whole
            continue
        cpus = parse_list(smi.cpus[number].encode()) if smi.cpus[number] else None
        node = smi.nodes[number]
        nodes = None if node == "N/A" or smi.labels < 2 else parse_list(node.encode())
        assert device.cpus == cpus or (device.cpus is None and not whole)
        assert device.nodes == nodes or (device.nodes is None and not whole)
        assert device.memory_nodes == ()
    for name in smi.names[smi.gpus :]:
        assert name not in by_name or by_name[name].cpus is by_name[name].nodes is None
    if whole:
        assert pasted.relations == truth
        assert list(by_name) == smi.names


LISTS = st.lists(st.tuples(st.integers(0, 127), st.integers(0, 15)), min_size=1, max_size=3).map(
    lambda runs: ",".join(f"{a}-{a + n}" if n else f"{a}" for a, n in runs)
)
NODES = st.sampled_from(["0", "1", "7", "12", "0-1", "0,2-3", "N/A"])
WORDS = st.sampled_from(["PIX", "PXB", "PHB", "NODE", "SYS", "NV1", "NV4", "NV12", "NV18"])
NICS = st.sampled_from(["mlx5_0", "mlx5_11", "mlx5_bond_0", "rocep4s0f1", "bnxt_re0"])


@st.composite
def machines(draw: st.DrawFn, most: int = 5) -> Smi:
    gpus = draw(st.integers(1, most))
    nics = draw(st.lists(NICS, max_size=4, unique=True))
    count = gpus + len(nics)
    return Smi(
        gpus=gpus,
        nics=nics,
        cpus=draw(st.lists(LISTS | st.just(""), min_size=gpus, max_size=gpus)),
        nodes=draw(st.lists(NODES, min_size=gpus, max_size=gpus)),
        relations={
            (i, j): draw(WORDS) for i in range(count) for j in range(i + 1, count) if j < gpus + 2
        },
        labels=draw(st.integers(1, 3)),
        named=draw(st.booleans()),
    )


@given(machines())
def test_what_the_driver_prints_is_read(smi: Smi) -> None:
    complete = all(smi.cpus) and len(smi.names[-1]) < 8 and smi.labels == 3
    is_true(one(smi.text()), smi, whole=complete)


@given(machines(), st.sampled_from(["tabs", "blanks", "one blank", "quoted", "indented", "dos"]))
def test_what_clipboards_do_to_blanks(smi: Smi, how: str) -> None:
    text = smi.text()
    if how == "blanks":
        text = text.expandtabs(8)
    elif how == "one blank":
        text = "\n".join(" ".join(line.split()) for line in text.split("\n"))
    elif how == "quoted":
        text = "".join(f"> {line}\n" for line in text.splitlines())
    elif how == "indented":
        text = "".join(f"    {line}\n" for line in text.splitlines())
    elif how == "dos":
        text = text.replace("\n", "\r\n")
    is_true(one(text), smi, whole=all(smi.cpus) and smi.labels == 3)


@given(machines(), st.data())
def test_a_text_that_ends_early(smi: Smi, data: st.DataObject) -> None:
    text = smi.text()
    table = text.index("\nLegend")
    for expanded in (text, text.expandtabs(8)):
        cut = expanded[: data.draw(st.integers(0, min(table, len(expanded))))]
        for pasted in read(cut)[0]:
            is_true(pasted, smi)


@given(machines(), st.integers(1, 200), st.booleans())
def test_lines_wrapped_by_a_terminal(smi: Smi, width: int, trimmed: bool) -> None:
    lines = smi.text().expandtabs(8).splitlines()
    wrapped = [line[at : at + width] for line in lines for at in range(0, len(line) or 1, width)]
    if trimmed:
        wrapped = [line.rstrip() for line in wrapped]
    for pasted in read("\n".join(wrapped) + "\n")[0]:
        is_true(pasted, smi)


@given(machines(), st.integers(1, 200))
def test_lines_cut_by_a_terminal(smi: Smi, width: int) -> None:
    """With the column of the oldest drivers alone a list of CPUs can be cut unseen."""
    smi = replace(smi, labels=3)
    lines = smi.text().expandtabs(8).splitlines()
    for pasted in read("\n".join(line[:width] for line in lines) + "\n")[0]:
        is_true(pasted, smi)


@given(machines(), st.randoms(use_true_random=False), st.sampled_from(["drop", "twice", "mix"]))
def test_lines_lost_repeated_or_in_another_order(smi: Smi, random: object, how: str) -> None:
    lines = smi.lines()
    place = random.randrange(len(lines))  # type: ignore[attr-defined]
    if how == "drop":
        del lines[place]
    elif how == "twice":
        lines.insert(place, lines[place])
    else:
        random.shuffle(lines)  # type: ignore[attr-defined]
    for pasted in read("\n".join(lines) + "\n")[0]:
        is_true(pasted, smi)


@given(machines(), machines(), st.integers(0, 8))
def test_two_tables_run_together(first: Smi, second: Smi, keep: int) -> None:
    found, _ = read("\n".join([*first.lines()[:keep], *second.lines()]) + "\n")
    for pasted in found:
        assert any(holds(pasted, smi) for smi in (first, second))


def holds(pasted: Pasted, smi: Smi) -> bool:
    try:
        is_true(pasted, smi)
    except AssertionError:
        return False
    return True


@given(st.text(st.sampled_from("GPU01 NIC\tXSYNODE\n-,/A\x1b[4m<>`"), max_size=300))
def test_anything_is_read_or_refused(text: str) -> None:
    found, refused = recognise(text.encode())
    for refusal in refused:
        assert 1 <= refusal.line <= text.count("\n") + 1
    assert all(pasted.line >= 1 for pasted in found)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    recognise(data)


def test_a_list_that_ends_where_the_header_ends_may_be_cut() -> None:
    lists = ("0-9,20-29", "0-9,20-29,30", "10-19", "10-19")
    old = replace(EIGHT, labels=1, named=True, cpus=lists)
    assert [d.cpus is None for d in one(old.text()).devices][:4] == [False, True, False, False]
    longer = replace(old, cpus=(*lists[:2], "10-19,100-109,200-209", "10-19"))
    assert [d.cpus is None for d in one(longer.text()).devices][:4] == [False] * 4
    with_comma = longer.text().replace("0-9,20-29,30", "0-9,20-29,3,")
    assert "comma" in read(with_comma)[1][0].reason


def test_an_empty_cell_of_cpus_is_unknown_and_moves_nothing() -> None:
    for text in (EIGHT.text(), EIGHT.text().expandtabs(8)):
        last = next(d for d in one(text).devices if d.name == "GPU3")
        assert (last.cpus, last.nodes, last.memory_nodes) == (None, (1,), ())


def test_without_columns_to_go_by_an_empty_cell_leaves_the_rest_unknown() -> None:
    text = "\n".join(" ".join(line.split()) for line in EIGHT.text().splitlines()) + "\n"
    pasted = one(text)
    last = next(d for d in pasted.devices if d.name == "GPU3")
    assert (last.cpus, last.nodes) == (None, None)
    assert pasted.notes[0][0] == last.line
    assert "cannot be told" in pasted.notes[0][1]


def test_a_set_of_nodes_is_a_set() -> None:
    smi = replace(EIGHT, nodes=("0-1", "0", "1", "N/A"))
    assert [d.nodes for d in one(smi.text()).devices][:4] == [(0, 1), (0,), (1,), None]


def test_the_node_of_a_gpus_own_memory() -> None:
    text = "\n".join(EIGHT.lines()).replace("\t\tN/A", "\t\t4", 1) + "\n"
    assert [d.memory_nodes for d in one(text).devices][:2] == [(4,), ()]


def test_soc_is_what_old_drivers_call_sys() -> None:
    text = replace(EIGHT, labels=1, named=True).text().replace("SYS", "SOC")
    pasted = one(text)
    assert pasted.relations["GPU0", "GPU2"] == "SYS"
    assert [d.names for d in pasted.devices][-1] == ("mlx5_4",)


def test_the_legend_names_the_nics() -> None:
    devices = {device.name: device for device in one(EIGHT.text()).devices}
    assert devices["NIC1"].names == ("mlx5_4",)
    assert devices["NIC1"].kind == "nic"


@pytest.mark.parametrize(
    "mark",
    ["\x1b[4m{}\x1b[0m", "^[[4m{}^[[0m", "\\x1b[4m{}\\x1b[0m", "[4m{}[0m", "\ufffd[4m{}\ufffd[0m"],
)
def test_underlines_of_the_header(mark: str) -> None:
    head, *rows = EIGHT.lines()
    is_true(one("\n".join(["\t" + mark.format(head[1:]), *rows]) + "\n"), EIGHT)


def test_a_tab_lost_at_the_edge_of_a_terminal() -> None:
    text = "\n".join(EIGHT.lines()) + "\n"
    assert "SYS\tSYS" in text
    is_true(one(text.replace("SYS\tSYS", "SYSSYS")), EIGHT)


def test_the_banner_of_a_part_is_told() -> None:
    text = "Warning: only displaying devices of this container\n\n" + EIGHT.text()
    pasted = one(text)
    assert pasted.line == 3
    assert "does not tell all" in pasted.notes[0][1]


def test_the_rows_of_gpus_alone() -> None:
    text = "\n".join(line for line in EIGHT.lines() if "GPU" in line) + "\n"
    pasted = one(text)
    is_true(pasted, EIGHT)
    assert pasted.relations["GPU0", "NIC0"] == "PIX"
    assert "NIC0, NIC1 are left out" in pasted.notes[0][1]


def test_a_table_of_peer_to_peer_is_another_thing() -> None:
    text = "\tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n\nLegend:\n\n  X    = Self\n"
    assert read(text) == ([], [])


@pytest.mark.parametrize(
    ("change", "line", "reason"),
    [
        (lambda t: t.replace("\tNIC1\tCPU", "\nNIC1\tCPU", 1), 2, "wrapped"),
        (lambda t: t.replace("\tCPU Aff", "\nCPU Aff", 1), 2, "wrapped"),
        (lambda t: t.replace("GPU3\tNIC0", "GPU3", 1), 2, "cut or wrapped"),
        (lambda t: t.replace("NUMA Affinity\t", "", 1), 2, "cut or wrapped"),
        (lambda t: t.replace("\tNV12\t X ", "\tNV1\t X ", 1), 1, "NV12"),
        (lambda t: t.replace("GPU3\tSYS", "GPU2\tSYS", 1), 5, "second row"),
        (lambda t: t.replace("\tPIX\t", "\tPI\t", 1), 2, '"PI" of GPU0'),
        (lambda t: t.replace("0-13,28-41", "0-13,28-4", 1), 2, "range in reverse"),
        (lambda t: t[: t.index("\nGPU3") + 1], 4, "without the rows of GPU3"),
    ],
)
def test_refusals_say_where_and_why(change: object, line: int, reason: str) -> None:
    text = change("\n".join(EIGHT.lines()) + "\n")  # type: ignore[operator]
    found, refused = read(text)
    assert found == []
    assert [r.line for r in refused] == [line], refused
    assert re.search(re.escape(reason), refused[0].reason), refused[0].reason


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
def test_encodings_of_clipboards(encoding: str) -> None:
    data = EIGHT.text().encode(encoding)
    if encoding == "utf-16-be":
        data = b"\xfe\xff" + data
    (pasted,), refused = recognise(data)
    assert refused == ()
    is_true(pasted, EIGHT)


def test_invisible_and_wide_blanks_of_web_pages() -> None:
    text = EIGHT.text().expandtabs(8).replace(" ", "\u00a0").replace("GPU1", "GPU1\u200b")
    is_true(one(text), EIGHT)
