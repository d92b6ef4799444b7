import ctypes
import errno
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.kernel import policy, refusal, syscalls
from numadoctor.kernel.policy import (
    Applied,
    MbindFlag,
    Mode,
    ModeFlag,
    Policy,
    PolicyError,
    relative_nodes,
)
from numadoctor.kernel.process import mems_allowed
from numadoctor.kernel.refusal import (
    BadRequest,
    EmptyNodeSet,
    Filtered,
    KernelTooOld,
    MaskTooShort,
    Misplaced,
    NoMemory,
    NoNuma,
    NoSuchNode,
    NoSuchProcess,
    NothingBound,
    NotPermitted,
    OutsideCpuset,
    RangeHole,
    Request,
    Unaligned,
)
from numadoctor.kernel.syscalls import Answer
from numadoctor.model import ParseError
from tests.kernel import seccomp
from tests.kernel.child import in_child
from tests.kernel.test_probe import as_nobody

live = pytest.mark.usefixtures("policy_calls")
SIZE = mmap.PAGESIZE


@contextmanager
def pages(count: int, *, touched: bool = False) -> Iterator[int]:
    """Address of some private pages of this process."""
    with mmap.mmap(-1, count * SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        first = ctypes.c_char.from_buffer(memory)
        if touched:
            memory[:] = b"x" * len(memory)
        try:
            yield ctypes.addressof(first)
        finally:
            del first


@pytest.fixture
def node() -> int:
    return policy.mems_allowed()[0]


def shown(applied: Applied) -> dict[str, Any]:
    """What a child tells its parent of it."""
    return {
        "policy": str(applied.policy),
        "nodes": applied.nodes,
        "dropped": applied.dropped,
        "narrowed": applied.narrowed,
        "because": applied.because,
    }


def refused(ask: Callable[[], Any]) -> tuple[type[PolicyError], str, str, int]:
    with pytest.raises(PolicyError) as caught:
        ask()
    error = caught.value
    assert error.fix
    name = errno.errorcode[error.errno or 0]
    assert str(error) == f"{error.call}: {name}: {error.cause}: {error.fix}"
    return type(error), error.cause, error.call, error.errno or 0


def refused_in(wrapper: Callable[..., Any], ask: Callable[[], Any], *before: Any) -> list[Any]:
    """Class name and cause of the refusal that ``ask`` meets in a child."""

    def run() -> list[Any]:
        try:
            ask()
        except PolicyError as error:
            return [type(error).__name__, error.cause]
        return ["accepted", ""]

    found: list[Any] = wrapper(run, *before)
    return found


def under(run: Callable[[], Any], rules: dict[str, int]) -> Any:
    def filtered() -> Any:
        seccomp.install(rules)
        return run()

    return in_child(filtered)


def test_constants_are_those_of_the_system_headers() -> None:
    header = Path("/usr/include/linux/mempolicy.h")
    if not header.exists():
        pytest.skip("needs the kernel headers (linux-libc-dev)")
    text = header.read_text()
    for flag in ModeFlag:
        shift = int(flag).bit_length() - 1
        assert f"MPOL_F_{flag.name}" in text
        line = next(line for line in text.splitlines() if f"MPOL_F_{flag.name}\t" in line)
        assert f"(1 << {shift})" in line
    names = [line.strip().rstrip(",") for line in text.splitlines() if line.startswith("\tMPOL_")]
    values = [name.partition(",")[0].split()[0] for name in names]
    for mode in Mode:
        name = f"MPOL_{mode.name}"
        if name in values:  # headers older than the mode do not know it
            assert values.index(name) == int(mode)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (Policy.of(0), "default"),
        (Policy.of(1, [3]), "prefer:3"),
        (Policy.of(2, [1, 0], 1 << 15 | 1 << 13), "bind=static|balancing:0-1"),
        (Policy.of(3, [0, 8]), "interleave:0,8"),
        (Policy.of(4), "local"),
        (Policy.of(5, [0]), "prefer (many):0"),
        (Policy.of(6, [0, 1], 1 << 14), "weighted interleave=relative:0-1"),
        (Policy.of(9, [0]), "mode 9:0"),
    ],
)
def test_a_policy_is_written_as_in_numa_maps(wanted: Policy, text: str) -> None:
    assert str(wanted) == text


def test_modes_and_flags_make_the_numbers_of_the_calls() -> None:
    wanted = Policy.of(Mode.BIND, [1, 0, 1], ModeFlag.STATIC_NODES)
    assert wanted == Policy(Mode.BIND, (0, 1), ModeFlag.STATIC_NODES)
    assert wanted.raw_mode == 0x8002
    assert Policy.of(77).mode == 77


@live
def test_set_and_read_back(node: int) -> None:
    def ask() -> Any:
        results = [shown(policy.set_mempolicy(Mode.BIND, [node]))]
        results.append(shown(policy.set_mempolicy(Mode.INTERLEAVE, [node])))
        results.append({"next": policy.next_interleave_node()})
        results.append(shown(policy.set_mempolicy(Mode.DEFAULT)))
        return results

    bound, spread, following, default = in_child(ask)
    assert bound["policy"] == f"bind:{node}"
    assert (bound["nodes"], bound["narrowed"], bound["because"]) == ([node], False, "")
    assert spread["policy"] == f"interleave:{node}"
    assert following == {"next": node}
    assert (default["policy"], default["nodes"], default["narrowed"]) == ("default", [], False)


@live
def test_a_narrowed_set_is_told(node: int) -> None:
    result = in_child(lambda: shown(policy.set_mempolicy(Mode.INTERLEAVE, [node, 60])))
    assert result["nodes"] == [node]
    assert result["dropped"] == [60]
    assert result["narrowed"] is True
    assert result["because"] == (
        f"asked for node {node},60, Mems_allowed_list is {node}: pages come from node {node}"
    )


@live
def test_preferred_takes_the_first_node_only(node: int) -> None:
    asked = Policy.of(Mode.PREFERRED, [node, 60])
    result = in_child(lambda: shown(policy.set_mempolicy(Mode.PREFERRED, asked.nodes)))
    assert result["nodes"] == [node]
    assert "honours the first node only" in result["because"]


@live
def test_a_static_set_is_read_back_as_asked_and_acts_narrowed(node: int) -> None:
    result = in_child(
        lambda: shown(policy.set_mempolicy(Mode.BIND, [node, 60], ModeFlag.STATIC_NODES))
    )
    assert result["policy"] == f"bind=static:{node},60"
    assert (result["nodes"], result["dropped"]) == ([node], [60])


@live
def test_a_relative_set_is_resolved(node: int) -> None:
    if len(policy.mems_allowed()) != 1:
        pytest.skip("the expectation is for one allowed node")
    result = in_child(
        lambda: shown(policy.set_mempolicy(Mode.BIND, [0, 1, 7], ModeFlag.RELATIVE_NODES))
    )
    assert result["nodes"] == [node]
    assert result["narrowed"] is True
    assert result["dropped"] == []


@live
def test_a_range_has_its_own_policy(node: int) -> None:
    with pages(4) as start:
        applied = policy.mbind(start + SIZE, 2 * SIZE, Mode.BIND, [node])
        assert applied.policy == Policy.of(Mode.BIND, [node])
        assert policy.policy_of(start + SIZE) == policy.policy_of(start + 2 * SIZE)
        assert policy.policy_of(start + SIZE).mode is Mode.BIND
        assert policy.policy_of(start) == policy.get_mempolicy()
        assert policy.mbind(start, 0, Mode.DEFAULT) == Applied(Policy.of(0), None, None)


@live
def test_where_pages_are(node: int) -> None:
    with pages(3) as start:
        ctypes.memset(start + SIZE, 1, 1)
        places = policy.pages_on([start, start + SIZE, 64 * SIZE])
        assert places == (-errno.ENOENT, node, -errno.EFAULT)
        assert policy.node_of(start + SIZE) == node
        assert policy.pages_on([]) == ()


@live
def test_many_pages_are_looked_up_in_the_chunks_of_a_32_bit_process(
    node: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "_QUERY_CHUNK", 16)
    with pages(50) as start:
        ctypes.memset(start + 17 * SIZE, 1, 1)
        ctypes.memset(start + 49 * SIZE, 1, 1)
        places = policy.pages_on([start + page * SIZE for page in range(50)])
    absent = -errno.ENOENT
    assert places == tuple(node if page in (17, 49) else absent for page in range(50))


@live
def test_moving_to_where_they_are(node: int) -> None:
    with pages(2, touched=True) as start:
        assert policy.move_pages([start, start + SIZE], [node, node]) == (node, node)
    assert policy.migrate_pages([node], [node]) == 0


def test_pages_and_nodes_go_in_pairs() -> None:
    with pytest.raises(ValueError, match="2 pages and 1 nodes"):
        policy.move_pages([0, SIZE], [0])


@pytest.mark.parametrize(
    "ask",
    [
        lambda: policy.set_mempolicy(Mode.BIND, [-1]),
        lambda: policy.set_mempolicy(Mode.BIND, [True]),
        lambda: policy.mbind(0, 0, Mode.BIND, [1 << 20]),
        lambda: policy.migrate_pages([0], [-1]),
        lambda: policy.move_pages([0], [-1]),
        lambda: policy.set_mempolicy_home_node(0, 0, -1),
    ],
)
def test_hostile_ids_never_reach_the_kernel(
    ask: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syscalls, "call", None)
    with pytest.raises(ParseError):
        ask()


@live
def test_empty_after_the_cpuset(node: int) -> None:
    kind, cause, call, number = refused(lambda: policy.set_mempolicy(Mode.BIND, [60]))
    assert (kind, call, number) == (EmptyNodeSet, "set_mempolicy", errno.EINVAL)
    assert cause.startswith(f"Asked for node 60; Mems_allowed_list is {node}")
    with pages(1) as start:
        assert refused(lambda: policy.mbind(start, SIZE, Mode.BIND, [60]))[0] is EmptyNodeSet
        assert refused(lambda: policy.mbind(start, SIZE, Mode.BIND))[0] is EmptyNodeSet
    assert refused(lambda: policy.migrate_pages([node], [60]))[0] is EmptyNodeSet


@live
def test_a_node_beyond_what_the_kernel_can_name() -> None:
    own = mems_allowed()
    assert own is not None
    width = own.bits
    kind, cause, *_ = refused(lambda: policy.set_mempolicy(Mode.BIND, [0, width]))
    assert kind is NoSuchNode
    assert f"node {width} is beyond the {width}" in cause


@live
def test_requests_that_do_not_go_together(node: int) -> None:
    both = ModeFlag.STATIC_NODES | ModeFlag.RELATIVE_NODES
    kind, cause, *_ = refused(lambda: policy.set_mempolicy(Mode.BIND, [node], both))
    assert (kind, "exclude each other" in cause) == (BadRequest, True)
    kind, cause, *_ = refused(lambda: policy.set_mempolicy(Mode.DEFAULT, [node]))
    assert (kind, "take no nodes" in cause) == (BadRequest, True)
    kind, cause, *_ = refused(lambda: policy.set_mempolicy(77, [node]))
    assert (kind, "mode 77 is unknown" in cause) == (BadRequest, True)
    with pages(1) as start:
        kind, cause, *_ = refused(lambda: policy.mbind(start, SIZE, Mode.BIND, [node], 0, 64))
        assert (kind, "0x40" in cause) == (BadRequest, True)
        kind, cause, *_ = refused(lambda: policy.mbind(start, -SIZE, Mode.BIND, [node]))
        assert kind in (BadRequest, EmptyNodeSet, PolicyError)
    kind, cause, *_ = refused(lambda: policy.next_interleave_node())
    assert (kind, "no next node" in cause) == (BadRequest, True)


@live
def test_balancing_where_it_does_not_belong(node: int) -> None:
    ask = lambda: policy.set_mempolicy(  # noqa: E731
        Mode.INTERLEAVE, [node], ModeFlag.NUMA_BALANCING
    )
    kind, cause, *_ = refused(ask)
    assert kind in (BadRequest, KernelTooOld)
    assert "MPOL_F_NUMA_BALANCING" in cause


@live
def test_unaligned(node: int) -> None:
    with pages(2) as start:
        kind, cause, call, _ = refused(lambda: policy.mbind(start + 8, SIZE, Mode.BIND, [node]))
        assert (kind, call) == (Unaligned, "mbind")
        assert cause == f"address {start + 8:#x} is not a multiple of the page size ({SIZE})"


@live
def test_a_hole_in_the_range_is_named(node: int) -> None:
    libc = ctypes.CDLL(None)

    def ask() -> Any:
        with pages(5) as start:
            libc.munmap(ctypes.c_void_p(start + 2 * SIZE), ctypes.c_size_t(SIZE))
            return [*refused(lambda: policy.mbind(start, 5 * SIZE, Mode.BIND, [node]))[1:2], start]

    cause, start = in_child(ask)
    assert cause == f"address {start + 2 * SIZE:#x} is not mapped"
    assert refused(lambda: policy.node_of(64 * SIZE))[0] is RangeHole


@live
def test_a_mask_too_short() -> None:
    kind, cause, *_ = refused(lambda: policy.get_mempolicy(maxnode=0))
    assert (kind, "maxnode 0 is below" in cause) == (MaskTooShort, True)


@live
def test_a_home_node_needs_a_policy(node: int) -> None:
    with pages(2) as start:
        kind, cause, *_ = refused(lambda: policy.set_mempolicy_home_node(start, SIZE, node))
        if kind is KernelTooOld:
            pytest.skip("this kernel has no set_mempolicy_home_node (before Linux 5.17)")
        assert (kind, "no policy" in cause) == (NothingBound, True)
        policy.mbind(start, SIZE, Mode.INTERLEAVE, [node])
        kind, cause, *_ = refused(lambda: policy.set_mempolicy_home_node(start, SIZE, node))
        assert (kind, "MPOL_PREFERRED_MANY only" in cause) == (NothingBound, True)
        policy.mbind(start, SIZE, Mode.BIND, [node])
        policy.set_mempolicy_home_node(start, SIZE, node)
        assert refused(lambda: policy.set_mempolicy_home_node(start, SIZE, 60))[0] is NoSuchNode
        assert (
            refused(lambda: policy.set_mempolicy_home_node(start + 1, SIZE, node))[0] is Unaligned
        )


@live
def test_a_node_that_is_not_there_cannot_be_moved_to() -> None:
    with pages(1, touched=True) as start:
        assert refused(lambda: policy.move_pages([start], [60]))[0] is NoSuchNode


@live
def test_other_processes(node: int) -> None:
    gone = os.fork()
    if gone == 0:
        os._exit(0)
    os.waitpid(gone, 0)
    assert refused(lambda: policy.pages_on([0], pid=gone))[0] is NoSuchProcess
    assert refused(lambda: policy.migrate_pages([node], [node], pid=gone))[0] is NoSuchProcess


@live
def test_without_a_right_the_kernel_itself_refuses(node: int) -> None:
    parent = os.getpid()
    with pages(1, touched=True) as start:
        ask = lambda: policy.move_pages([start], [node], move_all=True)  # noqa: E731
        name, cause = refused_in(as_nobody, ask)
        assert (name, "MPOL_MF_MOVE_ALL needs CAP_SYS_NICE" in cause) == ("NotPermitted", True)
        every = lambda: policy.mbind(  # noqa: E731
            start, SIZE, Mode.BIND, [node], 0, MbindFlag.MOVE_ALL
        )
        assert refused_in(as_nobody, every)[0] == "NotPermitted"
        foreign = lambda: policy.pages_on([start], pid=parent)  # noqa: E731
        name, cause = refused_in(as_nobody, foreign)
        assert (name, f"process {parent} is another's" in cause) == ("NotPermitted", True)
        outside = lambda: policy.migrate_pages([node], [60])  # noqa: E731
        assert refused_in(as_nobody, outside)[0] == "OutsideCpuset"
        plain = lambda: policy.mbind(start, SIZE, Mode.BIND, [node])  # noqa: E731
        assert refused_in(as_nobody, plain)[0] == "accepted"


@live
@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.EACCES])
def test_a_filter_is_called_a_filter(number: int, node: int) -> None:
    with pages(1, touched=True) as start:
        calls: dict[str, Callable[[], Any]] = {
            "mbind": lambda: policy.mbind(start, SIZE, Mode.BIND, [node], 0, MbindFlag.MOVE_ALL),
            "set_mempolicy": lambda: policy.set_mempolicy(Mode.BIND, [node]),
            "get_mempolicy": policy.get_mempolicy,
            "set_mempolicy_home_node": lambda: policy.set_mempolicy_home_node(start, SIZE, node),
            "move_pages": lambda: policy.pages_on([start]),
            "migrate_pages": lambda: policy.migrate_pages([node], [node]),
        }
        for name, ask in calls.items():
            kind, cause = refused_in(under, ask, {name: seccomp.refuse(number)})
            assert kind == "Filtered", name
            assert "seccomp filter" in cause


@live
def test_a_policy_that_cannot_be_read_back_is_still_set(node: int) -> None:
    def ask() -> Any:
        return shown(policy.set_mempolicy(Mode.BIND, [node]))

    result = under(ask, {"get_mempolicy": seccomp.refuse(errno.EPERM)})
    assert result["nodes"] is None
    assert result["narrowed"] is False
    assert "cannot be read back: a seccomp filter" in result["because"]


@live
def test_more_mappings_than_allowed(node: int) -> None:
    limit = int(Path("/proc/sys/vm/max_map_count").read_text())
    if limit > 200_000:
        pytest.skip(f"vm.max_map_count is {limit}: too many mappings to make")
    libc = ctypes.CDLL(None)

    def ask() -> Any:
        count = 2 * limit
        memory = mmap.mmap(-1, count * SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for page in range(1, count, 2):
            if libc.mprotect(ctypes.c_void_p(start + page * SIZE), ctypes.c_size_t(SIZE), 1):
                break
        # Two pages of what is left in one piece: a policy for one splits it.
        kind, cause, *_ = refused(
            lambda: policy.mbind(start + (count - 8) * SIZE, SIZE, Mode.BIND, [node])
        )
        return [kind.__name__, cause]

    kind, cause = in_child(ask)
    assert kind == "NoMemory"
    assert "vm.max_map_count" in cause


def test_a_kernel_that_does_not_know_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    def old_kernel(*arguments: int) -> Answer:
        mode = arguments[2] & ~0xE000
        return Answer(-1, errno.EINVAL) if mode >= 5 or arguments[2] & 1 << 13 else Answer(0, 0)

    monkeypatch.setattr(syscalls, "mbind", old_kernel)
    monkeypatch.setattr(refusal, "_mems_allowed", lambda: (0,))
    for mode, words in ((5, "since Linux 5.15"), (6, "since Linux 6.9")):
        error = refusal.refusal(Request("set_mempolicy", mode=mode, nodes=(0,)), errno.EINVAL)
        assert isinstance(error, KernelTooOld)
        assert words in error.cause
    flagged = Request("set_mempolicy", mode=2 | 1 << 13, nodes=(0,))
    error = refusal.refusal(flagged, errno.EINVAL)
    assert isinstance(error, KernelTooOld)
    assert "5.12" in error.cause


def test_enosys_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def kind(call: str, *, numa: bool, seccomp_mode: bool) -> type[PolicyError]:
        monkeypatch.setattr(refusal, "_kernel_has_numa", lambda: numa)
        monkeypatch.setattr(refusal, "has_seccomp_filter", lambda: seccomp_mode)
        return type(refusal.refusal(Request(call), errno.ENOSYS))

    home = "set_mempolicy_home_node"
    assert kind("mbind", numa=False, seccomp_mode=True) is NoNuma
    assert kind("mbind", numa=True, seccomp_mode=False) is Filtered
    assert kind(home, numa=True, seccomp_mode=False) is KernelTooOld
    assert kind(home, numa=True, seccomp_mode=True) is Filtered


@pytest.mark.parametrize(
    ("request_", "number", "kind"),
    [
        (Request("mbind", nodes=(1,)), errno.EIO, Misplaced),
        (Request("mbind"), errno.ENOMEM, NoMemory),
        (Request("move_pages", nodes=(1,)), errno.EACCES, OutsideCpuset),
        (Request("move_pages", nodes=(1,)), errno.ENODEV, NoSuchNode),
        (Request("migrate_pages", pid=7), errno.EPERM, NotPermitted),
        (Request("set_mempolicy"), errno.EXDEV, PolicyError),
    ],
)
@live
def test_rarer_answers(request_: Request, number: int, kind: type[PolicyError]) -> None:
    error = refusal.refusal(request_, number)
    assert type(error) is kind
    assert error.errno == number
    assert isinstance(error, OSError)


@given(
    st.sampled_from(
        ["mbind", "set_mempolicy", "get_mempolicy", "move_pages", "migrate_pages", "other"]
    ),
    st.integers(1, 133),
    st.integers(0, 1 << 16),
    st.frozensets(st.integers(0, 2000), max_size=4),
    st.integers(0, 1 << 64),
    st.integers(0, 15),
)
def test_every_errno_becomes_an_error_with_a_cause_and_a_fix(
    call: str, number: int, mode: int, nodes: frozenset[int], start: int, flags: int
) -> None:
    asked = Request(call, mode, tuple(sorted(nodes)), start, SIZE, flags)
    error = refusal.refusal(asked, number)
    assert (error.call, error.errno) == (call, number)
    assert error.cause
    assert error.fix
    assert "\n" not in str(error)


def _onto(asked: Sequence[int], allowed: Sequence[int]) -> set[int]:
    """bitmap_fold() and bitmap_onto() of lib/bitmap.c, as they are described there."""
    size = len(allowed)
    folded = [False] * size
    for bit in asked:
        folded[bit % size] = True
    found, position = set(), 0
    for bit in range(max(allowed) + 1):
        if bit in allowed:
            if folded[position]:
                found.add(bit)
            position += 1
    return found


@given(
    st.lists(st.integers(0, 40), max_size=8),
    st.lists(st.integers(0, 40), min_size=1, max_size=8, unique=True),
)
def test_relative_nodes_are_those_of_the_kernel(asked: list[int], allowed: list[int]) -> None:
    assert set(relative_nodes(asked, allowed)) == _onto(asked, allowed)
    assert relative_nodes(asked, ()) == ()
