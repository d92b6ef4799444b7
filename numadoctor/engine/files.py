"""Files that a site writes for numadoctor: read with a bound, and complained of in one line."""

from numadoctor.host.given import open_given

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
        with open_given(file) as stream:
            data = stream.read(_LARGEST + 1)
    except OSError as error:
        raise BadFile(file, f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise BadFile(file, "cannot be read: no file can have this name") from None
    if len(data) > _LARGEST:
        raise BadFile(file, f"larger than {_LARGEST >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadFile(file, f"not UTF-8: byte {error.start + 1}") from None
