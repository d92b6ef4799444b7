"""How long a command takes beside the import of click alone.

Commands and peer run in turn, A B A B, so that a machine whose speed drifts
does not favour either; printed are the medians and the median of the ratios
pair by pair. The limits are those the project promises.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from installed import installed

# An installed program has its bytecode beside it; without, compiling it is what would be measured.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
CASES = [("syscalls", 2.2), ("check", 6.0)]


def seconds(command: list[str]) -> float:
    """Wall time of one run; its output is thrown away."""
    start = time.perf_counter()
    subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT, check=False
    )
    return time.perf_counter() - start


def keeps(programs: Path, command: str, limit: float, runs: int) -> bool:
    """Whether a command keeps to its limit."""
    ours = [str(programs / "numadoctor"), command]
    peer = [str(programs / "python"), "-c", "import click"]
    seconds(ours), seconds(peer)
    pairs = [(seconds(ours), seconds(peer)) for _ in range(runs)]
    ratio = statistics.median(mine / theirs for mine, theirs in pairs)
    mine, theirs = (statistics.median(column) * 1e3 for column in zip(*pairs, strict=True))
    name = f"numadoctor {command}"
    print(f"{name:22} {mine:6.0f} ms {theirs:6.0f} ms {ratio:6.2f}x {limit:6.1f}x")
    return ratio <= limit


def main() -> int:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    print(f"medians of {runs} paired runs, Python {sys.version.split()[0]}")
    print(f"{'command':22} {'command':>9} {'click':>9} {'ratio':>7} {'limit':>7}")
    with installed() as programs:
        kept = [keeps(programs, command, limit, runs) for command, limit in CASES]
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main())
