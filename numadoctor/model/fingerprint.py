"""Names for findings that survive restarts: what is dealt out anew each time is left out."""

import hashlib
import re
from posixpath import normpath

# In the order in which they are tried. Addresses of PCI devices (0000:c1:00.0), nodemasks
# (00000000,00000003) and keys of SysV segments have at most eight digits in a row, and stay.
_DEALT_OUT = tuple(
    (re.compile(pattern, re.ASCII), replacement)
    for pattern, replacement in (
        (r"\b(pid|tid|pids|tids|process|thread)( |=)[0-9]+", r"\1\2*"),
        (r"/proc/[0-9]+", "/proc/*"),
        (r"/task/[0-9]+", "/task/*"),
        # Names that Python's shared memory, its semaphores, PyTorch and NCCL draw at random.
        (r"\bpsm_[0-9a-f]{8}\b", "psm_*"),
        (r"\bsem\.mp-\w{8}\b", "sem.mp-*"),
        (r"\btorch_[0-9]+_[0-9a-f]+(_[0-9]+)?\b", "torch_*"),
        (r"\bnccl-\w{6}\b", "nccl-*"),
        # Of pods and of containers; both are new with each start.
        (r"(?:\b|(?<=pod))[0-9a-f]{8}([-_])([0-9a-f]{4}\1){3}[0-9a-f]{12}\b", "*"),
        # Addresses and ranges of them, ids of containers.
        (r"\b(0x)?[0-9a-f]{9,64}(-(0x)?[0-9a-f]{9,64})?\b", "*"),
    )
)


def stable(subject: str) -> str:
    """``subject`` without pids, addresses, and names that are drawn at random."""
    for pattern, replacement in _DEALT_OUT:
        subject = pattern.sub(replacement, subject)
    return subject


def fingerprint(check: str, subject: str, file: str = "") -> str:
    """16 hex digits over the check's id, the subject, and for a deployment file its name."""
    if file:
        # It may be part of the subject, and was perhaps given as ./deploy or deploy/.
        subject = subject.replace(file, "")
    told = f"{check}\0{stable(subject)}"
    if file:
        told += f"\0{normpath(file)}"
    # A subject may name a file, whose name may be no UTF-8.
    return hashlib.sha256(told.encode("utf-8", "backslashreplace")).hexdigest()[:16]
