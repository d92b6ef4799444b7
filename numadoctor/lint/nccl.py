"""NCCL's topology files, with the places of what is in them."""

import re
from dataclasses import dataclass

from numadoctor.host.parsers.nccl import NcclTopology, parse_nccl_topology
from numadoctor.lint.nodes import Refused
from numadoctor.model import Location, ParseError


@dataclass(frozen=True)
class Topology:
    """An NCCL topology file, and its lines for places in it."""

    file: str
    nccl: NcclTopology
    lines: list[str]

    def place(self, line: int, attribute: str) -> Location:
        """Where an attribute of the element stands that begins on a line."""
        # expat tells where an element begins; its attributes may stand below.
        for number in range(line, min(line + 8, len(self.lines) + 1)):
            at = self.lines[number - 1].find(f"{attribute}=")
            if at >= 0:
                return Location(self.file, number, at + 1)
        return Location(self.file, line, 1)


def parse_nccl(text: str, path: str) -> Topology:
    """A topology file.

    :raises Refused: it is none
    """
    try:
        return Topology(path, parse_nccl_topology(text.encode()), text.split("\n"))
    except ParseError as error:
        place = re.search(r"line (\d+)(?:, column (\d+))?", error.reason)
        line = int(place[1]) if place else None
        column = int(place[2]) + 1 if place and place[2] else None
        raise Refused(f"no NCCL topology: {error.reason}", line, column) from None
