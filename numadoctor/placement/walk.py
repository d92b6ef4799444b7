"""Reads numa_maps of a live process piece by piece, and knows what that costs the process.

The kernel walks the page tables of each mapping under the process's mmap lock.
It lets go of the lock between two reads, and one read walks as many mappings as
fill its buffer: so small reads hold the process for one mapping at a time.
"""

import os
import time
from collections.abc import Callable
from functools import partial

from numadoctor.host.root import READ_LIMIT, error_from
from numadoctor.model import ParseError, TooLarge
from numadoctor.model.placement import Policy
from numadoctor.placement.ahead import Ahead, Grouped, Parts
from numadoctor.placement.asker import Account

SECONDS_PER_PAGE = 25e-9
"""What the walk takes for one page of 4 KiB: 8 GiB took 41 ms, and machines differ."""

# Less than a line, so that a read walks one mapping, two at most: seq_read() in fs/seq_file.c
# fills its buffer until there is as much as was asked for.
_ONE_LINE = 48

# Whoever waits for the lock gets it in that time; after a short walk nobody waited long.
_PAUSE = 0.0001
_SHORT = 0.00002


def read_numa_maps(path: str, account: Account, *, gently: bool) -> bytes:
    """The numa_maps file at ``path``.

    :param gently: hold the process for one mapping at a time, with pauses; slower
    :raises Denied, Missing, Vanished, Unreadable: as any file
    :raises TooLarge: it holds more than READ_LIMIT bytes
    """
    chunks: list[bytes] = []
    size = 0
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            read = partial(os.read, descriptor, _ONE_LINE) if gently else Parts(descriptor).next
            while chunk := _timed(read, account, gently):
                chunks.append(chunk)
                size = _checked(path, size + len(chunk))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise error_from(path, error.errno or 0) from None
    return b"".join(chunks)


def _checked(path: str, size: int) -> int:
    if size > READ_LIMIT:
        raise TooLarge(path, None, f"larger than {READ_LIMIT >> 20} MiB")
    return size


def _timed(read: Callable[[], bytes], account: Account, gently: bool) -> bytes:
    begin = time.perf_counter()
    chunk = read()
    took = time.perf_counter() - begin
    account.call(took)
    if gently and took > _SHORT:
        time.sleep(_PAUSE)
    return chunk


def take(ahead: Ahead, account: Account) -> bytes | Grouped:
    """What was read ahead.

    :raises Denied, Missing, Vanished, Unreadable, TooLarge: as ``read_numa_maps``
    """
    try:
        data = ahead.take()
    except OSError as error:
        raise error_from(ahead.path, error.errno or 0) from None
    if isinstance(data, bytes):
        _checked(ahead.path, len(data))
    while ahead.calls:
        account.call(ahead.calls.pop())
    return data


def first_policy(data: bytes) -> Policy:
    """The policy of the first mapping in numa_maps.

    That is the program's own text, which nobody gives a policy: the kernel shows
    the policy of the task there.

    :raises ParseError: there is no mapping
    """
    from numadoctor.host.parsers import parse_numa_maps, parse_policy

    maps = parse_numa_maps(data.partition(b"\n")[0])
    if not maps.lines:
        raise ParseError("numa_maps", data[:60], "it has no mapping")
    return parse_policy(maps.lines[0].pages.policy)


def task_policy(path: str) -> Policy | None:
    """The policy of a task, from the first line of its numa_maps; None when that is empty.

    Only that mapping is walked.

    :raises Denied, Missing, Vanished, Unreadable: as any file
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            line = b""
            while b"\n" not in line and (chunk := os.read(descriptor, _ONE_LINE)):
                line += chunk
        finally:
            os.close(descriptor)
    except OSError as error:
        raise error_from(path, error.errno or 0) from None
    try:
        return first_policy(line)
    except ParseError:
        return None
