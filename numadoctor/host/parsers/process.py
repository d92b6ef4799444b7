"""What /proc/PID says of one process: status, arguments, environment, limits, control groups."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from numadoctor.host.parsers._text import (
    BLANK,
    count,
    decode,
    error,
    integer,
    kilobytes,
    lines,
    refuse_if_lost,
)
from numadoctor.host.parsers.lists import format_list, mask_digits, parse_list, parse_map
from numadoctor.host.parsers.scalars import parse_hex
from numadoctor.model.errors import ParseError

_Value = TypeVar("_Value")


class ProcStatus(NamedTuple):
    """/proc/PID/status. None (or an empty tuple) where the kernel does not say.

    :ivar state: R running, S sleeping, Z zombie, ...
    :ivar nspid: its ids from the reader's pid namespace to its own, innermost last
    :ivar uids: real, effective, saved and file system user id
    :ivar seccomp: 0 no filter, 1 strict, 2 filter
    :ivar seccomp_filters: number of filters (since Linux 5.9)
    :ivar no_new_privs: 1 when set
    :ivar cap_bnd: capability set as a bit mask, like the other ``cap_`` fields
    :ivar cpus_allowed: from Cpus_allowed, or from Cpus_allowed_list if that alone is there
    :ivar mems_allowed: nodes that the cpuset allows, in the same way
    :ivar mems_allowed_digits: hexadecimal digits of Mems_allowed; times 4 is the
        width in bits of the kernel's nodemask
    :ivar vm_rss: resident memory in bytes, huge pages excluded; the next three are its
        parts (since Linux 4.5)
    :ivar vm_lck: locked memory in bytes
    :ivar vm_swap: swapped out anonymous memory in bytes, shared memory excluded
    :ivar hugetlb_pages: resident huge pages in bytes
    :ivar remarks: fields that could not be understood or that contradict each other
    """

    name: str | None = None
    state: str | None = None
    pid: int | None = None
    tgid: int | None = None
    nspid: tuple[int, ...] = ()
    threads: int | None = None
    uids: tuple[int, ...] = ()
    seccomp: int | None = None
    seccomp_filters: int | None = None
    no_new_privs: int | None = None
    cap_inh: int | None = None
    cap_prm: int | None = None
    cap_eff: int | None = None
    cap_bnd: int | None = None
    cap_amb: int | None = None
    cpus_allowed: tuple[int, ...] | None = None
    mems_allowed: tuple[int, ...] | None = None
    mems_allowed_digits: int | None = None
    vm_rss: int | None = None
    rss_anon: int | None = None
    rss_file: int | None = None
    rss_shmem: int | None = None
    vm_lck: int | None = None
    vm_swap: int | None = None
    hugetlb_pages: int | None = None
    remarks: tuple[str, ...] = ()


class Limit(NamedTuple):
    """One resource limit; None is unlimited.

    :ivar unit: as the file names it: bytes, processes, files; empty if it names none
    """

    soft: int | None
    hard: int | None
    unit: str


class CgroupMembership(NamedTuple):
    """The control group of a process in one hierarchy.

    :ivar hierarchy: 0 for version 2
    :ivar controllers: empty for version 2; ``name=systemd`` for a named hierarchy
    :ivar path: from the root of the hierarchy (of the reader's cgroup namespace)
    """

    hierarchy: int
    controllers: tuple[str, ...]
    path: str


def _name(value: bytes) -> str:
    # Backslash and newline in a name are escaped: proc_task_name() in fs/proc/array.c.
    return decode(value.replace(rb"\\", b"\0").replace(rb"\n", b"\n").replace(b"\0", b"\\"))


def _state(value: bytes) -> str:
    return decode(value[:1])


def _integer(value: bytes) -> int:
    return integer("number", value)


def _integers(value: bytes) -> tuple[int, ...]:
    return tuple(map(_integer, value.split()))


def _kilobytes(value: bytes) -> int:
    size = kilobytes(value) if value.endswith(b"kB") else None
    if size is None:
        raise error("size", value, "it is not a number of kB")
    return size


class _Fields:
    """The fields of a status file; those that cannot be understood leave a remark."""

    def __init__(self, data: bytes) -> None:
        self.remarks: list[str] = []
        self._values: dict[str, bytes] = {}
        for line in lines(data):
            key, colon, value = line.partition(b":")
            if colon:
                self._values.setdefault(decode(key), value.strip(BLANK))

    def read(self, key: str, parse: Callable[[bytes], _Value]) -> _Value | None:
        if key not in self._values:
            return None
        try:
            return parse(self._values[key])
        except ParseError as problem:
            self.remarks.append(f"{key}: {problem}")
            return None

    def allowed(self, key: str) -> tuple[int, ...] | None:
        """The set in ``key``, a map, checked against the list beside it."""
        mask = self.read(key, parse_map)
        listed = self.read(f"{key}_list", parse_list)
        if mask is None:
            return listed
        if listed is not None and listed != mask:
            self.remarks.append(
                f"{key} is {format_list(mask) or 'empty'} but {key}_list is "
                f"{format_list(listed) or 'empty'}: taken from {key}"
            )
        return mask


def parse_status(data: bytes) -> ProcStatus:
    """/proc/PID/status (or a thread's).

    Fields that are absent, or that cannot be understood (see ``remarks``), are
    None. Where the list of allowed CPUs or nodes contradicts the map, the map is
    taken: the kernel itself goes by it.

    Source: proc_pid_status() in fs/proc/array.c; proc(5).

    :raises ParseError: none of the fields is there, as in an empty file
    """
    fields = _Fields(data)
    status = ProcStatus(
        name=fields.read("Name", _name),
        state=fields.read("State", _state),
        pid=fields.read("Pid", _integer),
        tgid=fields.read("Tgid", _integer),
        nspid=fields.read("NSpid", _integers) or (),
        threads=fields.read("Threads", _integer),
        uids=fields.read("Uid", _integers) or (),
        seccomp=fields.read("Seccomp", _integer),
        seccomp_filters=fields.read("Seccomp_filters", _integer),
        no_new_privs=fields.read("NoNewPrivs", _integer),
        cap_inh=fields.read("CapInh", parse_hex),
        cap_prm=fields.read("CapPrm", parse_hex),
        cap_eff=fields.read("CapEff", parse_hex),
        cap_bnd=fields.read("CapBnd", parse_hex),
        cap_amb=fields.read("CapAmb", parse_hex),
        cpus_allowed=fields.allowed("Cpus_allowed"),
        mems_allowed=fields.allowed("Mems_allowed"),
        vm_rss=fields.read("VmRSS", _kilobytes),
        rss_anon=fields.read("RssAnon", _kilobytes),
        rss_file=fields.read("RssFile", _kilobytes),
        rss_shmem=fields.read("RssShmem", _kilobytes),
        vm_lck=fields.read("VmLck", _kilobytes),
        vm_swap=fields.read("VmSwap", _kilobytes),
        hugetlb_pages=fields.read("HugetlbPages", _kilobytes),
        remarks=tuple(fields.remarks),
        # Last: a faulty map has left its remark already.
        mems_allowed_digits=fields.read("Mems_allowed", mask_digits),
    )
    if status == ProcStatus():
        raise error("process status", data, "it has none of the fields")
    return status


def parse_argv(data: bytes) -> tuple[str, ...]:
    """/proc/PID/cmdline: the arguments, or the words of a title that replaced them.

    Arguments end in NUL. A process that rewrote its title (setproctitle) leaves
    one text that ends in none or in many. A kernel thread has none: ().

    Source: get_mm_cmdline() in fs/proc/base.c.
    """
    arguments = data.removesuffix(b"\0").split(b"\0")
    if not any(arguments[1:]):
        return tuple(map(decode, arguments[0].split()))
    return tuple(map(decode, arguments))


def parse_environ(data: bytes) -> dict[str, str]:
    """/proc/PID/environ: the environment the process started with.

    Of variables given twice the first counts, as in getenv(3). Parts without
    ``=`` are left out.
    """
    found: dict[str, str] = {}
    for part in data.split(b"\0"):
        key, equals, value = part.partition(b"=")
        if equals and key:
            found.setdefault(decode(key), decode(value))
    return found


def _limit_value(word: bytes) -> tuple[bool, int | None]:
    """Whether the word is a limit, and its value."""
    number = count(word)
    return number is not None or word == b"unlimited", number


def parse_limits(data: bytes) -> dict[str, Limit]:
    """/proc/PID/limits by the file's own names: ``Max locked memory``.

    Lines that cannot be understood are left out.

    :raises ParseError: there is text and no line of it can be understood
    """
    found = {}
    for line in lines(data):
        parts = line.split()
        unit = b"" if _limit_value(parts[-1])[0] else parts.pop()
        limits = [_limit_value(word) for word in parts[-2:]]
        if len(parts) > 2 and all(known for known, _ in limits):
            name = decode(b" ".join(parts[:-2]))
            found[name] = Limit(limits[0][1], limits[1][1], decode(unit))
    refuse_if_lost("limits", data, bool(found))
    return found


def parse_proc_cgroup(data: bytes) -> tuple[CgroupMembership, ...]:
    """/proc/PID/cgroup, version 1, 2 or both. The path may hold colons.

    Lines that cannot be understood are left out.

    :raises ParseError: there is text and no line of it can be understood
    """
    found = []
    for line in lines(data):
        hierarchy, _, rest = line.partition(b":")
        controllers, _, path = rest.partition(b":")
        number = count(hierarchy)
        if number is not None and path.startswith(b"/"):
            names = tuple(decode(name) for name in controllers.split(b",") if name)
            found.append(CgroupMembership(number, names, decode(path)))
    refuse_if_lost("cgroup membership", data, bool(found))
    return tuple(found)
