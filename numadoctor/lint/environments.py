"""Environment files made part of the units that name them."""

from collections.abc import Iterable
from dataclasses import replace

from numadoctor.lint.documents import Document
from numadoctor.lint.nodes import Word
from numadoctor.lint.recognition import full_path, nearest
from numadoctor.lint.units import as_instance


def with_environments(documents: Iterable[Document]) -> list[Document]:
    """The documents, environment files made part of the units that name them.

    A file is known by the path that the unit names, also below the copy of a machine;
    ``NAME.env`` by its name alone where there is one of it.
    """
    documents = list(documents)
    files = [d for d in documents if d.kind == "environment"]
    used: set[int] = set()
    for document in documents if files else ():
        if document.kind != "systemd":
            continue
        variables: dict[str, Word] = {}
        for setting in document.content.values("EnvironmentFile"):
            path = as_instance(document.content.name, setting.value.text.removeprefix("-"))
            for found in nearest(document.file, _named(path, files))[:1]:
                used.add(id(found))
                variables.update(found.content)
        if variables:
            unit = document.content
            document.content = replace(unit, variables=variables)
    for document in files:
        if id(document) not in used:
            document.kind = "other"
    return [d for d in documents if id(d) not in used]


def _named(path: str, files: list[Document]) -> list[Document]:
    exact = [d for d in files if full_path(d.file).endswith(path)]
    base = path.rpartition("/")[2]
    alike = [d for d in files if base.endswith(".env") and full_path(d.file).endswith(f"/{base}")]
    return exact or (alike if len(alike) == 1 else [])
