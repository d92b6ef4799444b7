"""Examples of checks of files: .tree files whose sections outside /proc and /sys are linted."""

from pathlib import Path

from numadoctor.engine.registry import Check
from numadoctor.engine.runner import run_on_files
from numadoctor.host import FolderRoot, Host
from numadoctor.lint.documents import Files
from numadoctor.lint.gathering import gather
from numadoctor.lint.reading import read_file
from numadoctor.model import Report
from tests.trees import Tree

_OF_THE_MACHINE = ("/proc/", "/sys/", "/.numadoctor/", "/var/")


def lint_tree(check: Check, tree: Tree, folder: Path) -> Report:
    """What the check says of the example; the machine is there if the tree has one."""
    root = tree.build(folder)
    of_machine = [path for path in tree.files if path.startswith(_OF_THE_MACHINE)]
    machine = Host(FolderRoot(str(root))) if tree.base or of_machine else None
    files = Files(machine=machine)
    for option in tree.lint:
        if option == "static":
            files.static = True
        else:
            _, files.runtime, *version = option.split("=")
            files.version = version[0] if version else None
    linted = [str(root / path[1:]) for path in tree.files if path not in of_machine]
    documents = gather((read_file(path) for path in linted), files).documents
    return run_on_files(machine, [check], documents, name="example")
