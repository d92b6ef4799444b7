"""Placements made by hand."""

from numadoctor.model.placement import (
    Attacher,
    Cell,
    Cost,
    Kind,
    Mapping,
    Method,
    Placement,
    Policy,
    Process,
    ProcessPlacement,
    Remainder,
    Share,
)
from numadoctor.placement import intervals

GIB, MIB = 1 << 30, 1 << 20


def mapping(
    kind: Kind = Kind.ANONYMOUS,
    nodes: dict[int, int] | None = None,
    *,
    name: str = "",
    pid: int = 4242,
    start: int = 0x7F0000000000,
    length: int = GIB,
    policy: str | None = "default",
    shares: dict[int, Share] | None = None,
    run_length: int | None = None,
    strip: tuple[Cell, ...] = (),
    attachers: tuple[int, ...] = (),
    page_size: int = 4096,
    thp: int | None = None,
    swapped: int | None = None,
) -> Placement:
    """A placement, counted unless ``shares`` are given."""
    by_node = intervals.counted(nodes or {}) if shares is None else shares
    return Placement(
        mapping=Mapping(pid, start, start + length, kind, name, "rw-p"),
        method=Method.EXACT if shares is None else Method.SAMPLED,
        page_size=page_size,
        by_node=by_node,
        resident=sum(share.bytes for share in by_node.values()),
        policy=None if policy is None else Policy(policy, policy.partition(":")[0]),
        policy_unknown="" if policy else "only numa_maps tells it: --exact",
        samples=0 if shares is None else 1000,
        run_length=run_length,
        strip=strip,
        attachers=tuple(Attacher(pid, start) for pid in attachers),
        thp_bytes=thp,
        swapped_bytes=swapped,
    )


def whole(
    *mappings: Placement,
    remainders: tuple[Remainder, ...] = (),
    processes: tuple[Process, ...] = (Process(4242, "vllm", threads=212),),
    method: Method = Method.EXACT,
    incomplete: tuple[str, ...] = (),
    remarks: tuple[str, ...] = (),
    cost: Cost = Cost(7, 0, 0.00102, 0.1),  # noqa: B008
) -> ProcessPlacement:
    """All of it, the sums drawn from the parts."""
    nodes = intervals.total([m.by_node for m in mappings] + [r.by_node for r in remainders])
    return ProcessPlacement(
        processes=processes,
        mappings=mappings,
        remainders=remainders,
        nodes=nodes,
        resident=sum(share.bytes for share in nodes.values()),
        method=method,
        because="asked for",
        cost=cost,
        page_size=4096,
        thp_size=2 * MIB,
        seed=7,
        incomplete=incomplete,
        remarks=remarks,
    )
