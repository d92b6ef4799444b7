"""Checks that other people might write, as text."""

from pathlib import Path

GOOD = '''
from numadoctor.engine import check
from numadoctor.model import passed


@check("{id}", name="{name}", needs=("/proc/version",))
def site_check(host, target):
    """A site's own rule.

    Why it matters
        It does.
    """
    {body}
'''


def plugin(id: str = "X001", name: str = "site-rule", body: str = 'yield passed("right")') -> str:
    """The source of a module with one check."""
    return GOOD.format(id=id, name=name, body=body)


def write(folder: Path, **modules: str) -> Path:
    """``name="source"`` makes folder/name.py."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    return folder


def install(folder: Path, entry_points: str, **modules: str) -> Path:
    """Lay ``folder`` out as a site-packages in which a distribution of these modules is."""
    write(folder, **modules)
    info = folder / "site_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: site-rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    return folder
