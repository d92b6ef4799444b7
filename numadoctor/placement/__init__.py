"""Where the pages of processes are: sampled, counted by the kernel, or asked one by one."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numadoctor.placement.placing import HOLD as HOLD
    from numadoctor.placement.placing import SAMPLES as SAMPLES
    from numadoctor.placement.placing import place as place

__all__ = ["HOLD", "SAMPLES", "place"]


def __getattr__(name: str) -> object:
    """Load what is asked for when it is: ``ahead`` begins to read before the rest is loaded."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from numadoctor.placement import placing

    value: object = getattr(placing, name)
    globals()[name] = value
    return value
