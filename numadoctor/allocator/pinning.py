"""Keeps a pool in memory (mlock) and registers it for a GPU's DMA (cudaHostRegister)."""

import ctypes
import errno
import os
from functools import lru_cache
from typing import Any

from numadoctor.kernel.process import libc
from numadoctor.model import Evidence, Finding, Fix, info, warn
from numadoctor.model.units import amount

libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

# CUDA Runtime API, cudaHostRegister: portable to all contexts.
_PORTABLE = 1
_RUNTIMES = ("libcudart.so", "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0")


def lock(address: int, length: int) -> Finding | None:
    """Lock the range in memory; the finding says why not, where it is refused."""
    import resource

    if libc.mlock(address, length) == 0:
        return None
    number = ctypes.get_errno()
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "unlimited" if soft == resource.RLIM_INFINITY else amount(soft)
    # mlock(2): ENOMEM and EPERM are both answered for the limit, by its value.
    short = number in (errno.ENOMEM, errno.EPERM) and soft != resource.RLIM_INFINITY
    return warn(
        f"the pool could not be locked in memory: {os.strerror(number)} (RLIMIT_MEMLOCK {limit})",
        subject="pool",
        cause="It can be swapped out." if short else "",
        evidence=[Evidence("mlock", os.strerror(number))],
        fixes=(
            Fix("docker", "--ulimit memlock=-1:-1", needs_restart=True),
            Fix("systemd", "LimitMEMLOCK=infinity", True, True, True),
            Fix("any", "ulimit -l unlimited, as far as the hard limit allows", needs_restart=True),
        ),
    )


@lru_cache(maxsize=1)
def _runtime() -> Any:
    for name in _RUNTIMES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def register(address: int, length: int) -> Finding | None:
    """Register the range with CUDA; the finding says why not, where it cannot be."""
    runtime = _runtime()
    if runtime is None:
        return info(
            "the pool is not registered with CUDA: libcudart is not to be found",
            subject="pool",
            cause="Copies to the GPU go through a staging buffer of the driver.",
            evidence=[Evidence("dlopen", ", ".join(_RUNTIMES))],
        )
    code = runtime.cudaHostRegister(ctypes.c_void_p(address), ctypes.c_size_t(length), _PORTABLE)
    if code == 0:
        return None
    text = _text(runtime, code)
    return warn(
        f"the pool could not be registered with CUDA: {text}",
        subject="pool",
        evidence=[Evidence("cudaHostRegister", f"{code}: {text}")],
        fixes=(Fix("docker", "--ulimit memlock=-1:-1 --gpus all", needs_restart=True),),
    )


def _text(runtime: Any, code: int) -> str:
    try:
        runtime.cudaGetErrorString.restype = ctypes.c_char_p
        return (runtime.cudaGetErrorString(code) or b"").decode("utf-8", "backslashreplace")
    except AttributeError:
        return f"error {code}"


def unregister(address: int) -> None:
    """Take the registration back; the driver does so itself when the process ends."""
    runtime = _runtime()
    if runtime is not None:
        runtime.cudaHostUnregister(ctypes.c_void_p(address))
