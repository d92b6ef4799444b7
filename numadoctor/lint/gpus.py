"""How many GPUs a workload uses, and which, as far as its file tells."""

import re
from dataclasses import dataclass

from numadoctor.lint.nodes import Word
from numadoctor.lint.workloads import Workload

_PARALLEL = ("--tensor-parallel-size", "-tp", "--tp", "--tp-size", "--tp_size", "--num-shard")
_DEVICES = re.compile(r"device=([0-9,]+)")
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Gpus:
    """GPUs of a workload.

    :ivar word: what says so
    :ivar indices: their numbers, where they are named
    """

    word: Word
    indices: tuple[int, ...]
    number: int


def gpus_of(workload: Workload) -> Gpus | None:
    """The GPUs that a workload uses, or None where the file does not tell how many.

    Named ones come first; then the number that is asked for, and the degree of
    tensor parallelism, of which each rank has a GPU.
    """
    return _visible(workload) or _asked(workload.gpus) or _parallel(workload)


def _visible(workload: Workload) -> Gpus | None:
    for environment in (workload.environment, *(c.environment for c in workload.commands)):
        for name in _VISIBLE:
            word = environment.get(name)
            if word and re.fullmatch(r"[0-9]{1,4}(,[0-9]{1,4})*", word.text):
                indices = tuple(map(int, word.text.split(",")))
                return Gpus(word, indices, len(indices))
    return None


def _asked(word: Word | None) -> Gpus | None:
    if word is None:
        return None
    named = _DEVICES.search(word.text)
    if named:
        indices = tuple(int(part) for part in named[1].split(",") if 0 < len(part) < 5)
        return Gpus(word, indices, len(indices)) if indices else None
    # `--gpus all` and `count: all` do not tell a number.
    return Gpus(word, (), int(word.text)) if re.fullmatch("[0-9]{1,4}", word.text) else None


def _parallel(workload: Workload) -> Gpus | None:
    for command in workload.commands:
        for position, word in enumerate(command.words):
            name, equals, value = word.text.partition("=")
            if name not in _PARALLEL:
                continue
            after = command.words[position + 1 : position + 2]
            text = value if equals else (after[0].settled() if after else "")
            if re.fullmatch("[0-9]{1,4}", text):
                return Gpus(word, (), int(text))
    return None
