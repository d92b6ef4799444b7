"""Where bound memory is when a driver has pinned it, and what numadoctor says beforehand."""

import json

from tests.lab import guest_facts, guest_pinning
from tests.lab.guest_victims import MIB
from tests.lab.guests import Guest, on

_CHECK = ("check", "--select=K017", "--fail-on=never", "-o", "json")


def verdicts(guest: Guest) -> dict[str, str]:
    findings = json.loads(guest.run(guest_facts.numadoctor, *_CHECK)["stdout"])["findings"]
    return {finding["subject"]: finding["status"] for finding in findings}


@on("x86_64-2n-6.12", "aarch64-2n-6.12")
def test_pinned_memory_stays_where_it_was_bound(guest: Guest) -> None:
    found = guest.run(guest_pinning.pinned, 1, 256 * MIB)
    assert found["before"] == found["after"]
    assert list(found["before"]) == ["1"]
    assert set(verdicts(guest).values()) == {"pass"}


@on("x86_64-movable-6.12")
def test_pinned_memory_leaves_a_node_whose_memory_is_movable(guest: Guest) -> None:
    assert verdicts(guest) == {"node 0": "warn", "node 1": "warn"}
    # What the node has beside its movable zone is enough for that.
    few = guest.run(guest_pinning.pinned, 1, 64 * MIB)
    assert list(few["before"]) == list(few["after"]) == ["1"]
    many = guest.run(guest_pinning.pinned, 1, 600 * MIB)
    assert list(many["before"]) == ["1"]
    assert set(many["after"]) == {"0", "1"}
    moved = many["after"]["0"] * guest.run(guest_facts.process)["page"]
    # Some 400 MiB are not movable, of which the kernel has a part.
    assert moved > 150 * MIB
