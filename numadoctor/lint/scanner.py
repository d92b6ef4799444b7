"""Shell scripts into words and separators (POSIX, Shell Command Language, 2.2 to 2.7)."""

import re
from collections.abc import Iterator

from numadoctor.lint.nodes import Refused, Word

_SEPARATORS = frozenset(";&|()\n")
_BLANKS = " \t\r"
_PLAIN = re.compile(r"""[^ \t\r\n'"\\`$;&|()<>]+""")
_ARITHMETIC = re.compile(r"\(\([^\n]*?\)\)")
_EMPTY = re.compile(r"\n+")
_REDIRECTION = re.compile(r"[0-9]*(?:>>|<<<|>&|<&|&>|>|<)")
_HERE = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([A-Za-z0-9_.-]+))")
_BACKQUOTED = re.compile(r"`(?:[^`\\]|\\.)*`", re.DOTALL)
_WORD = re.compile(r"[A-Za-z0-9_]+")
_COMMENT = re.compile(r"(?<=[\s;(&|])#[^\n]*")
_ANSI = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}

# How many substitutions may lie one in the other.
_DEEPEST = 50


class Scanner:
    """Reads one word or separator after the other."""

    def __init__(self, text: str, file: str, line: int, column: int, indent: int) -> None:
        self.text, self.file, self.indent = text, file, indent
        self.at, self.line, self.start = 0, line, 1 - column
        self.here: list[tuple[str, bool]] = []
        self.depth = 0

    def step(self, count: int = 1) -> None:
        """Go on by some characters, counting lines."""
        end = self.at + count
        lines = self.text.count("\n", self.at, end)
        if lines:
            self.line += lines
            self.start = self.text.rindex("\n", self.at, end) + 1 - self.indent
        self.at = end

    @property
    def column(self) -> int:
        return self.at - self.start + 1

    def tokens(self) -> Iterator[Word | str]:
        """Words, and separators as plain text."""
        text = self.text
        while self.at < len(text):
            character = text[self.at]
            if character in _BLANKS or text.startswith(("\\\n", "\\\r\n"), self.at):
                self.step(1 if character in _BLANKS else text.index("\n", self.at) + 1 - self.at)
            elif character == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif text.startswith("&&", self.at):
                yield "&&"
                self.step(2)
            elif match := _ARITHMETIC.match(text, self.at):
                # In it `<<` shifts, and starts no here-document.
                yield ";"
                self.step(len(match[0]))
            elif character in _SEPARATORS:
                yield character
                if character == "\n" and not self.here and (run := _EMPTY.match(text, self.at)):
                    self.step(len(run[0]))
                    continue
                self.step()
                if character == "\n":
                    self._skip_here_documents()
            elif match := _HERE.match(text, self.at):
                self.here.append((match[2] or match[3] or match[4], bool(match[1])))
                self.step(len(match[0]))
            elif match := _REDIRECTION.match(text, self.at):
                # A redirection takes the word behind it along.
                self.step(len(match[0]))
                yield ">"
            else:
                yield self._word()

    def _skip_here_documents(self) -> None:
        for delimiter, tabs in self.here:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end].rstrip("\r")
                self.step(end - self.at + 1)
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
        self.here.clear()

    def _word(self) -> Word:
        line, column = self.line, self.column
        parts: list[str] = []
        quoted = False
        text = self.text
        while self.at < len(text):
            if run := _PLAIN.match(text, self.at):
                parts.append(run[0])
                self.at = run.end()
                continue
            character = text[self.at]
            if character in _BLANKS or character in _SEPARATORS or character in "<>":
                break
            if character == "'":
                parts.append(self._until_quote())
                quoted = True
            elif text.startswith("$'", self.at):
                parts.append(self._ansi())
                quoted = True
            elif character == '"':
                parts.append(self._double())
                quoted = True
            elif character == "\\":
                if text.startswith(("\\\n", "\\\r\n"), self.at):
                    self.step(text.index("\n", self.at) + 1 - self.at)
                else:
                    parts.append(text[self.at + 1 : self.at + 2])
                    self.step(2)
            elif character == "`" or text.startswith(("$(", "${"), self.at):
                parts.append(self._substitution())
            else:
                parts.append(character)
                self.step()
        return Word(self.file, line, column, "".join(parts), "'" if quoted else "")

    def _until_quote(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise Refused("a quote that does not end", self.line, self.column)
        inside = self.text[self.at + 1 : end]
        self.step(end + 1 - self.at)
        return inside

    def _double(self) -> str:
        line, column = self.line, self.column
        self.step()
        parts: list[str] = []
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == '"':
                self.step()
                return "".join(parts)
            if character == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                parts.append({"\n": ""}.get(following, following))
                if following not in ("\n", '"', "\\", "$", "`"):
                    parts[-1] = "\\" + following
                self.step(2)
            elif character == "`" or self.text.startswith(("$(", "${"), self.at):
                parts.append(self._substitution())
            else:
                parts.append(character)
                self.step()
        raise Refused("a quote that does not end", line, column)

    def _substitution(self) -> str:
        """``$(…)``, ``${…}`` or ``` `…` ``` as it stands."""
        begin, line, column = self.at, self.line, self.column
        if self.text[self.at] == "`":
            match = _BACKQUOTED.match(self.text, self.at)
            if match is None:
                raise Refused("a substitution that does not end", line, column)
            self.step(len(match[0]))
            return self.text[begin : self.at]
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Refused(f"substitutions more than {_DEEPEST} levels deep", line, column)
        if self.text.startswith(("${", "$(("), self.at):
            self._balanced(line, column)
        else:
            self._commands(line, column)
        self.depth -= 1
        return self.text[begin : self.at]

    def _balanced(self, line: int, column: int) -> None:
        """Go behind a ``${…}`` or ``$((…))``."""
        opening = self.text[self.at + 1]
        closing = {"(": ")", "{": "}"}[opening]
        depth = 0
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == "\\":
                self.step()
            depth += (character == opening) - (character == closing)
            self.step()
            if character == closing and depth == 0:
                return
        raise Refused("a substitution that does not end", line, column)

    def _commands(self, line: int, column: int) -> None:
        """Go behind a ``$(…)``, whose quotes, comments and patterns may have parentheses."""
        depth = cases = 0
        while self.at < len(self.text):
            character = self.text[self.at]
            word = _WORD.match(self.text, self.at)
            if word:
                cases += (word[0] == "case") - (word[0] == "esac" and cases > 0)
                self.step(len(word[0]))
                continue
            if character == "'":
                self._until_quote()
            elif character == '"':
                self._double()
            elif comment := _COMMENT.match(self.text, self.at):
                self.step(len(comment[0]))
            elif match := _HERE.match(self.text, self.at):
                self.here.append((match[2] or match[3] or match[4], bool(match[1])))
                self.step(len(match[0]))
            elif character == "\n" and self.here:
                self.step()
                self._skip_here_documents()
            else:
                # In `case x in a) …` a parenthesis closes a pattern.
                of_pattern = character == ")" and depth == 1 and cases > 0
                depth += (character == "(") - (character == ")" and not of_pattern)
                self.step(2 if character == "\\" else 1)
                if character == ")" and depth == 0:
                    return
        raise Refused("a substitution that does not end", line, column)

    def _ansi(self) -> str:
        """``$'…'``, in which a backslash escapes."""
        match = _ANSI.match(self.text, self.at)
        if match is None:
            raise Refused("a quote that does not end", self.line, self.column)
        self.step(len(match[0]))
        return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), match[1], flags=re.DOTALL)
