"""The ``numadoctor`` command, and ``python -m numadoctor``."""

import gc
import os
import sys
from typing import NoReturn

# A command makes some ten thousand objects, keeps them and ends: to look for cycles among them
# seven hundred at a time takes longer than any cycle is worth.
_OBJECTS_BETWEEN_COLLECTIONS = 100_000


def main() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    try:
        if sys.argv[1:2] == ["maps"]:
            from numadoctor.placement.ahead import begin

            begin(sys.argv[2:])
        from numadoctor.cli import main as run

        run()
    # What comes before the command line knows how to fail: while it is loaded.
    except KeyboardInterrupt:
        _fail("interrupted")
    except Exception as error:
        if os.environ.get("NUMADOCTOR_DEBUG"):
            raise
        text = f"{type(error).__name__} {error}"
        reason = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        _fail(f"crashed: {reason} (NUMADOCTOR_DEBUG=1 shows the traceback)")
    finally:
        # Python looks for cycles once more at its end. What a process that ends has in memory
        # needs no looking at.
        gc.freeze()


def _fail(message: str) -> NoReturn:
    try:
        os.write(2, f"numadoctor: {message}\n".encode("ascii", "backslashreplace"))
    finally:
        # Standard error may be full or closed. ExitCode.USAGE, without loading it.
        sys.exit(2)


if __name__ == "__main__":
    main()
