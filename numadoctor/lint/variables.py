"""Variables of systemd units: environment files, and what stands for ``$NAME`` in commands."""

import re
from collections.abc import Iterable, Iterator, Mapping

from numadoctor.lint.lines import joined, logical_lines
from numadoctor.lint.nodes import Refused, Word

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INSIDE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_QUOTED = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)|([^'"\\]+|['"\\])""", re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\`$\n])')


# Characters that variables of a command may come to; a kernel takes 2 MiB of arguments.
_MOST_MADE = 2 << 20


def parse_environment(text: str, file: str) -> dict[str, Word]:
    """The variables of an environment file (systemd.exec(5), EnvironmentFile=).

    What is no assignment is passed over, as systemd does.

    :raises Refused: it has more lines than any has
    """
    found = {}
    for line, column, content in logical_lines(text):
        name, equals, value = content.partition("=")
        if equals and _NAME.fullmatch(name.strip()):
            at = column + len(name) + 1 + len(value) - len(value.lstrip())
            found[name.strip()] = Word(file, line, at, _unquoted(joined(value).strip()), "'")
    return found


def _unquoted(text: str) -> str:
    parts = []
    for single, double, escaped, plain in _QUOTED.findall(text):
        parts.append(single or _ESCAPED.sub(r"\1", double) or escaped or plain)
    return "".join(parts)


_BLANKS = " \t\r\n"
_ESCAPES = {"n": "\n", "t": "\t", "s": " ", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def split_words(text: str, file: str, line: int, column: int) -> list[Word]:
    """The words of a value as systemd divides it (systemd.syntax(7), Quoting).

    No shell: `;`, `|`, `<` and their like are ordinary characters.

    :param line: the place of the text's first character in the file
    :raises Refused: a quote does not end
    """
    found: list[Word] = []
    at, start, row = 0, 1 - column, line
    while at < len(text):
        if text.startswith("\\\n", at) or text[at] in _BLANKS:
            step = 2 if text[at] == "\\" else 1
            if "\n" in text[at : at + step]:
                row, start = row + 1, at + step
            at += step
            continue
        begin, place, quoted = at, (row, at - start + 1), False
        parts: list[str] = []
        quote = ""
        while at < len(text) and (quote or text[at] not in _BLANKS):
            character = text[at]
            at += 1
            if character == quote:
                quote = ""
            elif character in "'\"" and not quote:
                quote, quoted = character, True
            elif character == "\\" and text[at : at + 1] == "\n" and not quote:
                at -= 1
                break
            elif character == "\\" and at < len(text):
                parts.append(_ESCAPES.get(text[at], text[at] if text[at] != "\n" else " "))
                at += 1
            else:
                parts.append(character)
        lines = text.count("\n", begin, at)
        if lines:
            row, start = row + lines, text.rindex("\n", begin, at) + 1
        if quote:
            raise Refused("a quote that does not end", *place)
        found.append(Word(file, *place, "".join(parts), "'" if quoted else ""))
    return found


def filled(words: Iterable[Word], variables: Mapping[str, Word]) -> Iterator[Word]:
    """The words of a command as systemd starts it (systemd.service(5), Command lines).

    ``$NAME`` that is a word becomes the words of its value, ``${NAME}`` its text; one
    that is not known stays, and is filled in later.

    :raises Refused: a quote in a value does not end
    """
    made = 0
    for word in words:
        value = variables.get(word.text[1:]) if word.text.startswith("$") else None
        if value is not None:
            made += len(value.text)
            if made > _MOST_MADE:
                raise Refused("variables that multiply what they hold", word.line, word.column)
            yield from split_words(value.text, value.file, value.line, value.column)
            continue
        if "${" not in word.text:
            yield word
            continue
        parts = _INSIDE.split(word.text)
        for position, name in enumerate(parts[1::2]):
            parts[2 * position + 1] = variables[name].text if name in variables else f"${{{name}}}"
        made += sum(map(len, parts))
        if made > _MOST_MADE:
            raise Refused("variables that multiply what they hold", word.line, word.column)
        yield Word(word.file, word.line, word.column, "".join(parts), word.style)
