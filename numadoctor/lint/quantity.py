"""Quantities of Kubernetes (``500m``, ``64Gi``): a grammar of their own, in which G is 10**9."""

import re
from typing import TYPE_CHECKING

from numadoctor.model import ParseError

if TYPE_CHECKING:
    from fractions import Fraction

_QUANTITY = re.compile(
    r"([+-]?)([0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})"
    r"(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]{1,2}))?",
    re.ASCII,
)
_BINARY = "KMGTPE"
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def parse_quantity(text: str) -> "Fraction":
    """The number that a quantity stands for, exactly; of memory it is bytes, of CPUs CPUs.

    Ki to Ei are powers of 1024; k to E, and m, u and n below one, powers of 1000; case matters.

    Source: k8s.io/apimachinery/pkg/api/resource, quantity.go.

    :raises ParseError: it is none
    """
    from fractions import Fraction

    match = _QUANTITY.fullmatch(text.strip())
    if not match:
        raise ParseError("quantity", text, "Kubernetes takes 64Gi, 64G (10**9), 500m")
    sign, number, binary, decimal, exponent = match.groups()
    value = Fraction(f"0{number}0" if "." in number else number)
    if binary:
        value *= 1024 ** (_BINARY.index(binary[0]) + 1)
    else:
        value *= Fraction(10) ** (_DECIMAL[decimal] if decimal else int(exponent or 0))
    return -value if sign == "-" else value
