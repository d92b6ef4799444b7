"""Compose files by path: those that are linted, and those below their folders."""

import os

from numadoctor.lint.nodes import Mapping, Node, Refused, Sequence
from numadoctor.lint.reading import Source, read_file
from numadoctor.lint.yamlfile import parse_yaml

# Entries that are copied where services and files are laid over each other.
_MOST_LAID = 1_000_000


class Reader:
    """The roots of Compose files by path, each read once.

    :ivar extended: files and the services in them that others extend
    """

    def __init__(self, sources: dict[str, Source]) -> None:
        self._sources = sources
        self._folders = tuple({os.path.realpath(os.path.dirname(path)) for path in sources})
        self._roots: dict[str, Mapping | Refused] = {}
        self.extended: set[tuple[str, str]] = set()
        self.whole: dict[tuple[str, str], Node] = {}
        self.included = 0
        self._laid = 0

    def give(self, path: str, root: Mapping) -> None:
        """Take over a root that was read already."""
        self._roots[os.path.normpath(path)] = root

    def root(self, path: str) -> Mapping:
        """What is in a Compose file.

        :raises Refused: it is not within reach, or no Compose file; with a hint where
            that is no fault of the files
        """
        path = os.path.normpath(path)
        if path not in self._roots:
            try:
                self._roots[path] = self._read(path)
            except Refused as error:
                self._roots[path] = error
        found = self._roots[path]
        if isinstance(found, Refused):
            raise found
        return found

    def lay(self, node: Node) -> None:
        """Count what is copied where files and services are laid over each other.

        :raises Refused: it is more than any project has
        """
        if isinstance(node, Mapping):
            self._laid += 1 + len(node.entries)
            for _, value in node.items():
                self._laid += len(value.items) if isinstance(value, Sequence) else 0
        if self._laid > _MOST_LAID:
            raise Refused("services and files that multiply what they name")

    def has(self, path: str) -> bool:
        """Whether a file is within reach, whatever stands in it."""
        path = os.path.normpath(path)
        return path in self._roots or path in self._sources or os.path.isfile(path)

    def _read(self, path: str) -> Mapping:
        source = self._sources.get(path)
        if source is None:
            real = os.path.realpath(path)
            if not any(os.path.commonpath((real, folder)) == folder for folder in self._folders):
                raise Refused(
                    f"{path} lies outside of the folders that are linted",
                    hint="lint it together with this file",
                )
            source = read_file(path)
        try:
            roots = [root for root in parse_yaml(source.text, path) if isinstance(root, Mapping)]
        except Refused as error:
            at = f":{error.line}:{error.column}" if error.line else ""
            raise Refused(f"{path}{at}: {error.reason}", hint=error.hint) from None
        if len(roots) != 1:
            raise Refused(f"{path} is no Compose file")
        return roots[0]
