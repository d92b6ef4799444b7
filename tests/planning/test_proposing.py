"""A plan keeps its promises on any machine, and the checks of plans agree with it."""

from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from numadoctor.engine.discovery import discover
from numadoctor.engine.runner import run
from numadoctor.model import NodeKind, Status
from numadoctor.model.plan import PoolPolicy, Proposal, Refusal
from numadoctor.planning.intent import plan_data, plan_of
from numadoctor.planning.launchers import LAUNCHERS
from numadoctor.planning.proposing import CannotFit, Wanted, propose
from numadoctor.report.plan import render, render_refusal
from numadoctor.report.terminal import Terminal
from tests.build_fixtures import Device, Machine
from tests.host.machines import host_of, machines

CHECKS = [discover().checks[id] for id in ("P050", "P051", "P052", "P053", "P054")]
MODES = (None, *(policy for policy in PoolPolicy if policy is not PoolPolicy.WEIGHTED))


@st.composite
def with_gpus(draw: st.DrawFn) -> Machine:
    """A machine with some GPUs, some of them on an unknown node, some behind one host bridge."""
    machine = draw(machines())
    ids = [node.id for node in machine.nodes]
    places = draw(st.lists(st.tuples(st.sampled_from((*ids, -1)), st.booleans()), max_size=7))
    devices = tuple(
        Device(
            f"0000:{0x10 + bus:02x}:00.0",
            f"pci0000:{0xE0 + (0 if shared else bus):02x}/0000:{0xE0 + bus:02x}:01.0",
            0x030200,
            0x10DE,
            0x2330,
            node,
        )
        for bus, (node, shared) in enumerate(places)
    )
    return replace(machine, devices=devices)


wanted = st.builds(
    Wanted,
    instances=st.integers(1, 4),
    gpus=st.none() | st.integers(0, 4),
    groups=st.just(()),
    pool_size=st.sampled_from((0, 1 << 20, 65 << 20, 1 << 30, 3 << 30, 900 << 30)),
    policy=st.sampled_from(MODES),
    page_size=st.none() | st.just(2 << 20),
    backing=st.none(),
    keep_cores=st.none() | st.integers(0, 3),
    launchers=st.just(tuple(LAUNCHERS)),
    command=st.just("COMMAND"),
)


@settings(max_examples=120)
@given(with_gpus(), wanted)
def test_what_is_planned_can_be_had(machine: Machine, want: Wanted) -> None:
    host = host_of(machine)
    found: Proposal | Refusal
    try:
        found = propose(host, want)
    except CannotFit as error:
        found = error.refusal
    if isinstance(found, Refusal):
        assert found.reason
        assert "\n" not in found.reason
        assert render_refusal(found, Terminal(60))
        return
    assert render(found, Terminal(60), LAUNCHERS)
    topology = host.topology
    usable = {n.id for n in topology.memory_nodes}
    taken = list(found.reserved_cpus)
    gpus: list[str] = []
    for chosen in found.chosen:
        instance = chosen.instance
        assert instance.cpus
        taken += instance.cpus
        gpus += instance.gpus or ()
        assert set(instance.nodes or ()) <= usable
        for node in instance.nodes or ():
            here = topology.node(node)
            assert here is not None
            assert here.kind not in (NodeKind.GPU, NodeKind.CXL)
        unit = want.page_size or 1
        assert sum(instance.needs.values()) == -(-want.pool_size // unit) * unit
        unknown = any(gpu.node is None for gpu in chosen.gpus)
        assert unknown == bool(chosen.assumed)
        if instance.policy is PoolPolicy.BIND and want.policy is None:
            assert len(instance.nodes or ()) == 1
    assert len(taken) == len(set(taken))
    assert set(taken) <= set(topology.online_cpus)
    assert len(gpus) == len(set(gpus))
    for page in found.huge_pages:
        needs = (chosen.instance.needs.get(page.node, 0) for chosen in found.chosen)
        assert page.needed * page.page_size == sum(needs)
    for budget in found.nodes:
        free = sum(page.free * page.page_size for page in found.huge_pages
                   if page.node == budget.node)  # fmt: skip
        assert budget.planned <= (budget.available or 0) + free


@settings(max_examples=80)
@given(with_gpus(), wanted)
def test_a_plan_is_read_back(machine: Machine, want: Wanted) -> None:
    try:
        plan = propose(host_of(machine), want).plan
    except CannotFit:
        return
    assert plan_of(plan_data(plan)).instances == plan.instances


@settings(max_examples=80)
@given(with_gpus(), wanted)
def test_the_checks_of_plans_agree(machine: Machine, want: Wanted) -> None:
    """Pools of ordinary pages: huge pages are to be made first, and the plan says so."""
    host = host_of(machine)
    try:
        found = propose(host, want._replace(page_size=None))
    except CannotFit:
        return
    host.state("plan", plan_data(found.plan))
    report = run(host, CHECKS)
    wrong = [f for f in report.findings if f.status in (Status.FAIL, Status.ERROR)]
    assert wrong == []
    for finding in report.findings:
        if finding.status is Status.WARN:
            # Page cache may have to go; GPUs of nodes without memory of their own.
            assert finding.id in ("P050", "P051"), finding


@settings(max_examples=60)
@given(with_gpus(), st.integers(1, 3), st.integers(1, 3))
def test_no_other_groups_span_fewer_nodes(machine: Machine, instances: int, gpus: int) -> None:
    """Told from the single GPUs of the machine, without the classes that the search makes."""
    host = host_of(machine)
    try:
        found = propose(host, Wanted(instances, gpus))
    except CannotFit:
        return
    here = {d.address: d.node for d in host.topology.devices if d.kind == "gpu"}
    assert found.proven

    def spans(groups: list[tuple[str, ...]]) -> int:
        total = 0
        for group in groups:
            nodes = [here[address] for address in group]
            known = {node for node in nodes if node is not None}
            total += max(0, len(known) + nodes.count(None) - 1)
        return total

    def divisions(left: tuple[str, ...], count: int) -> list[list[tuple[str, ...]]]:
        if not count:
            return [[]]
        made = []
        for group in combinations(left, gpus):
            rest = tuple(a for a in left if a not in group and a > group[0])
            made += [[group, *others] for others in divisions(rest, count - 1)]
        return made

    chosen = [one.instance.gpus or () for one in found.chosen]
    assert spans(chosen) == min(map(spans, divisions(tuple(sorted(here)), instances)))
