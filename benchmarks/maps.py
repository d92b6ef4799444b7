"""How long `numadoctor maps` takes beside `numastat -p`, and how much memory.

In turn, so that a machine whose speed drifts favours neither; printed are the
medians and the median of the ratios pair by pair. The limits are those the
project promises: the exact way on 40,000 mappings at most 2.5 times numastat
and 300 MB, the sampled way on 16 GiB half a second in all.
"""

import argparse
import os
import shutil
import statistics
import sys

from installed import installed
from victims import GIB, mappings, pause, process, run, shared_pages

RATIO, MEGABYTES, SECONDS = 2.5, 300, 0.5


def exact(numadoctor: str, count: int, rounds: int) -> bool:
    """Whether counting the pages of so many mappings keeps to its limits."""
    with process(lambda: mappings(count), pause) as pid:
        ours, peer = [numadoctor, "maps", "--exact", str(pid)], ["numastat", "-p", str(pid)]
        run(ours), run(peer)
        pairs = [(run(ours), run(peer)) for _ in range(rounds)]
    ratio = statistics.median(mine[0] / theirs[0] for mine, theirs in pairs)
    mine = statistics.median(mine[0] for mine, _ in pairs)
    theirs = statistics.median(theirs[0] for _, theirs in pairs)
    memory = max(mine[1] for mine, _ in pairs) / 1000
    print(f"| maps --exact, {count:,} mappings | {mine * 1e3:.0f} ms | {memory:.0f} MB |")
    print(f"| numastat -p | {theirs * 1e3:.0f} ms | |")
    print(f"| ratio | {ratio:.2f} (limit {RATIO}) | (limit {MEGABYTES} MB) |")
    return ratio <= RATIO and memory <= MEGABYTES


def sampled(numadoctor: str, gib: int, rounds: int) -> bool:
    """Whether sampling so much memory keeps to its limit."""
    with process(lambda: shared_pages(gib * GIB), pause) as pid:
        ours = [numadoctor, "maps", "--sampled", str(pid)]
        run(ours)
        seconds = statistics.median(run(ours)[0] for _ in range(rounds))
    print(
        f"| maps --sampled, {gib} GiB | {seconds * 1e3:.0f} ms (limit {SECONDS * 1e3:.0f} ms) | |"
    )
    return seconds <= SECONDS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mappings", type=int, default=40_000)
    parser.add_argument("--gib", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    if not shutil.which("numastat"):
        print("numastat (package numactl) is needed beside us", file=sys.stderr)
        return 2
    python = sys.version.split()[0]
    print(f"medians of {options.rounds} rounds, Python {python}, Linux {os.uname().release}\n")
    print("| what | time | memory |\n|---|---:|---:|")
    with installed() as programs:
        numadoctor = str(programs / "numadoctor")
        kept = [
            exact(numadoctor, options.mappings, options.rounds),
            sampled(numadoctor, options.gib, options.rounds),
        ]
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main())
