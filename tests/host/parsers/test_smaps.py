import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.host.parsers import Backing, MapsLine, parse_smaps, parse_smaps_rollup
from numadoctor.model import ParseError

TEXT = b"""\
7f1000000000-7f1040000000 rw-s 00000000 00:11 5                          /pool (deleted)
Size:            1048576 kB
KernelPageSize:     2048 kB
Rss:                   0 kB
AnonHugePages:         0 kB
Private_Hugetlb: 1048576 kB
THPeligible:           1
VmFlags: rd wr sh mr mw me ms de ht 
a strange line
7f2000000000-7f2000001000 rw-p 00000000 00:00 0 
Size:                  4 kB
Rss:                   4 kB
Rss:                   8 kB
Odd:                   x kB
"""  # noqa: W291


def test_mappings_with_their_sizes_and_flags() -> None:
    read = parse_smaps(TEXT)
    pool, other = read.entries
    backing = Backing("rw-s", 0, (0, 0x11), 5, "/pool (deleted)")
    assert pool.mapping == MapsLine(0x7F1000000000, 0x7F1040000000, backing)
    assert pool.sizes == {
        "Size": 1 << 30,
        "KernelPageSize": 2 << 20,
        "Rss": 0,
        "AnonHugePages": 0,
        "Private_Hugetlb": 1 << 30,
        "THPeligible": 1,
    }
    assert pool.flags == ("rd", "wr", "sh", "mr", "mw", "me", "ms", "de", "ht")
    assert other.sizes == {"Size": 4096, "Rss": 4096}
    assert other.flags == ()
    assert read.unknown == ('"a strange line"', '"Odd:                   x kB"')


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["Rss", "Pss_Dirty", "AnonHugePages", "Private_Hugetlb", "Swap"]),
            st.integers(0, 2**50),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_what_is_written_is_read(sizes: list[dict[str, int]]) -> None:
    text = ""
    for number, fields in enumerate(sizes, 1):
        text += f"{number << 12:08x}-{number + 1 << 12:08x} rw-p 00000000 00:00 0 \n"
        text += "".join(f"{name + ':':16}{value:8} kB\n" for name, value in fields.items())
    read = parse_smaps(text.encode())
    assert [entry.sizes for entry in read.entries] == [
        {name: value * 1024 for name, value in fields.items()} for fields in sizes
    ]
    assert [entry.mapping.start >> 12 for entry in read.entries] == [*range(1, len(sizes) + 1)]
    assert read.unknown == ()


def test_fields_before_the_first_mapping_belong_to_nothing() -> None:
    read = parse_smaps(b"Rss: 4 kB\nVmFlags: rd\n" + TEXT)
    assert read.unknown[:2] == ('"Rss: 4 kB"', '"VmFlags: rd"')
    assert len(read.entries) == 2


def test_the_rollup_is_one_mapping_of_all() -> None:
    text = b"55d0-7ffd ---p 00000000 00:00 0                          [rollup]\nRss:  1624 kB\n"
    assert parse_smaps_rollup(text) == {"Rss": 1624 * 1024}


@pytest.mark.parametrize("text", [b"", b"55d0-7ffd ---p 00000000 00:00 0 [rollup]\n"])
def test_a_rollup_without_a_field_is_refused(text: bytes) -> None:
    with pytest.raises(ParseError, match="it has no field"):
        parse_smaps_rollup(text)


def test_a_file_without_mappings() -> None:
    assert parse_smaps(b"") == ((), ())
    with pytest.raises(ParseError, match="no line of it can be understood"):
        parse_smaps(b"Rss: 4 kB\n")
