"""Numbers of which some bits are known: what can be said of an argument before the call is made.

The kernel's verifier calls them tnum (kernel/bpf/tnum.c); here they are as wide as Python's.
"""

from typing import NamedTuple


class Bits(NamedTuple):
    """A number whose bits are known but for those in ``unknown``, which are 0 in ``value``."""

    value: int
    unknown: int

    @property
    def known(self) -> bool:
        """Whether it is one number."""
        return not self.unknown

    @property
    def least(self) -> int:
        """No number it may be is less."""
        return self.value

    @property
    def most(self) -> int:
        """No number it may be is more."""
        return self.value | self.unknown

    def __and__(self, mask: int) -> "Bits":
        """Of it, the bits of ``mask``."""
        return Bits(self.value & mask, self.unknown & mask)

    def __rshift__(self, count: int) -> "Bits":
        return Bits(self.value >> count, self.unknown >> count)

    def equals(self, number: int) -> bool | None:
        """Whether it is that number; None if it may be or not."""
        if (self.value ^ number) & ~self.unknown:
            return False
        return True if self.known else None

    def greater(self, number: int) -> bool | None:
        """Whether it is greater than that number."""
        if self.least > number:
            return True
        return False if self.most <= number else None

    def at_least(self, number: int) -> bool | None:
        """Whether it is that number or greater."""
        return self.greater(number - 1)


def exactly(number: int) -> Bits:
    """That number."""
    return Bits(number, 0)


def any_of(width: int) -> Bits:
    """Any number of that many bits."""
    return Bits(0, (1 << width) - 1)


def invert(answer: bool | None) -> bool | None:
    """Not; what is not known stays so."""
    return None if answer is None else not answer
