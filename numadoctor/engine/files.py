"""Files that a site writes for numadoctor: read with a bound, and complained of in one line."""

from numadoctor.host.given import read_given

# Thousands of waivers fit; what is larger is another file.
_LARGEST = 16 << 20


class BadFile(ValueError):
    """A file cannot be used: which, and what is wrong where in it."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(f"{file}: {' '.join(reason.split())}")


def read_text(file: str) -> str:
    """The text of ``file``, which may be a pipe (``<(…)``).

    :raises BadFile: it cannot be read, is too large, or is no UTF-8
    """
    try:
        return read_given(file, _LARGEST).decode()
    except OSError as error:
        raise BadFile(file, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadFile(file, f"not UTF-8: byte {error.start + 1}") from None
