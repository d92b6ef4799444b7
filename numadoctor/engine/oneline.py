"""How an exception that somebody else's code raised is told."""

_LONGEST = 300


def one_line(error: BaseException) -> str:
    """The kind and the message of ``error`` on one line of bounded length, whatever is in it."""
    try:
        message = str(error)
    except BaseException:  # that ran code of the exception
        message = "its message cannot be had"
    text = f"{type(error).__name__}: {' '.join(message.split())}".removesuffix(": ")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
