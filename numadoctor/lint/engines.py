"""What makes an engine call mbind and its kin: options, variables, wrappers and images."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from numadoctor.lint.nodes import Word
from numadoctor.lint.workloads import Workload

POLICY_CALLS = ("mbind", "set_mempolicy", "get_mempolicy")
_NUMACTL = ("get_mempolicy", "set_mempolicy")


@dataclass(frozen=True)
class Trigger:
    """Something in a command that makes the process set memory policies.

    :ivar kind: ``option``, ``variable``, ``program`` or ``image``
    :ivar pattern: a regular expression for all of it (for a variable: its name)
    :ivar who: who then makes the calls
    :ivar calls: those without which it fails or does nothing
    :ivar source: where that is to be seen
    """

    kind: str
    pattern: str
    who: str
    calls: tuple[str, ...]
    source: str


# numactl and libnuma begin with numa_available(), which is get_mempolicy.
TRIGGERS = (
    Trigger(
        "program", "numactl", "numactl", _NUMACTL, "numactl.c and numa_available(3) of numactl"
    ),
    Trigger(
        "option", r"--numa-bind(-nodes|-cpus)?(=.*)?", "vLLM", _NUMACTL,
        "vllm/utils/numa_utils.py: workers are started through numactl",
    ),
    Trigger(
        "variable", "VLLM_CPU_OMP_THREADS_BIND", "vLLM's CPU backend", _NUMACTL,
        "vLLM, Installation, CPU; csrc/cpu/utils.cpp",
    ),
    Trigger(
        "image", r".*\bvllm-(cpu|arm64-cpu)\b.*", "vLLM's CPU backend", _NUMACTL,
        "vLLM, Installation, CPU; csrc/cpu/utils.cpp",
    ),
    Trigger(
        "option", r"--numa-node(=.*)?", "SGLang", _NUMACTL,
        "python/sglang/srt/utils/numa_utils.py: numactl, or numa_set_preferred of libnuma",
    ),
    Trigger(
        "variable", "LIGHTLLM_ENABLE_NUMA_INTERLEAVE", "LightLLM", ("mbind",),
        "lightllm/utils/envs_utils.py: interleaves its pool in host memory",
    ),
    Trigger(
        "option", r"--bind_cores_to_rank|--bind_core_list(=.*)?", "DeepSpeed", _NUMACTL,
        "deepspeed/launcher/launch.py and utils/numa.py: ranks are started through numactl",
    ),
    Trigger(
        "program", "ipexrun", "ipexrun", _NUMACTL,
        "intel_extension_for_pytorch/launcher: instances are started through numactl",
    ),
    Trigger(
        "option", r"torch\.backends\.xeon\.run_cpu", "torch.backends.xeon.run_cpu", _NUMACTL,
        "torch/backends/xeon/run_cpu.py: instances are started through numactl",
    ),
)  # fmt: skip

_OFF = frozenset(("", "0", "false", "no", "off", "n", "f", "nobind"))


@dataclass(frozen=True)
class Need:
    """A trigger that was found, and the word it was found in."""

    trigger: Trigger
    word: Word

    @property
    def text(self) -> str:
        """The option, variable or program, as a person would name it."""
        if self.trigger.kind == "variable":
            return f"{self.trigger.pattern}={self.word.shown}"
        return self.word.shown.rpartition("/")[2] or self.word.shown


def needs(workload: Workload) -> list[Need]:
    """What in a workload makes it set memory policies, each trigger once."""
    found: dict[Trigger, Need] = {}
    for trigger in TRIGGERS:
        for word in _matching(workload, trigger):
            found.setdefault(trigger, Need(trigger, word))
    return list(found.values())


def _matching(workload: Workload, trigger: Trigger) -> Iterator[Word]:
    pattern = re.compile(trigger.pattern)
    if trigger.kind == "variable":
        variables = [workload.environment, *(c.environment for c in workload.commands)]
        for environment in variables:
            word = environment.get(trigger.pattern)
            if word is not None and word.text.strip().lower() not in _OFF:
                yield word
    elif trigger.kind == "image" and workload.image and pattern.fullmatch(workload.image.text):
        yield workload.image
    for command in workload.commands:
        for position, word in enumerate(command.words):
            if trigger.kind == "program":
                if word.text.rpartition("/")[2] == trigger.pattern and command.starts(position):
                    yield word
            elif trigger.kind == "option" and pattern.fullmatch(word.text):
                yield word


_ENGINE_WORDS = re.compile(
    r"(?i)\b(vllm|sglang|lightllm|trtllm|tensorrt[-_]?llm|text-generation-inference|tgi"
    r"|ray[-_.]llm|ray\.serve\.llm|llama[-_.]?(?:cpp|server)|ollama|lmdeploy|ktransformers|tritonserver|nim|deepspeed)\b"
)


_OWN = ("VLLM_", "SGLANG_", "LIGHTLLM_")


def is_engine(workload: Workload) -> bool:
    """Whether a workload serves a model, as far as its image and its command tell."""
    texts = [word.text for command in workload.commands for word in command.words]
    texts += [workload.image.text] if workload.image else []
    # What an engine reads its settings from, where a wrapper starts it.
    texts += [name.partition("_")[0] for name in workload.environment if name.startswith(_OWN)]
    return any(_ENGINE_WORDS.search(text) for text in texts)
