"""How fast a pool is brought in beside memhog and beside one madvise call; what looking costs.

All in one run and in turn, so that a machine whose speed drifts favours none.
The limits are those the project promises: prefault with two threads at least
0.95 times as fast as the faster peer, verification at most 5 % of the prefault.
"""

import argparse
import ctypes
import mmap
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from numadoctor.allocator import Pool
from numadoctor.kernel.process import libc

POPULATE_WRITE = 23


def pool(size: int, threads: int) -> tuple[float, float]:
    """Seconds to bring a private pool in, and to verify it."""
    with Pool(size, backing="private", mode="interleave") as made:
        seconds = made.prefault(threads).seconds
        start = time.perf_counter()
        made.verify()
        return seconds, time.perf_counter() - start


def one_call(size: int) -> float:
    """Seconds of one MADV_POPULATE_WRITE over private memory; NaN where there is no such advice."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    start = time.perf_counter()
    failed = libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), POPULATE_WRITE)
    seconds = time.perf_counter() - start
    memory.close()
    return float("nan") if failed else seconds


def memhog(size: int) -> float:
    """Seconds of numactl's memhog, its start included (a few milliseconds); NaN without it."""
    if not shutil.which("memhog"):
        return float("nan")
    start = time.perf_counter()
    command = ["memhog", "-r1", f"{size >> 20}m"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    size = int(options.gib * (1 << 30))
    peers: dict[str, Callable[[int], float]] = {"memhog": memhog, "one madvise call": one_call}
    ours: list[float] = []
    looks: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(options.runs):
        seconds, look = pool(size, options.threads)
        ours.append(seconds)
        looks.append(look)
        for name, peer in peers.items():
            theirs[name].append(peer(size))
    gib = size / (1 << 30)
    print(f"{gib:g} GiB private, medians of {options.runs} runs, Python {sys.version.split()[0]}")
    mine = statistics.median(ours)
    print(f"{f'pool, {options.threads} threads':24} {mine:6.2f} s  {gib / mine:6.2f} GiB/s")
    fastest = []
    for name, times in theirs.items():
        if times[0] != times[0]:
            print(f"{name:24} not to be had here")
            continue
        median = statistics.median(times)
        fastest.append(median)
        print(f"{name:24} {median:6.2f} s  {gib / median:6.2f} GiB/s")
    speed = min(fastest) / mine
    share = statistics.median(look / seconds for look, seconds in zip(looks, ours, strict=True))
    print(f"speed beside the faster peer: {speed:.2f}x (at least 0.95x)")
    print(f"verification: {100 * share:.1f} % of the prefault (at most 5 %)")
    return int(speed < 0.95 or share > 0.05)


if __name__ == "__main__":
    sys.exit(main())
