"""A pool of memory that is spread over nodes properly: the reference to copy into an engine."""

from numadoctor.allocator.backing import Backing
from numadoctor.allocator.handle import Handle
from numadoctor.allocator.modes import MODES
from numadoctor.allocator.pool import Pool, PoolError

__all__ = ["MODES", "Backing", "Handle", "Pool", "PoolError"]
