from numadoctor.model.placement import Cost, Kind, Method, Process, Share
from numadoctor.report.processes import counted, head, who
from tests.placement.made import GIB, mapping, whole

NINE = tuple(Process(4242 + i, "vllm", threads=24) for i in range(9))


def test_who() -> None:
    assert who(NINE) == "pid 4242 vllm (9 processes, 216 threads)"
    assert who((Process(7, "sleep", threads=1),)) == "pid 7 sleep"
    assert who(()) == "no process"


def test_counts() -> None:
    assert [counted(1, "GPU"), counted(1212, "thread"), counted(2, "process")] == [
        "1 GPU",
        "1,212 threads",
        "2 processes",
    ]


def test_the_head_line_tells_who_what_how_and_what_it_cost() -> None:
    share = {0: Share(GIB, GIB // 2, 2 * GIB, 1.0, 0.97, 1.0)}
    placement = whole(
        mapping(Kind.POSIX, shares=share),
        processes=NINE,
        method=Method.SAMPLED,
        cost=Cost(79, 10_000, 0.00005, 0.3),
    )
    assert head(placement, 8) == (
        "pid 4242 vllm (9 processes, 216 threads), 8 GPUs, 1 GiB resident, sampled ±3 %, "
        "longest hold of the process 0.05 ms"
    )


def test_that_another_way_had_to_be_taken_is_told() -> None:
    why = "a system-call filter refuses move_pages"
    placement = whole(mapping(Kind.POSIX, {0: GIB}))._replace(because=why)
    assert f"1 GiB resident, counted by numa_maps ({why})" in head(placement, None)


def test_what_is_not_known_is_left_out() -> None:
    placement = whole(mapping(Kind.POSIX, {0: GIB}), cost=Cost())
    assert head(placement, None) == "pid 4242 vllm (212 threads), 1 GiB resident"
    nobody = whole(processes=(Process(7, "init", problem="permission denied"),), cost=Cost())
    assert head(nobody, 0) == "pid 7 init"
