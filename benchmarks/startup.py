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

BIN = Path(sys.executable).parent
# An installed program has its bytecode beside it; without, compiling it is what would be measured.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
PEER = [sys.executable, "-c", "import click"]
CASES = [
    ("numadoctor syscalls", [str(BIN / "numadoctor"), "syscalls"], 2.2),
    ("numadoctor check", [str(BIN / "numadoctor"), "check"], 6.0),
]


def seconds(command: list[str]) -> float:
    """Wall time of one run; its output is thrown away."""
    start = time.perf_counter()
    subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT, check=False
    )
    return time.perf_counter() - start


def main() -> int:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    missed = 0
    print(f"medians of {runs} paired runs, Python {sys.version.split()[0]}")
    print(f"{'command':22} {'command':>9} {'click':>9} {'ratio':>7} {'limit':>7}")
    for name, command, limit in CASES:
        seconds(command), seconds(PEER)
        pairs = [(seconds(command), seconds(PEER)) for _ in range(runs)]
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
        missed += ratio > limit
        print(f"{name:22} {ours * 1e3:6.0f} ms {theirs * 1e3:6.0f} ms {ratio:6.2f}x {limit:6.1f}x")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
