"""The ways to place a pool, by name."""

from collections.abc import Mapping

from numadoctor.kernel.policy import Mode

FIRST_TOUCH = "first-touch"
MODES: Mapping[str, Mode] = {
    FIRST_TOUCH: Mode.DEFAULT,
    "interleave": Mode.INTERLEAVE,
    "weighted-interleave": Mode.WEIGHTED_INTERLEAVE,
    "bind": Mode.BIND,
    "preferred-many": Mode.PREFERRED_MANY,
}


def checked_mode(mode: str) -> str:
    """The mode itself.

    :raises ValueError: there is none of this name
    """
    if mode not in MODES:
        raise ValueError(f"bad mode {mode!r}: one of {', '.join(MODES)}")
    return mode
