"""Shell scripts into simple commands, each word with its place; nothing is carried out.

Quotes, escapes, continued lines, comments, separators and here-documents are
understood as POSIX tells (Shell Command Language, 2.2 to 2.7); substitutions are
left in the words as they stand, but for variables whose values are known (``names``).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

from numadoctor.lint.loops import Loops
from numadoctor.lint.names import ASSIGNMENT, Names
from numadoctor.lint.nodes import Refused, Word
from numadoctor.lint.scanner import Scanner

# No launcher has so many; the bounds keep what is remembered of hostile ones small.
_MOST_COMMANDS, _MOST_WORDS = 20_000, 200_000

# Programs that start the one that is named behind their own options.
WRAPPERS = frozenset(
    ("srun", "mpirun", "mpiexec", "prterun", "taskset", "numactl", "env", "exec", "nice", "ionice")
) | {"chrt", "time", "timeout", "stdbuf", "nsys", "sudo", "torchrun", "tini", "dumb-init", "setsid"}

CONTAINER_ENGINES = frozenset(("docker", "podman", "nerdctl", "docker.io"))

# Builtins that declare the names behind them.
_DECLARING = frozenset(("export", "declare", "typeset", "local", "readonly"))

# Words before a command that leave it the same command.
_PREFIXES = frozenset(
    ("exec", "sudo", "env", "nohup", "time", "command", "if", "then", "else", "elif", "do")
) | {"while", "until", "!", "{", "setsid", "nice", "ionice", "stdbuf", "export"}


@dataclass(frozen=True)
class Command:
    """A simple command.

    :ivar environment: the assignments in front of it, and those exported before
    :ivar words: the program and its arguments
    :ivar background: whether the script goes on without waiting for it
    """

    words: tuple[Word, ...]
    environment: dict[str, Word] = field(default_factory=dict)
    background: bool = False

    @property
    def program(self) -> str:
        """The name of the program, without folders."""
        return self.words[0].text.rpartition("/")[2]

    def starts(self, position: int) -> bool:
        """Whether the word there is started: the first, or one behind a program that starts others.

        ``echo numactl`` and ``apt install numactl`` start none.
        """
        return position == 0 or self.program in WRAPPERS


def parse_shell(
    text: str, file: str, line: int = 1, column: int = 1, indent: int = 0
) -> Iterator[Command]:
    """The simple commands of a script, in its order.

    :param line: the place of the script's first character in the file
    :param indent: how many characters of the file stand before each further line
    :raises Refused: a quote or substitution does not end
    """
    names, loops = Names(), Loops()
    words: list[Word] = []
    array: Word | None = None
    skip, count, length = False, 0, 0
    for token in chain(Scanner(text, file, line, column, indent).tokens(), "\n"):
        if isinstance(token, Word):
            if not skip:
                words.append(token)
            length += 1
            if length > _MOST_WORDS:
                raise Refused(f"more than {_MOST_WORDS:,} words", token.line, token.column)
            skip = False
            continue
        if array is not None:
            if token == ")":
                _give_array(names, array, words)
                array, words = None, []
            continue
        if token == "(" and words and words[-1].text.endswith("=") and not words[-1].style:
            array, words = words[-1], []
            continue
        skip = token == ">"
        if skip or not words:
            continue
        for command in _commands(words, names, loops):
            count += 1
            if count > _MOST_COMMANDS:
                raise Refused(f"more than {_MOST_COMMANDS:,} commands", command.words[0].line)
            yield replace(command, background=token == "&")
        words = []
    if array is not None:
        raise Refused("an array that does not end", array.line, array.column)


def _give_array(names: Names, at: Word, words: list[Word]) -> None:
    if match := ASSIGNMENT.fullmatch(at.text):
        names.give_array(match[1], words, at, more=bool(match[2]))


def _commands(words: list[Word], names: Names, loops: Loops) -> Iterator[Command]:
    """The command of some words, once for each round of the loops that it depends on."""
    if variable := loops.follow(words):
        names.forget(variable)
        return
    for values in loops.rounds(words):
        names.in_round(values)
        if command := _command(words, names):
            yield command
    names.in_round({})


def _command(words: list[Word], names: Names) -> Command | None:
    filled = [one for word in words for one in names.filled(word)]
    if not filled:
        return None
    exporting = filled[0].text in _DECLARING
    environment: dict[str, tuple[Word, bool]] = {}
    rest = 0
    while rest < len(filled):
        match = ASSIGNMENT.fullmatch(filled[rest].text)
        if match:
            value = filled[rest]
            word = Word(value.file, value.line, value.column, match[3], value.style or "'")
            environment[match[1]] = word, bool(match[2])
        elif (
            filled[rest].text not in _PREFIXES
            and not (exporting and (rest == 0 or filled[rest].text.startswith("-")))
            and not (rest and _is_option(filled, rest))
        ):
            break
        rest += 1
    if exporting or rest == len(filled):
        export = exporting and filled[0].text not in ("local", "readonly")
        for name, (value, more) in environment.items():
            names.give(name, value, more=more, export=export)
        return None
    names.lose(filled[rest:])
    own = {name: value for name, (value, _) in environment.items()}
    return Command(tuple(filled[rest:]), {**names.exported, **own})


def _is_option(words: list[Word], at: int) -> bool:
    """Whether a word is an option of a prefix such as ``sudo -E``."""
    return words[at].text.startswith("-") and words[at - 1].text in _PREFIXES | {"-E", "-i"}


def parse_word(word: Word) -> list[Command]:
    """The commands in a value that holds a script, at their places in the file.

    :raises Refused: a quote or substitution in it does not end
    """
    if word.style == ">":
        # Its lines are folded: the block's own place is all that can be told.
        found = parse_shell(word.text, word.file)
        return [_moved(command, word) for command in found]
    block = word.style == "|"
    column = word.column + (word.style in ("'", '"'))
    indent = word.column - 1 if block else 0
    return list(parse_shell(word.text, word.file, word.line, column, indent))


def _moved(command: Command, place: Word) -> Command:
    def at(word: Word) -> Word:
        return Word(place.file, place.line, place.column, word.text, word.style)

    environment = {name: at(value) for name, value in command.environment.items()}
    return replace(command, words=tuple(map(at, command.words)), environment=environment)


_SHELLS = frozenset(("sh", "bash", "dash", "ksh", "zsh", "ash"))


def expanded(command: Command) -> list[Command]:
    """The commands that a command comes to: those inside of ``sh -c``, or itself.

    What wraps the shell (``numactl -m 0 bash -c …``) wraps each of them.
    What runs inside of a container is the container's, and stays in its command.

    :raises Refused: a quote or substitution inside does not end
    """
    starts = {word.text for word in command.words[1:6]} & {"run", "create"}
    if starts and command.program in CONTAINER_ENGINES:
        return [command]
    for position, word in enumerate(command.words[:-1]):
        program = command.words[position - 1].text if position else ""
        is_script = re.fullmatch("-[a-z]*c", word.text) is not None
        if is_script and program.rpartition("/")[2] in _SHELLS:
            around = command.words[: position - 1] if command.program in WRAPPERS else ()
            return [
                replace(
                    inner,
                    words=(*around, *inner.words),
                    environment={**command.environment, **inner.environment},
                )
                for inner in parse_word(command.words[position + 1])
            ]
    return [command]
