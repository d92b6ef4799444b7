"""How long a process waits for an mmap while somebody looks where its memory is.

The target holds N GiB of shared memory in pages of 4 KiB and maps and unmaps a
page all the time; printed is the longest that took, medians of paired runs. The
limits are those the project promises: under `check --pid` at most a fiftieth of
that under `numastat -p` at 8 GiB, and no more than 1.5 times as long at 16 GiB
as at 2.
"""

import argparse
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from victims import GIB, NUMADOCTOR, Stalls, process, run, shared_pages

AGAINST, GROWTH = 1 / 50, 1.5
OURS = ("numadoctor maps", "numadoctor check --pid")


def lookers(pid: int) -> dict[str, Callable[[], object]]:
    """Who looks, by name."""
    path = f"/proc/{pid}/numa_maps"
    return {
        "nobody": lambda: time.sleep(0.3),
        "numastat -p": lambda: run(["numastat", "-p", str(pid)]),
        "cat numa_maps": lambda: Path(path).read_bytes(),
        "numadoctor maps --exact": lambda: run([NUMADOCTOR, "maps", "--exact", str(pid)]),
        "numadoctor maps": lambda: run([NUMADOCTOR, "maps", str(pid)]),
        "numadoctor check --pid": lambda: run([NUMADOCTOR, "check", "--pid", str(pid)]),
    }


def measure(gib: int, rounds: int) -> dict[str, float]:
    """By who looks: seconds of the longest stall, medians."""
    stalls = Stalls()
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) > 1:
        # The target has a CPU of its own, and so has who looks.
        os.sched_setaffinity(0, cpus[1:])

    def loop() -> None:
        os.sched_setaffinity(0, cpus[:1])
        stalls.loop()

    with process(lambda: shared_pages(gib * GIB), loop) as pid:
        who = lookers(pid)
        found: dict[str, list[float]] = {name: [] for name in who}
        for turn in range(rounds + 1):
            for name, look in who.items():
                seconds = stalls.during(look)
                if turn:  # the first round warms up
                    found[name].append(seconds)
    os.sched_setaffinity(0, cpus)
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=int, nargs="+", default=[2, 8, 16])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    if not shutil.which("numastat"):
        print("numastat (package numactl) is needed beside us", file=sys.stderr)
        return 2
    table = {gib: measure(gib, options.rounds) for gib in options.gib}
    heading = " | ".join(f"{gib} GiB" for gib in table)
    print(f"longest mmap in ms, medians of {options.rounds} rounds, Linux {os.uname().release}\n")
    print(f"| who looks | {heading} |")
    print(f"|---|{'---:|' * len(table)}")
    for name in next(iter(table.values())):
        print(f"| {name} | {' | '.join(f'{row[name] * 1e3:.3f}' for row in table.values())} |")
    print()
    missed = 0
    if 8 in table:
        for name in OURS:
            ratio = table[8][name] / table[8]["numastat -p"]
            missed += ratio > AGAINST
            print(f"{name} at 8 GiB: 1/{1 / ratio:.0f} of numastat (limit 1/{1 / AGAINST:.0f})")
    if 2 in table and 16 in table:
        for name in OURS:
            ratio = table[16][name] / table[2][name]
            missed += ratio > GROWTH
            print(f"{name} at 16 GiB: {ratio:.2f} times that at 2 GiB (limit {GROWTH})")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
