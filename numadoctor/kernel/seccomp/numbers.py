"""Which system calls are newer than others: what runc's ENOSYS stub goes by.

Sources: the kernel's tables (arch/x86/entry/syscalls/*.tbl, include/uapi/asm-generic/unistd.h).
"""

from collections.abc import Iterable
from typing import Final

from numadoctor.kernel.abi import Abi
from numadoctor.kernel.facts import HOME_NODE

# Since Linux 5.1 a new call has one number everywhere (but for the offsets of mips and
# x32); these begin with 424.
_COMMON_START: Final = 424
_COMMON: Final = (
    "pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen "
    "fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2 "
    "process_madvise epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset "
    "landlock_add_rule landlock_restrict_self memfd_secret process_mrelease futex_waitv "
    "set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake futex_wait "
    "futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal "
    "setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr file_setattr"
)

_HOME_NODE: Final = 450
"""The newest call that libseccomp 2.5.4 (April 2022) knows; 2.5.5 knows 456, 2.6.0 more."""

# Older calls, for the architectures whose tables are here; "-" is a hole.
_X86_64: Final = (
    237,
    "mbind set_mempolicy get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify "
    "mq_getsetattr kexec_load waitid add_key request_key keyctl ioprio_set ioprio_get inotify_init "
    "inotify_add_watch inotify_rm_watch migrate_pages openat mkdirat mknodat fchownat futimesat "
    "newfstatat unlinkat renameat linkat symlinkat readlinkat fchmodat faccessat pselect6 ppoll "
    "unshare set_robust_list get_robust_list splice tee sync_file_range vmsplice move_pages "
    "utimensat epoll_pwait signalfd timerfd_create eventfd fallocate timerfd_settime "
    "timerfd_gettime accept4 signalfd4 eventfd2 epoll_create1 dup3 pipe2 inotify_init1 preadv "
    "pwritev rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init fanotify_mark prlimit64 "
    "name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg setns getcpu "
    "process_vm_readv process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 "
    "seccomp getrandom memfd_create kexec_file_load bpf execveat userfaultfd membarrier mlock2 "
    "copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc pkey_free statx io_pgetevents rseq",
)
_I386: Final = (
    274,
    "mbind get_mempolicy set_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify "
    "mq_getsetattr kexec_load waitid - add_key request_key keyctl ioprio_set ioprio_get "
    "inotify_init inotify_add_watch inotify_rm_watch migrate_pages openat mkdirat mknodat fchownat "
    "futimesat fstatat64 unlinkat renameat linkat symlinkat readlinkat fchmodat faccessat pselect6 "
    "ppoll unshare set_robust_list get_robust_list splice sync_file_range tee vmsplice move_pages "
    "getcpu epoll_pwait utimensat signalfd timerfd_create eventfd fallocate timerfd_settime "
    "timerfd_gettime signalfd4 eventfd2 epoll_create1 dup3 pipe2 inotify_init1 preadv pwritev "
    "rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init fanotify_mark prlimit64 "
    "name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg setns process_vm_readv "
    "process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp getrandom "
    "memfd_create bpf execveat",
)
_GENERIC: Final = (
    235,
    "mbind get_mempolicy set_mempolicy migrate_pages move_pages rt_tgsigqueueinfo perf_event_open "
    "accept4 recvmmsg - - - - - - - - - - - - - - - - wait4 prlimit64 fanotify_init fanotify_mark "
    "name_to_handle_at open_by_handle_at clock_adjtime syncfs setns sendmmsg process_vm_readv "
    "process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp getrandom "
    "memfd_create bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 "
    "pkey_mprotect pkey_alloc pkey_free statx io_pgetevents rseq kexec_file_load",
)
_X32: Final = (
    512,
    "rt_sigaction rt_sigreturn ioctl readv writev recvfrom sendmsg recvmsg execve ptrace "
    "rt_sigpending rt_sigtimedwait rt_sigqueueinfo sigaltstack timer_create mq_notify kexec_load "
    "waitid set_robust_list get_robust_list vmsplice move_pages preadv pwritev rt_tgsigqueueinfo "
    "recvmmsg sendmmsg process_vm_readv process_vm_writev setsockopt getsockopt io_setup io_submit "
    "execveat preadv2 pwritev2",
)
_OLDER: Final = {
    "x86_64": _X86_64,
    "x32": _X32,
    "i386": _I386,
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
    "loongarch64": _GENERIC,
}

# Where a name that is in no table is that of an older call, or of none.
_COMPLETE: Final = ("x86_64", "aarch64", "riscv64", "loongarch64")


class Newest:
    """How the newest call that a profile names compares with a NUMA call."""

    def __init__(self, names: Iterable[str], abi: Abi) -> None:
        """Of the profile that lists ``names``, in the table of ``abi``."""
        table = _table(abi)
        self._offset = _offset(abi)
        numbers = {name: table.get(name) for name in names}
        self._numbers = [number for number in numbers.values() if number is not None]
        strangers = any(number is None for number in numbers.values())
        self._undecided = strangers and abi.name not in _COMPLETE

    def is_older_than(self, call: int) -> bool | None:
        """Whether the profile names no call with a larger number; None where that cannot be told.

        Some calls are known to new versions of libseccomp alone, and runc
        looks at those that it knows: a profile that names such ones, and no
        other with a larger number, does not decide.
        """
        newer = [number for number in self._numbers if number > call]
        if any(self._known_to_all(number) for number in newer):
            return False
        if newer or (self._undecided and call - self._offset < _COMMON_START):
            return None
        return True

    def _known_to_all(self, number: int) -> bool:
        plain = number - self._offset
        return plain <= _HOME_NODE or plain >= _X32[0]


def _offset(abi: Abi) -> int:
    return (abi.numbers[HOME_NODE] or _HOME_NODE) - _HOME_NODE


def _table(abi: Abi) -> dict[str, int]:
    offset = _offset(abi)
    table = {name: _COMMON_START + offset + place for place, name in enumerate(_COMMON.split())}
    start, names = _OLDER.get(abi.name, (0, ""))
    table |= {
        name: start + offset + place for place, name in enumerate(names.split()) if name != "-"
    }
    return table | {name: number for name, number in abi.numbers.items() if number is not None}
