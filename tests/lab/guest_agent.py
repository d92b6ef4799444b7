"""What answers requests in a guest whose first process is systemd: a service on the serial line."""

import json
import os
import sys

from tests.lab import guest_init


def main() -> None:
    """Answer as ``guest_init`` does, until the line closes."""
    guest_init.quiet()
    guest_init.answer({"ready": {"kernel": os.uname().release, "mounted": []}})
    for line in sys.stdin:
        request = json.loads(line)
        guest_init.answer(
            guest_init.call(
                request["call"], request["arguments"], request["keywords"], request["limit"]
            )
        )


if __name__ == "__main__":
    main()
