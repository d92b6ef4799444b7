"""``docker run``, ``podman run`` and ``nerdctl run`` in a command line, as workloads."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile

from numadoctor.lint.compose import environment, security_option
from numadoctor.lint.nodes import Node, Word
from numadoctor.lint.nodes import Sequence as NodeSequence
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


# Options that engines do not have, so that they cannot be an argument of the image.
_CONTAINERS_OWN = frozenset(
    """
    --add-host --cap-add --cap-drop --cgroup-parent --cidfile --cpu-period --cpu-quota --cpu-shares
    --cpus --cpuset-cpus --cpuset-mems --detach --device-cgroup-rule --dns --entrypoint --env
    --env-file --expose --gpus --group-add --hostname --init --interactive --ipc --label
    --log-driver --log-opt --memory --memory-swap --mount --name --net --network --oom-score-adj
    --pid --platform --privileged --publish --pull --restart --rm --runtime --security-opt
    --shm-size --sysctl --tmpfs --tty --ulimit --user --userns --uts --volume --volumes-from
    --workdir -it -itd -dit -ti -d
    """.split()  # noqa: SIM905  a list of them would be a page long
)


def container_of(command: Command) -> Workload | None:
    """The container that a command starts, or None where it starts none."""
    words = command.words
    engine = _ENGINES.get(command.program)
    start = next((i for i, word in enumerate(words[:6]) if word.text in _STARTS), 0)
    if engine is None or not start:
        return None
    if words[1].text not in (*_STARTS, "container") and not words[1].text.startswith("-"):
        return None
    options, rest, more = options_of(words[start + 1 :])
    name = f"{command.program} {words[start].text} {_image(rest, options)}"
    return understood(
        name, engine, words[0], partial(_container, name, engine, command, options, rest, more)
    )


def _image(rest: Sequence[Word], options: dict[str, list[Word]]) -> str:
    # A variable may stand for any image: then the container's own name tells it from others.
    named = _last(options, "--name")
    if named and not named.open and rest and rest[0].open:
        return named.text
    return rest[0].text if rest and not rest[0].open else "an image"


def _container(
    name: str, engine: str, command: Command, options: dict[str, list[Word]], rest: list[Word],
    more: Word | None,
) -> Workload:  # fmt: skip
    image = rest[0] if rest else None
    entry = _last(options, "--entrypoint")
    return replace(
        of_options(name, engine, command.words[0], options, more),
        commands=commands_of([*([entry] if entry else []), *rest[1:]]),
        image=image,
        detached="--detach" in options or "-d" in options or command.background,
    )


def of_options(
    name: str, engine: str, at: Node, options: dict[str, list[Word]], more: Word | None = None
) -> Workload:
    """A container as the options of ``docker run`` make it.

    :param more: a word that stands for options which are not known: then none is missing
    """
    return Workload(
        name=name,
        launcher=engine,
        at=at,
        more=more,
        environment=environment(NodeSequence("", 0, 0, list(options.get("--env", [])))),
        privileged=_last(options, "--privileged") or more,
        added=_listed(options, "--cap-add"),
        dropped=_listed(options, "--cap-drop"),
        seccomp=security_option(options.get("--security-opt", [])) or more,
        cpus=_last(options, "--cpuset-cpus"),
        mems=_last(options, "--cpuset-mems"),
        shm=_last(options, "--shm-size") or more,
        ipc=_last(options, "--ipc") or more,
        memlock=_memlock(options.get("--ulimit", [])) or more,
        gpus=_last(options, "--gpus") or _nvidia_device(options),
        runtime=_last(options, "--runtime"),
        devices=tuple(options.get("--device", [])),
    )


def options_of(
    words: Sequence[Word],
) -> tuple[dict[str, list[Word]], list[Word], Word | None]:
    """Options with their values, what stands behind them, and a word that may stand for others.

    Behind them are the image and its command.
    """
    found: dict[str, list[Word]] = {}
    position = 0
    more: Word | None = None
    while position < len(words):
        if _stands_for_options(words, position):
            more, position = words[position], position + 1
            continue
        if not words[position].text.startswith("-"):
            break
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
    return found, list(words[position:]), more


def _stands_for_options(words: Sequence[Word], position: int) -> bool:
    """Whether a variable in front of the image holds options, and is not the image itself."""
    if not words[position].open or words[position].text.startswith("-"):
        return False
    # The words of an array, or of all arguments; nobody names an image so.
    row = list(takewhile(lambda word: word.text.startswith("$"), words[position:]))
    if any(word.text.endswith(("[@]}", "[*]}")) or word.text in ("$@", "$*") for word in row):
        return True
    following = [word.text.partition("=")[0] for word in words[position + 1 :]]
    after = next((name for name in following if not name.startswith("$")), "")
    # `-v HOST:CONTAINER` and `-p 80:80` are Docker's; engines have -v and -p of their own.
    mounted = after in ("-v", "-p") and ":" in "".join(following[1:2])
    return after in _CONTAINERS_OWN or mounted


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
