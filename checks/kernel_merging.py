"""Pages with the same content that the kernel makes one of, whatever node they are on."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Requires, check
from numadoctor.model import Finding, Missing, Severity, Target, info, passed, warn
from numadoctor.model.units import amount

from ._kernel import MM, absent, page_size, sysfs_fixes

if TYPE_CHECKING:
    from numadoctor.host import Host

_KSM = f"{MM}/ksm"
_RUN, _ACROSS, _SHARING = f"{_KSM}/run", f"{_KSM}/merge_across_nodes", f"{_KSM}/pages_sharing"
_RUNNING, _UNMERGE = 1, 2


@check(
    "K018",
    name="merging-across-nodes",
    needs=(_RUN, _ACROSS, _SHARING),
    requires=Requires.SEVERAL_NODES,
    severity=Severity.LOW,
)
def merging_across_nodes(host: "Host", target: Target) -> Iterator[Finding]:
    """Kernel samepage merging makes one page of pages on several nodes.

    Why it matters
        KSM keeps one of several pages with the same content. With merge_across_nodes
        (the default) that may be one of any node, and all who had theirs at home read
        from there; a memory policy does not hold it. It looks at memory that was offered
        to it only: that of virtual machines (QEMU does so by default), of services with
        MemoryKSM=yes, of processes that inherited PR_SET_MEMORY_MERGE.

    When it is harmless
        While nothing is merged. On a host of virtual machines whose memory would not
        suffice otherwise.

    Fix
        Merge the pages of one node only. That can be changed while nothing is merged:

            echo 2 > /sys/kernel/mm/ksm/run
            echo 0 > /sys/kernel/mm/ksm/merge_across_nodes
            echo 1 > /sys/kernel/mm/ksm/run

    Source
        Documentation/admin-guide/mm/ksm.rst; Documentation/ABI/testing/sysfs-kernel-mm-ksm
    """
    try:
        run = host.integer(_RUN)
    except Missing as error:
        yield absent(host, error, "this kernel does not merge pages", MM)
        return
    evidence = [host.evidence(_RUN)]
    # What was merged before it was stopped (0) stays merged.
    sharing = 0 if run == _UNMERGE else host.integer(_SHARING)
    if run != _RUNNING and not sharing:
        yield passed("no pages are merged", evidence=evidence)
        return
    across = host.integer(_ACROSS)
    evidence += [host.evidence(_ACROSS), host.evidence(_SHARING)]
    if not across:
        yield passed("pages are merged within their nodes only", evidence=evidence)
    elif not sharing:
        yield info("KSM may merge pages of several nodes; none are so far", evidence=evidence)
    else:
        apart = sysfs_fixes(_ACROSS, 0)
        stop = sysfs_fixes(_RUN, _UNMERGE)[0]
        yield warn(
            f"{amount(sharing * page_size(host))} of pages were merged with others, of whatever "
            "node",
            cause="Who reads such a page reads from the node of the one that was kept.",
            evidence=evidence,
            fixes=(stop, *apart, sysfs_fixes(_RUN, 1)[0]),
        )
