"""The kernel's log: what it says of processes that it killed for want of memory."""

import errno
import os
from typing import Any

from numadoctor.model import Denied, Undecided, Unreadable

DEVICE = "/dev/kmsg"

# Longer than any record (CONSOLE_EXT_LOG_MAX in kernel/printk/printk.c).
_RECORD = 8192

# The kernel's buffer holds some 10,000 records; a device that never ends is none.
_MOST = 200_000


def oom_lines() -> dict[str, Any]:
    """The log's lines about killed processes, as JSON data.

    ``lines`` holds those that begin with ``oom-kill:``, oldest first; ``records`` is
    the number of records looked at: the log keeps the last few thousand. ``visible``
    is false where there is no such device, as in most containers.

    :raises Denied: kernel.dmesg_restrict, or no right
    """
    try:
        descriptor = os.open(DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {"visible": False, "lines": [], "records": 0}
    except OSError as error:
        raise _error(error) from None
    lines: list[str] = []
    records = 0
    try:
        while records < _MOST:
            try:
                record = os.read(descriptor, _RECORD)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten while we read: go on with the next
                    continue
                raise _error(error) from None
            if not record:
                break
            records += 1
            text = record.partition(b";")[2].split(b"\n")[0]
            if text.startswith(b"oom-kill:"):
                lines.append(text.decode("utf-8", "backslashreplace"))
    finally:
        os.close(descriptor)
    return {"visible": True, "lines": lines, "records": records}


def _error(error: OSError) -> Undecided:
    number = error.errno or 0
    if number in (errno.EACCES, errno.EPERM):
        return Denied(DEVICE, number, "", "run as root, or with CAP_SYSLOG")
    return Unreadable(DEVICE, number)
