"""Options of the kernel and of its drivers, as they stand in files."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from numadoctor.engine import Scope, check
from numadoctor.lint.documents import Document
from numadoctor.lint.lines import Setting
from numadoctor.lint.nodes import Word
from numadoctor.model import (
    Finding,
    Fix,
    Severity,
    Undecided,
    fail,
    passed,
    warn,
)

from ._deployment import seen, undecided

if TYPE_CHECKING:
    from numadoctor.host import Host


@check(
    "D021",
    name="boot-options",
    needs=("kind boot", "kind modprobe"),
    scope=Scope.FILE,
    severity=Severity.HIGH,
)
def boot_options(host: "Host | None", document: Document) -> Iterator[Finding]:
    """Options of the kernel or its drivers that hide nodes, or that say nothing to them.

    Why it matters
        numa=off makes one node of all sockets: nothing can be placed any more. numa=fake and
        acpi=off invent or lose nodes. mem= and maxcpus= cut the last nodes off.
        Options that no kernel knows (transparent_hugepages=, numa_balancing=0) are passed on
        to init without a word. A hugepages= counts pages of the size that stands before it.

    When it is harmless
        On machines of one socket, numa=off loses nothing.

    Fix
        Remove the option; write transparent_hugepage=, numa_balancing=disable,
        default_hugepagesz=1G hugepagesz=1G hugepages=64.

    Source
        Documentation/admin-guide/kernel-parameters.txt; x86/x86_64/boot-options.rst;
        mm/hugetlbpage.rst; NVIDIA driver README, module parameters
    """
    if document.kind == "modprobe":
        yield from _of_modules(document)
        return
    options = list(document.content)
    judged = 0
    for setting in options:
        try:
            finding = _judge_option(setting, document)
        except Undecided as error:
            finding = undecided(
                error, f"{document.file} {setting.name.shown}", setting.name.location
            )
        if finding:
            judged += 1
            yield finding
    judged += len(found := list(_huge_order(options, document)))
    yield from found
    if not judged and options:
        yield passed(
            "no boot option here hides nodes, or says nothing",
            subject=document.file,
            evidence=seen(*(setting.name for setting in options[:4])),
            location=options[0].name.location,
        )


_HIDING = {
    "numa=off": "all sockets become one node: nothing can be placed",
    "numa=noacpi": "the nodes are no longer read from the firmware's tables",
    "acpi=off": "without ACPI there is no table of nodes",
}
_CUTTING = {
    "mem": "memory above it, and with it the last nodes', is not used",
    "maxcpus": "CPUs above it, and with them the last nodes', stay offline",
    "nr_cpus": "CPUs above it, and with them the last nodes', do not exist",
}
_MISSPELT = {
    "transparent_hugepages": "transparent_hugepage",
    "transparent_huge_page": "transparent_hugepage",
    "hugepagesize": "hugepagesz",
    "default_hugepagesize": "default_hugepagesz",
    "numa_balance": "numa_balancing",
    "kernel.numa_balancing": "numa_balancing",
    "thp": "transparent_hugepage",
}
_CHOICES = {
    "numa_balancing": ("enable", "disable"),
    "transparent_hugepage": ("always", "madvise", "never"),
}


def _judge_option(setting: Setting, document: Document) -> Finding | None:
    name, value = setting.name.text, setting.value.text
    subject = f"{document.file} {name}"
    whole = f"{name}={value}"
    if (name in _CHOICES or name in _CUTTING or name == "numa") and value:
        setting.value.settled()
    if whole in _HIDING:
        return _boot(fail, setting, subject, whole, _HIDING[whole], f"# remove {whole}")
    if name == "numa" and value.startswith("fake"):
        what = "nodes are invented that share one memory controller"
        return _boot(warn, setting, subject, whole, what, f"# remove {whole}")
    if name in _CUTTING and value and value != "0":
        return _boot(warn, setting, subject, whole, _CUTTING[name], f"# remove {whole}")
    if name in _MISSPELT:
        what = "no kernel knows it: it is passed on to init"
        return _boot(fail, setting, subject, whole, what, f"{_MISSPELT[name]}={value}")
    if name in _CHOICES and value not in _CHOICES[name]:
        what = f"the kernel takes {' or '.join(_CHOICES[name])}"
        right = {"0": _CHOICES[name][-1], "off": _CHOICES[name][-1]}.get(value, _CHOICES[name][0])
        return _boot(fail, setting, subject, whole, what, f"{name}={right}")
    if whole == "numa_balancing=enable":
        what = "pages are unmapped and migrated"
        return _boot(warn, setting, subject, whole, what, "numa_balancing=disable")
    return None


def _boot(
    told: Callable[..., Finding], setting: Setting, subject: str, whole: str, what: str, fix: str
) -> Finding:
    text = f"{fix}\n# line {setting.name.line}; then update-grub or grub2-mkconfig, and reboot"
    return told(
        f"{whole}: {what}",
        subject=subject,
        evidence=seen(setting.name, setting.value),
        fixes=[Fix("grub", text, needs_root=True, needs_restart=True, persists=True)],
        location=setting.name.location,
    )


def _huge_order(options: list[Setting], document: Document) -> Iterator[Finding]:
    """``hugepages=`` in front of the first ``hugepagesz=``: pages of the default size."""
    names = [setting.name.text for setting in options]
    if "hugepages" not in names or "hugepagesz" not in names:
        return
    first, size = options[names.index("hugepages")], options[names.index("hugepagesz")]
    if names.index("hugepages") < names.index("hugepagesz") and "default_hugepagesz" not in names:
        yield _boot(
            warn,
            first,
            f"{document.file} hugepages",
            f"hugepages={first.value.text}",
            f"stands before hugepagesz={size.value.text}, and counts pages of the default size",
            f"hugepagesz={size.value.text} hugepages={first.value.text}",
        )


def _of_modules(document: Document) -> Iterator[Finding]:
    judged = False
    for module, setting in document.content:
        name, value = setting.name.text, setting.value
        subject = f"{document.file} {name}"
        if module.text == "nvidia" and name == "NVreg_CoherentGPUMemoryMode":
            judged = True
            yield _coherent(setting, value, subject)
    if not judged and document.content:
        module, setting = document.content[0]
        yield passed(
            "no option here changes where memory is",
            subject=document.file,
            evidence=seen(module, setting.name),
            location=module.location,
        )


def _coherent(setting: Setting, value: Word, subject: str) -> Finding:
    try:
        text = value.settled()
    except Undecided as error:
        return undecided(error, subject, value.location)
    if text not in ("driver", "numa"):
        return fail(
            f"NVreg_CoherentGPUMemoryMode={text}: the driver takes driver or numa",
            subject=subject,
            cause="It keeps its default.",
            evidence=seen(setting.name, value),
            fixes=[
                Fix("any", "options nvidia NVreg_CoherentGPUMemoryMode=driver", True, True, True)
            ],
            location=value.location,
        )
    told = "GPU memory is no node" if text == "driver" else "GPU memory is a node"
    return passed(
        f"NVreg_CoherentGPUMemoryMode={text}: {told}",
        subject=subject,
        evidence=seen(setting.name, value),
        location=value.location,
    )
