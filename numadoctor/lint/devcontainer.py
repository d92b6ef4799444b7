"""devcontainer.json: the container in which people develop, and often measure.

Source: Development Containers, devcontainer.json reference (containers.dev); JSON with comments.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import replace

from numadoctor.lint.compose import environment, security_option
from numadoctor.lint.docker import of_options, options_of
from numadoctor.lint.nodes import Mapping, words_of
from numadoctor.lint.workloads import Workload

_TEXT = r'"(?:[^"\\\n]|\\.)*"'
_COMMENTS = re.compile(rf"({_TEXT})|//[^\n]*|/\*.*?\*/", re.DOTALL)


def without_comments(text: str) -> str:
    """The text with blanks for its comments, so that all else keeps its place."""
    return _COMMENTS.sub(lambda m: m[1] or re.sub(r"[^\n]", " ", m[0]), text)


def layers(root: Mapping, file: str) -> tuple[str, ...]:
    """The Compose files that it starts, the lowest first; empty where it starts none."""
    folder = os.path.dirname(file)
    words = words_of(root.get("dockerComposeFile"))
    return tuple(os.path.normpath(os.path.join(folder, word.text)) for word in words)


def workloads(root: Mapping) -> Iterator[Workload]:
    """Its container, unless Compose makes it."""
    if root.get("dockerComposeFile") is not None:
        return
    options, _, more = options_of(words_of(root.get("runArgs")))
    made = of_options("devcontainer", "docker", root.word("name") or root, options, more)
    yield replace(
        made,
        image=root.word("image"),
        privileged=made.privileged or root.word("privileged"),
        added=(*made.added, *words_of(root.get("capAdd"))),
        seccomp=made.seccomp or security_option(words_of(root.get("securityOpt"))),
        environment={**environment(root.get("containerEnv")), **made.environment},
    )
