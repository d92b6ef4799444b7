"""Whatever stands in a file, lint says something about it and never crashes."""

import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numadoctor.engine import Scope
from numadoctor.engine.discovery import discover
from numadoctor.engine.runner import run_on_files
from numadoctor.host import Host, open_root
from numadoctor.lint.documents import Files
from numadoctor.lint.gathering import gather
from numadoctor.lint.reading import Source
from numadoctor.model import Report, Status
from tests.trees import parse_tree

EXAMPLES = Path(__file__).parents[1] / "checks"
CHECKS = [check for check in discover() if check.scope is Scope.FILE]
MACHINE = Host(open_root("sample:two-socket"))
NAMES = (
    "compose.yaml", "pod.json", "vllm.service", "vllm.service.d/a.conf", "engine.container",
    "sysctl.d/a.conf", "modprobe.d/a.conf", "grub", "boot.cmdline", "gres.conf", "slurm.conf",
    "topo.xml", "run.sh", "job.sbatch", "noending", "devcontainer.json", "kubelet.service",
    "default/kubelet", "a.env", "kustomization.yaml", "kubelet.conf.d/a.conf", "llm.slice",
)  # fmt: skip


def lint(files: dict[str, bytes], machine: Host | None = None, *, static: bool = True) -> Report:
    sources = [Source(os.path.join("/nowhere", name), data) for name, data in files.items()]
    found = gather(sources, Files(machine=machine, static=static))
    return run_on_files(machine, CHECKS, found.documents, name="hostile")


def crashes(report: Report) -> list[str]:
    """Checks that crashed, and messages that no line or screen holds."""
    return [
        f"{f.id}: {f.message} {f.evidence}"
        for f in report.findings
        if f.status is Status.ERROR or "\n" in f.message or len(f.message) > 1000
    ]


def examples() -> list[tuple[str, str]]:
    found = []
    for path in sorted(EXAMPLES.glob("D0*/*.tree")):
        for name, text in parse_tree(path.read_text()).files.items():
            if not name.startswith(("/sys", "/var")):
                found.append((name[1:], text))
    return found


FILES = examples()

# What files of these kinds are made of, so that chance makes something of them.
PARTS = st.sampled_from(
    ["\n", " ", "  ", ":", "- ", "[", "]", "{", "}", '"', "'", "=", "|", "#", "\\\n", "\t", "&a ",
     "*a", "<<: ", "0", "-1", "0-7", "99999999999999999999", "{{ x }}", "${X}", "$(", "`", "%i",
     "numactl", "--membind=", "docker run", "services", "apiVersion: v1\nkind: Pod\n", "command",
     "[Service]", "ExecStart=", "CPUAffinity=", "SystemCallFilter=", "~@resources", "\x00",
     "\ud7ff", "é", "--tp", "containers", "limits", "null", "~", "1e999", "<cpu numaid='0'", "/>",
     "Cores=", "extends: ", "include: ", "file: ", "!reset ", "!override ", "/usr/bin/kubelet ",
     "--reserved-memory=", "A=(", "${A[@]}", "EnvironmentFile=", "Slice=llm.slice\n", "//", "/*"]
)  # fmt: skip


@given(st.sampled_from(NAMES), st.binary(max_size=200))
def test_any_bytes(name: str, data: bytes) -> None:
    assert crashes(lint({name: data})) == []


@settings(max_examples=150)
@given(st.sampled_from(NAMES), st.lists(PARTS, max_size=40))
def test_any_parts(name: str, parts: list[str]) -> None:
    assert crashes(lint({name: "".join(parts).encode("utf-8", "replace")}, MACHINE)) == []


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FILES), st.randoms(use_true_random=False), PARTS)
def test_examples_with_faults(file: tuple[str, str], chance: random.Random, part: str) -> None:
    """Files that are understood, with a piece cut out, moved, or put in."""
    name, text = file
    for _ in range(chance.randint(1, 4)):
        begin = chance.randint(0, len(text))
        end = min(len(text), begin + chance.randint(0, 12))
        piece = chance.choice(["", part, text[end : end + 8]])
        text = text[:begin] + piece + text[end:]
    data = text.encode("utf-8", "replace")
    for machine in (None, MACHINE):
        assert crashes(lint({name: data}, machine)) == []


TOGETHER = {
    "compose.yaml": "include: [inner.yaml]\nservices:\n  e: {extends: {file: base.yml, service: b},"
    " cpuset: 0-7, cap_add: !reset [], environment: [A=1]}\n  f: {extends: e, command: x}\n",
    "compose.override.yaml": "services: {e: {ulimits: {memlock: -1}, environment: {A: 2}}}\n",
    "base.yml": "services: {b: {image: vllm, ulimits: {memlock: {soft: 1}}, devices: [/dev/x]}}\n",
    "inner.yaml": "include: [compose.yaml]\nservices: {e: {image: y}, g: {image: z}}\n",
    "devcontainer.json": '{"dockerComposeFile": ["compose.yaml", "base.yml"]} // x\n',
    "kubelet.service": "[Service]\nEnvironmentFile=/etc/default/kubelet\nSlice=llm.slice\n"
    "ExecStart=/usr/bin/kubelet --config=/kubelet.yaml --config-dir=/kubelet.conf.d $ARGS\n",
    "etc/default/kubelet": "ARGS='--cpu-manager-policy=static --reserved-memory=0:memory=1Gi'\n",
    "kubelet.yaml": "apiVersion: k/v1\nkind: KubeletConfiguration\nkubeReserved: {cpu: 1}\n",
    "kubelet.conf.d/a.conf": "apiVersion: k/v1\nkind: KubeletConfiguration\nkubeReserved: null\n",
    "llm.slice": "[Slice]\nAllowedMemoryNodes=0\n",
}


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False), st.lists(PARTS, min_size=1, max_size=3))
def test_files_that_belong_together_with_faults(chance: random.Random, parts: list[str]) -> None:
    files = dict(TOGETHER)
    for part in parts:
        name = chance.choice(sorted(files))
        text = files[name]
        begin = chance.randint(0, len(text))
        end = min(len(text), begin + chance.randint(0, 9))
        files[name] = text[:begin] + chance.choice(["", part, part + "\n"]) + text[end:]
    data = {name: text.encode("utf-8", "replace") for name, text in files.items()}
    assert crashes(lint(data, MACHINE)) == []


@pytest.mark.parametrize(
    "value", ["[]", "{}", "[[x]]", "{a: b}", "null", "''", "3", "true", "|\n  x", "'a b \"'", "- -"]
)
def test_values_of_any_type(value: str) -> None:
    """Wherever a manifest has a value, another kind of value may stand."""
    keys = {
        "services: {s: {image: i, %s: %s}}\n": (
            "image", "command", "entrypoint", "environment", "cap_add", "cap_drop", "privileged",
            "security_opt", "cpuset", "shm_size", "ipc", "ulimits", "deploy", "devices", "gpus",
            "runtime", "tmpfs", "extends", "labels", "volumes",
        ),
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers: "
        "[{name: c, image: vllm, %s: %s}]\n": (
            "command", "args", "env", "resources", "securityContext", "volumeMounts", "image",
        ),
        "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: vllm}], %s: %s}\n": (
            "volumes", "hostIPC", "securityContext", "initContainers", "runtimeClassName",
        ),
        "apiVersion: k/v1\nkind: KubeletConfiguration\n%s: %s\n": (
            "cpuManagerPolicy", "memoryManagerPolicy", "reservedMemory", "kubeReserved",
            "evictionHard", "topologyManagerPolicy", "topologyManagerPolicyOptions",
        ),
        "services: {s: {image: %s}}\ninclude: %s\n": ("x",),
        "apiVersion: v1\nkind: Pod\nspec: {resourceClaims: [{%s: %s}], containers: [{name: vllm,"
        " resources: {claims: [{name: a}]}}]}\n": ("name",),
        "apiVersion: kubeadm/v1beta4\nkind: JoinConfiguration\nnodeRegistration: {%s: %s}\n": (
            "kubeletExtraArgs",
        ),
        "apiVersion: ray.io/v1\nkind: RayCluster\nspec: {%s: %s}\n": ("headGroupSpec",),
        '{"defaultAction": "SCMP_ACT_ERRNO", "%s": %s}\n': (
            "syscalls", "archMap", "defaultErrnoRet",
        ),
    }  # fmt: skip
    for frame, names in keys.items():
        for name in names:
            text = frame % (name, value)
            for machine in (None, MACHINE):
                assert crashes(lint({"a.yaml": text.encode()}, machine)) == [], text
