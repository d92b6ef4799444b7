"""How a placement is judged, on placements made by hand."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from numadoctor.allocator.pool import Pool
from numadoctor.allocator.verify import judge
from numadoctor.model import Status
from numadoctor.model.placement import Kind, Mapping, Method, Placement
from numadoctor.placement.intervals import counted

PAGE = 4096


def pool(mode: str, nodes: tuple[int, ...], length: int, **more: Any) -> Pool:
    made = SimpleNamespace(
        effective_mode=mode, effective_nodes=nodes, weights={}, length=length, **more
    )
    return cast(Pool, made)


def placement(pages: dict[int, int], run: int | None, **more: Any) -> Placement:
    bytes_by_node = {node: count * PAGE for node, count in pages.items()}
    return Placement(
        mapping=Mapping(1, 0, None, Kind.POSIX),
        method=Method.EXACT,
        page_size=PAGE,
        by_node=counted(bytes_by_node),
        resident=sum(bytes_by_node.values()),
        run_length=run,
        **more,
    )


@pytest.mark.parametrize(
    ("mode", "nodes", "pages", "run", "status", "says"),
    [
        ("interleave", (0, 1), {0: 500, 1: 500}, PAGE, Status.PASS, "50.0 %"),
        ("interleave", (0, 1), {0: 501, 1: 500}, PAGE, Status.PASS, ""),
        ("interleave", (0, 1), {0: 700, 1: 300}, PAGE, Status.WARN, "Node 1 had no free page"),
        ("interleave", (0, 8), {0: 500, 8: 500}, PAGE, Status.PASS, "node 8"),
        ("interleave", (0,), {0: 500, 1: 500}, PAGE, Status.WARN, "outside node 0"),
        ("bind", (1,), {0: 1, 1: 999}, PAGE, Status.FAIL, "4 KiB on node 0"),
        ("bind", (1,), {1: 1000}, 1000 * PAGE, Status.PASS, ""),
        ("first-touch", (), {0: 770, 1: 230}, PAGE, Status.INFO, "77.0 %"),
        ("preferred-many", (0, 1), {0: 900, 1: 100}, PAGE, Status.PASS, ""),
        ("interleave", (0, 1), {0: 1 << 17, 1: 1 << 17}, PAGE << 17, Status.WARN, "along the pool"),
    ],
)
def test_judgement(
    mode: str,
    nodes: tuple[int, ...],
    pages: dict[int, int],
    run: int,
    status: Status,
    says: str,
) -> None:
    length = sum(pages.values()) * PAGE
    (finding,) = judge(pool(mode, nodes, length), placement(pages, run))
    assert finding.status is status, finding
    assert says in f"{finding.message} {finding.cause}"
    if status in (Status.WARN, Status.FAIL):
        assert finding.fixes


def test_what_is_not_in_yet_is_told() -> None:
    found = judge(pool("interleave", (0, 1), 4000 * PAGE), placement({0: 500, 1: 500}, PAGE))
    assert [f.status for f in found] == [Status.PASS, Status.INFO]
    assert "not in yet" in found[1].message


def test_untouched() -> None:
    (finding,) = judge(pool("interleave", (0, 1), PAGE), placement({}, None))
    assert finding.status is Status.INFO
