"""The same memory in another order."""

from numadoctor.model.placement import ProcessPlacement, Remainder
from numadoctor.placement.measure import Remainders


def by_kind(placement: ProcessPlacement) -> tuple[Remainder, ...]:
    """All memory of a placement by kind of mapping, most first."""
    sums = Remainders()
    for one in placement.mappings:
        sums.add_placement(one)
    for rest in placement.remainders:
        sums.add(rest.kind, rest.mappings, rest.method, rest.by_node, rest.samples)
    return sums.result()
