"""Runs a function in a forked child and brings its result back: for what changes a process."""

import json
import os
import signal
from collections.abc import Callable
from typing import Any


def in_child(function: Callable[[], Any]) -> Any:
    """The JSON-able result of ``function`` in a child; a dead child gives its signal's name."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read_end)
            data = json.dumps(function()).encode()
            while data:
                data = data[os.write(write_end, data) :]
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    assert os.waitstatus_to_exitcode(status) == 0, "the child raised: see its traceback above"
    return json.loads(data)
