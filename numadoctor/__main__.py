"""The ``numadoctor`` command, and ``python -m numadoctor``."""

import gc
import sys
from typing import NoReturn

from numadoctor.placement.ahead import begin

# A command makes some ten thousand objects, keeps them and ends: to look for cycles among them
# seven hundred at a time takes longer than any cycle is worth.
_OBJECTS_BETWEEN_COLLECTIONS = 100_000


def main() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    begin(sys.argv[1:])
    from numadoctor.cli import main as run

    run()


if __name__ == "__main__":
    main()
