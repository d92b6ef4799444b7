"""A pool of memory that is spread over nodes properly: the reference to copy into an engine."""

from numadoctor.allocator.backing import Backing
from numadoctor.allocator.pool import MODES, Handle, Pool, PoolError

__all__ = ["MODES", "Backing", "Handle", "Pool", "PoolError"]
