"""The ``numadoctor`` command, and ``python -m numadoctor``."""

import gc
import sys
from typing import NoReturn

# A command makes some ten thousand objects, keeps them and ends: to look for cycles among them
# seven hundred at a time takes longer than any cycle is worth.
_OBJECTS_BETWEEN_COLLECTIONS = 100_000


def main() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    if sys.argv[1:2] == ["maps"]:
        from numadoctor.placement.ahead import begin

        begin(sys.argv[2:])
    from numadoctor.cli import main as run

    try:
        run()
    finally:
        # Python looks for cycles once more at its end. What a process that ends has in memory
        # needs no looking at.
        gc.freeze()


if __name__ == "__main__":
    main()
