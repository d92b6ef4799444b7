"""``docker run``, ``podman run`` and ``nerdctl run`` in a command line, as workloads."""

from collections.abc import Iterator, Sequence
from functools import partial

from numadoctor.lint.compose import environment, security_option
from numadoctor.lint.nodes import Sequence as NodeSequence
from numadoctor.lint.nodes import Word
from numadoctor.lint.shell import Command
from numadoctor.lint.workloads import Workload, commands_of, understood

_ENGINES = {"docker": "docker", "podman": "podman", "nerdctl": "docker", "docker.io": "docker"}
_STARTS = ("run", "create")

# Options of docker-run(1) and podman-run(1) that take no value; all others do.
_SWITCHES = frozenset(
    """
    --detach --disable-content-trust --env-host --help --init --interactive --no-healthcheck
    --no-hosts --no-hostname --no-trunc --oom-kill-disable --passwd --privileged --publish-all
    --quiet --read-only --read-only-tmpfs --replace --rm --rmi --rootfs --sig-proxy
    --tls-verify --tty --unsetenv-all --use-api-socket --http-proxy
    """.split()  # noqa: SIM905  a list of them would be a page long
)
_SHORT_SWITCHES = frozenset("ditPqh")
_SHORT = {"-e": "--env", "-m": "--memory", "-v": "--volume", "-c": "--cpu-shares"}


def container_of(command: Command) -> Workload | None:
    """The container that a command starts, or None where it starts none."""
    words = command.words
    engine = _ENGINES.get(command.program)
    start = next((i for i, word in enumerate(words[:6]) if word.text in _STARTS), 0)
    if engine is None or not start:
        return None
    if words[1].text not in (*_STARTS, "container") and not words[1].text.startswith("-"):
        return None
    options, rest = _options(words[start + 1 :])
    name = f"{command.program} {words[start].text} {_image(rest)}"
    return understood(
        name, engine, words[0], partial(_container, name, engine, command, options, rest)
    )


def _image(rest: Sequence[Word]) -> str:
    # A variable in front may stand for an option or for the image.
    return rest[0].text if rest and not rest[0].open else "an image"


def _container(
    name: str, engine: str, command: Command, options: dict[str, list[Word]], rest: list[Word]
) -> Workload:
    image = rest[0] if rest else None
    entry = _last(options, "--entrypoint")
    return Workload(
        name=name,
        launcher=engine,
        at=command.words[0],
        commands=commands_of([*([entry] if entry else []), *rest[1:]]),
        environment=environment(NodeSequence("", 0, 0, list(options.get("--env", [])))),
        image=image,
        privileged=_last(options, "--privileged"),
        added=_listed(options, "--cap-add"),
        dropped=_listed(options, "--cap-drop"),
        seccomp=security_option(options.get("--security-opt", [])),
        cpus=_last(options, "--cpuset-cpus"),
        mems=_last(options, "--cpuset-mems"),
        shm=_last(options, "--shm-size"),
        ipc=_last(options, "--ipc"),
        memlock=_memlock(options.get("--ulimit", [])),
        gpus=_last(options, "--gpus") or _nvidia_device(options),
        runtime=_last(options, "--runtime"),
        devices=tuple(options.get("--device", [])),
        detached="--detach" in options or "-d" in options or command.background,
    )


def _options(words: Sequence[Word]) -> tuple[dict[str, list[Word]], list[Word]]:
    """Options with their values, and what stands behind them: the image and its command."""
    found: dict[str, list[Word]] = {}
    position = 0
    while position < len(words) and words[position].text.startswith("-"):
        word = words[position]
        position += 1
        if word.text == "--":
            break
        for name, value in _option(word):
            if value is None and position < len(words):
                value = words[position]
                position += 1
            if value is not None:
                found.setdefault(name, []).append(value)
    return found, list(words[position:])


def _option(word: Word) -> Iterator[tuple[str, Word | None]]:
    """The option, or the several short ones, of a word; None for a value in the next word."""
    text = word.text
    if text.startswith("--"):
        name, equals, value = text.partition("=")
        if equals:
            column = word.column + len(name) + 1
            yield name, Word(word.file, word.line, column, value, word.style or "'")
        else:
            yield name, _true(word) if name in _SWITCHES else None
        return
    for position, letter in enumerate(text[1:], 1):
        name = _SHORT.get(f"-{letter}", f"-{letter}")
        if letter in _SHORT_SWITCHES:
            yield name, _true(word)
            continue
        value = text[position + 1 :].removeprefix("=")
        yield name, Word(word.file, word.line, word.column, value, "'") if value else None
        return


def _true(word: Word) -> Word:
    return Word(word.file, word.line, word.column, "true")


def _last(options: dict[str, list[Word]], name: str) -> Word | None:
    return options[name][-1] if name in options else None


def _listed(options: dict[str, list[Word]], name: str) -> tuple[Word, ...]:
    """Values that may be given several times, and by commas (podman)."""
    return tuple(
        Word(word.file, word.line, word.column, part, word.style)
        for word in options.get(name, [])
        for part in word.text.split(",")
    )


def _memlock(words: Sequence[Word]) -> Word | None:
    for word in words:
        name, _, value = word.text.partition("=")
        if name == "memlock":
            soft = value.partition(":")[0]
            return Word(word.file, word.line, word.column, soft, word.style or "'")
    return None


def _nvidia_device(options: dict[str, list[Word]]) -> Word | None:
    devices = options.get("--device", [])
    return next(
        (d for d in devices if "nvidia.com/gpu" in d.text or d.text.startswith("/dev/kfd")), None
    )
