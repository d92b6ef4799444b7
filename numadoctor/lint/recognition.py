"""Of which kind a file is by its name and first looks, and of which kind it claims to be."""

import os
import re
from collections.abc import Iterable
from itertools import takewhile
from typing import Protocol, TypeVar

from numadoctor.lint.reading import Source, is_shell


class HasFile(Protocol):
    """Whatever comes from a file."""

    file: str


Named = TypeVar("Named", bound=HasFile)

UNIT = re.compile(r"\.(service|scope|slice|socket|container)$")
DROP_IN = re.compile(r"/([^/]+\.(?:service|scope|slice|container)|service)\.d/[^/]+\.conf$")
KUBELET_DROP_IN = re.compile(r"\.d/[^/]+\.conf$")

_YAML = re.compile(r"(?m)^[ \t]*[\"']?(apiVersion|services|defaultAction|linux|kind)[\"']?\s*:")
_JSON = re.compile(r'"(apiVersion|services|linux|defaultAction)"\s*:')
_SYSCTL = re.compile(r"\s*-?(vm|kernel|net|fs|user|dev)[./][\w./*-]+\s*=")

_NAMED = (
    (r"/gres[^/]*\.conf$|[-_.]gres\.conf$", "slurm"),
    (r"/slurm[^/]*\.conf$", "slurm"),
    (r"/sysctl\.d/|sysctl[^/]*\.conf$", "sysctl"),
    (r"/modprobe\.d/|modprobe[^/]*\.conf$", "modprobe"),
    (r"[^/]\.env$|/(?:default|sysconfig)/(?!grub$)[^/]+$", "environment"),
    (r"/grub(\.d/[^/]+)?$|grub[^/]*\.cfg$|cmdline$|/loader/entries/[^/]+\.conf$", "boot"),
)

# In the copy of a machine a process has a `cmdline` too.
_OF_A_PROCESS = re.compile(r"/proc/[^/]+/cmdline$")

# Names by which a file says what it is, whatever stands in it.
_CLAIMED = (
    (r"(?:/|[-_.])compose(?:[-_.][^/]*)?\.ya?ml$", "compose"),
    (r"/(?:Chart|kustomization)\.ya?ml$", "kubernetes"),
    (r"/\.?devcontainer\.json$", "devcontainer"),
    (r"/kubelet[^/]*\.(?:ya?ml|json)$|/kubelet/config\.(?:ya?ml|json)$", "kubelet"),
    (r"/[^/]*seccomp[^/]*\.json$", "seccomp"),
    (r"\.(?:sbatch|slurm)$", "shell"),
)

# What of a kustomization changes its resources, so that they alone tell too little.
KUSTOMIZING = frozenset(
    ("patches", "patchesStrategicMerge", "patchesJson6902", "components", "transformers")
) | {"replacements", "helmCharts", "vars", "generators"}

# What only files of ours have in them, in pairs that must both be there.
_CONTENTS = (
    (r"^[{\s]*[\"']?apiVersion[\"']?\s*:", r"^[{\s]*[\"']?kind[\"']?\s*:"),
    (r"^[{\s]*[\"']?services[\"']?\s*:", r"^\s+[\"']?(?:image|build|extends)[\"']?\s*:"),
    (r"[\"']?defaultAction[\"']?\s*:", r"SCMP_ACT_"),
    (r"\A\s*<", r"<system[\s/>]"),
)
_STARTS = re.compile(
    r"(?m)^#SBATCH|\b(?:docker|podman|nerdctl)\s+(?:container\s+)?run\b|\b(?:numactl|srun)\s"
)


def full_path(path: str) -> str:
    """The path by which names are recognised: absolute, with slashes."""
    return os.path.abspath(path).replace(os.sep, "/")


def nearest(path: str, others: Iterable[Named]) -> list[Named]:
    """Those whose files share the most folders with a path: of the same copy of a machine."""
    own = full_path(path).split("/")

    def shared(other: Named) -> int:
        folders = zip(own, full_path(other.file).split("/"), strict=False)
        return len(list(takewhile(lambda pair: pair[0] == pair[1], folders)))

    by_shared: dict[int, list[Named]] = {}
    for other in others:
        by_shared.setdefault(shared(other), []).append(other)
    return by_shared[max(by_shared)] if by_shared else []


def claim_of_name(path: str) -> str:
    """The kind that a file says by its name to be of, or empty."""
    full = full_path(path)
    if UNIT.search(full) or DROP_IN.search(full):
        return "systemd"
    if _OF_A_PROCESS.search(full):
        return ""
    for pattern, kind in (*_CLAIMED, *_NAMED):
        # Any program has an environment file: that its name is one says nothing.
        if kind != "environment" and re.search(pattern, full):
            return kind
    return ""


def is_claimed(source: Source) -> bool:
    """Whether a file says by its name, or by what can be read of it, that it is one of ours.

    One that cannot be understood then leaves the examination incomplete, whether it was
    named or lies below a folder; any other file may be what it likes.
    """
    if claim_of_name(source.path):
        return True
    text = source.data.decode("utf-8", "replace")
    if source.path.endswith((".sh", ".bash")) or is_shell(source.data.split(b"\n", 1)[0]):
        return _STARTS.search(text) is not None
    return any(
        re.search(one, text, re.MULTILINE) and re.search(other, text, re.MULTILINE)
        for one, other in _CONTENTS
    )


def kind_of(path: str, text: str) -> str:
    """The kind that a file's name and first looks make it; ``yaml`` is told by its roots."""
    full = full_path(path)
    if UNIT.search(full) or DROP_IN.search(full):
        return "systemd"
    if full.endswith((".yaml", ".yml", ".json")):
        # A look that costs little: most YAML of a repository is of other kinds.
        if claim_of_name(path) == "devcontainer":
            return "devcontainer"
        ours = claim_of_name(path) or _YAML.search(text) or _JSON.search(text)
        return "yaml" if ours else ""
    if _OF_A_PROCESS.search(full):
        return ""
    for pattern, kind in _NAMED:
        if re.search(pattern, full):
            return kind
    if full.endswith((".sh", ".bash", ".sbatch", ".slurm")) or is_shell(
        text.split("\n", 1)[0].encode("utf-8", "replace")
    ):
        return "shell"
    return _by_content(text)


def _by_content(text: str) -> str:
    head = text[:4096]
    if re.search(r"<system[\s/>]", head) and head.lstrip().startswith("<"):
        return "nccl"
    if _YAML.search(text) or (head.lstrip().startswith("{") and '"defaultAction"' in text):
        return "yaml"
    rows = [row for row in head.splitlines() if row.strip() and row.lstrip()[0] not in "#;"]
    if rows and all(map(_SYSCTL.match, rows)):
        return "sysctl"
    if re.search(r"(?m)^\[(Service|Container|Manager)\]\s*$", head):
        return "systemd"
    return ""
