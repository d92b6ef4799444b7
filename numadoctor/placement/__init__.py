"""Where the pages of processes are: sampled, counted by the kernel, or asked one by one."""

from numadoctor.placement.place import HOLD, SAMPLES, place

__all__ = ["HOLD", "SAMPLES", "place"]
