"""Formats of lines: systemd units, sysctl.d, modprobe.d, boot options, Slurm's files."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from numadoctor.lint.nodes import Refused, Word


@dataclass(frozen=True, slots=True)
class Setting:
    """One assignment.

    :ivar section: of a unit, without brackets; empty elsewhere
    :ivar name: the place and text of what stands before the ``=``
    :ivar raw: the value with its continued lines, as it stands in the file
    """

    section: str
    name: Word
    value: Word
    raw: str = ""


# Lines that a file of settings may have: far more than any has, and few enough to be kept.
MOST_LINES = 20_000


def logical_lines(text: str, comments: str = "#;") -> Iterator[tuple[int, int, str]]:
    r"""Line and column of the first character, and the text, of each line with its continuations.

    A continued line keeps its ``\`` and line break, so that places can be
    counted; lines of comments between them are empty (systemd.syntax(7)).
    """
    parts: list[str] = []
    line = column = count = 0
    for number, raw in enumerate([*text.split("\n"), ""], 1):
        stripped = raw.rstrip("\r")
        content = stripped.lstrip(" \t")
        if content and content[0] in comments:
            parts += ["\\\n"] if parts else []
            continue
        if not parts:
            line, column = number, len(stripped) - len(content) + 1
            stripped = content
        if stripped.endswith("\\"):
            parts.append(stripped + "\n")
            continue
        whole = "".join([*parts, stripped]).rstrip()
        parts = []
        if whole.strip("\\\n \t"):
            count += 1
            if count > MOST_LINES:
                raise Refused(f"more than {MOST_LINES:,} lines", line)
            yield line, column, whole


def joined(text: str) -> str:
    """A text with its continued lines as one."""
    return text.replace("\\\n", " ")


def parse_unit(text: str, file: str) -> list[Setting]:
    """The settings of a systemd unit, a drop-in or a Quadlet file.

    :raises Refused: a line is neither a section nor an assignment
    """
    section = ""
    settings = []
    for line, column, content in logical_lines(text):
        if content.startswith("[") and content.endswith("]"):
            section = content[1:-1]
            continue
        name, equals, value = content.partition("=")
        if not equals or not section:
            what = "is no assignment" if not equals else "stands before the first section"
            raise Refused(f'"{content[:40]}" {what}', line, column)
        settings.append(_setting(section, name, value, file, line, column))
    return settings


def _setting(section: str, name: str, value: str, file: str, line: int, column: int) -> Setting:
    at = column + len(name) + 1 + len(value) - len(value.lstrip())
    return Setting(
        section,
        Word(file, line, column, name.strip()),
        Word(file, line, at, joined(value).strip()),
        value.strip(),
    )


def parse_sysctl(text: str, file: str) -> list[Setting]:
    """The settings of a sysctl.d file, names with dots (sysctl.d(5)).

    :raises Refused: a line is no assignment
    """
    settings = []
    for line, column, content in logical_lines(text):
        name, equals, value = content.partition("=")
        if not equals:
            if content.startswith("-"):
                continue  # an exclusion from what a glob sets
            raise Refused(f'"{content[:40]}" is no assignment', line, column)
        shift = 1 if name.startswith("-") else 0
        found = _setting("", name[shift:], value, file, line, column + shift)
        settings.append(Setting("", _dotted(found.name), found.value))
    return settings


def _dotted(name: Word) -> Word:
    # With a slash first, slashes separate and dots are ordinary (sysctl.d(5)).
    first = re.search(r"[./]", name.text)
    if first and first[0] == "/":
        swapped = name.text.translate(str.maketrans("./", "/."))
        return Word(name.file, name.line, name.column, swapped)
    return name


def parse_modprobe(text: str, file: str) -> list[tuple[Word, Setting]]:
    """The parameters that ``options MODULE NAME=VALUE`` lines set (modprobe.d(5)), by module."""
    found = []
    for line, column, content in logical_lines(text, "#"):
        words = list(_words(joined(content), file, line, column))
        if len(words) >= 2 and words[0].text == "options":
            found += [(words[1], _assignment(word)) for word in words[2:]]
    return found


def _words(content: str, file: str, line: int, column: int) -> Iterator[Word]:
    for count, match in enumerate(re.finditer(r'(?:[^\s"]|"[^"]*")+', content)):
        if count > MOST_LINES:
            raise Refused(f"more than {MOST_LINES:,} words in a line", line, column)
        yield Word(file, line, column + match.start(), match[0].replace('"', ""))


def _assignment(word: Word) -> Setting:
    name, _, value = word.text.partition("=")
    at = word.column + len(name) + 1
    return Setting(
        "",
        Word(word.file, word.line, word.column, name),
        Word(word.file, word.line, at, value),
    )


_GRUB = re.compile(r"""^\s*(?:export\s+)?GRUB_CMDLINE_LINUX\w*\+?=(["']?)(.*?)\1\s*(?:#.*)?$""")
_LOADER = re.compile(r"^\s*options\s+(.*)$")


def parse_boot(text: str, file: str) -> list[Setting]:
    """The options of a kernel command line: grub's defaults, a loader entry, or the bare line."""
    found: list[Setting] = []
    bare = "GRUB_" not in text and not re.search(r"(?m)^[ \t]*options[ \t]", text)
    for line, column, content in logical_lines(text, "#"):
        content = joined(content)
        match = _GRUB.match(content)
        inner, at = (match[2], match.start(2)) if match else ("", 0)
        if not match and (loader := _LOADER.match(content)):
            inner, at = loader[1], loader.start(1)
        elif not match and bare:
            inner, at = content, 0
        found += [_assignment(word) for word in _words(inner, file, line, column + at)]
    return found


def parse_slurm(text: str, file: str) -> list[dict[str, Setting]]:
    """The records of slurm.conf or gres.conf: each line's settings by lower-case name.

    A name without ``=`` (``Include``, ``FileWord``) is left out. Source: slurm.conf(5).
    """
    records = []
    for line, column, content in logical_lines(text, "#"):
        record = {}
        for word in _words(joined(content).partition(" #")[0], file, line, column):
            if "=" in word.text:
                setting = _assignment(word)
                record[setting.name.text.lower()] = setting
        if record:
            records.append(record)
    return records
