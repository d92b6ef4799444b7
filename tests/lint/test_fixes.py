"""The text that a fix tells to write makes its finding go away, and brings no other."""

import pytest

from numadoctor.model import Finding, Fix, Status
from tests.lint.test_hostile import lint

WRONG = (Status.FAIL, Status.WARN, Status.UNKNOWN)


def written(fix: Fix) -> str:
    """The lines to write, without those that explain."""
    return "\n".join(line for line in fix.text.splitlines() if not line.startswith("# "))


def found(name: str, text: str, id: str) -> list[Finding]:
    findings = lint({name: text.encode()}, static=False).findings
    return [f for f in findings if f.id == id and f.status in WRONG]


PROFILE = """\
{"defaultAction": "SCMP_ACT_ERRNO",
 "syscalls": [%s{"names": ["read"], "action": "SCMP_ACT_ALLOW"}]}
"""
SERVICE = "services:\n  vllm:\n    image: vllm/vllm-openai\n    command: [%s]\n"


@pytest.mark.parametrize(
    ("id", "text", "number"),
    [
        ("D002", SERVICE % "--numa-bind", 1),
        ("D007", (SERVICE % "--x") + "    devices: [/dev/infiniband]\n", 0),
        ("D008", SERVICE % '--tp, "8"', 0),
    ],
)
def test_services(id: str, text: str, number: int) -> None:
    (finding,) = found("compose.yaml", text, id)
    line = written(finding.fixes[number])
    assert found("compose.yaml", f"{text}    {line}\n", id) == []


def test_a_capability_stands_beside_those_that_are_there() -> None:
    text = (SERVICE % "--numa-bind") + "    cap_add: [IPC_LOCK]\n"
    (finding,) = found("compose.yaml", text, "D002")
    (line,) = [written(f) for f in finding.fixes if f.text.startswith("cap_add")]
    assert line == "cap_add: [IPC_LOCK, SYS_NICE]"
    assert found("compose.yaml", text.replace("cap_add: [IPC_LOCK]", line), "D002") == []


def test_rights_that_are_not_needed() -> None:
    text = (SERVICE % "--numa-bind") + "    privileged: true\n"
    (finding,) = found("compose.yaml", text, "D013")
    line = written(finding.fixes[-1])
    fixed = text.replace("privileged: true", line)
    for id in ("D013", "D002"):
        assert found("compose.yaml", fixed, id) == []


@pytest.mark.parametrize(
    ("id", "text"),
    [
        ("D003", "[Service]\nExecStart=/usr/bin/numactl -m 0 vllm\nSystemCallFilter=~@resources\n"),
        ("D005", "[Service]\nExecStart=/usr/bin/vllm serve m\nCPUAffinity=0-7\n"),
        ("D007", "[Service]\nExecStart=/usr/bin/llama-server --mlock\n"),
    ],
)
def test_units(id: str, text: str) -> None:
    """The lines of a fix are a drop-in."""
    (finding,) = found("vllm.service", text, id)
    drop_in = written(finding.fixes[0]).replace("NODES", "0")
    files = {"vllm.service": text.encode(), "vllm.service.d/numa.conf": drop_in.encode()}
    again = [f for f in lint(files).findings if f.id == id and f.status in WRONG]
    assert again == []


@pytest.mark.parametrize(
    ("name", "id", "wrong", "text"),
    [
        ("sysctl.d/a.conf", "D014", "vm.swapiness = 10", "%s\n"),
        ("sysctl.d/a.conf", "D015", "kernel.numa_balancing = 1", "%s\n"),
        ("sysctl.d/a.conf", "D015", "vm.zone_reclaim_mode = 1", "%s\n"),
        ("grub", "D021", "transparent_hugepages=madvise", 'GRUB_CMDLINE_LINUX="%s"\n'),
        ("grub", "D021", "numa_balancing=0", 'GRUB_CMDLINE_LINUX="quiet %s"\n'),
        ("grub", "D021", "hugepages=64 hugepagesz=1G", 'GRUB_CMDLINE_LINUX="%s"\n'),
        ("gres.conf", "D020", "", "%s\nName=gpu File=/dev/nvidia0\n"),
        ("slurm.conf", "D020", "TaskPlugin=task/none", "ClusterName=a\n%s\n"),
        (
            "kubelet.yaml", "D012", "limits: {memory: 1Gi}",
            "apiVersion: k/v1\nkind: KubeletConfiguration\nmemoryManagerPolicy: Static\n"
            "reservedMemory: [{numaNode: 0, %s}]\n",
        ),
        (
            "kubelet.yaml", "D012", "",
            "apiVersion: k/v1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\n%s\n",
        ),
        (
            "pod.yaml", "D009", "hugepages-2Mi: 1Gi",
            "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: a, resources: {requests: "
            "{memory: 1Gi, %s}, limits: {memory: 1Gi, hugepages-2Mi: 2Gi}}}]}\n",
        ),
    ],
)  # fmt: skip
def test_lines_that_are_replaced(name: str, id: str, wrong: str, text: str) -> None:
    (finding,) = found(name, text % wrong, id)
    assert found(name, text % written(finding.fixes[0]), id) == []


def test_a_profile_is_opened_by_the_entry_that_is_given() -> None:
    (finding,) = found("numa.json", PROFILE % "", "D004")
    assert found("numa.json", PROFILE % (written(finding.fixes[0]) + ", "), "D004") == []


def test_a_service_is_given_such_a_profile() -> None:
    text = SERVICE % "--numa-bind"
    (finding,) = found("compose.yaml", text, "D002")
    option, entry = written(finding.fixes[0]).splitlines()
    files = {"numa.json": PROFILE % (entry + ", "), "compose.yaml": f"{text}    {option}\n"}
    report = lint({name: content.encode() for name, content in files.items()})
    assert [f.status for f in report.findings if f.id == "D002"] == [Status.PASS]


def test_commands() -> None:
    text = "#!/bin/sh\ndocker run%s vllm/vllm-openai --numa-bind\n"
    (finding,) = found("run.sh", text % "", "D002")
    option = next(written(f) for f in finding.fixes if f.text.startswith("--cap-add"))
    assert found("run.sh", text % f" {option}", "D002") == []
    text = "#!/bin/sh\ndocker run --cpuset-cpus 0-7%s img serve\n"
    (finding,) = found("run.sh", text % "", "D005")
    option = written(finding.fixes[0]).replace("NODES", "0")
    assert found("run.sh", text % f" {option}", "D005") == []


def test_names_with_several_lines_add_no_line_to_a_fix() -> None:
    text = """
services:
  "a\\nrm -rf /":
    image: vllm/vllm-openai
    command: --numa-bind
    cpuset: "0-3"
  b: {image: vllm/vllm-openai, command: --numa-bind, cap_add: ["SYS_PTRACE\\nrm -rf /"]}
"""
    fixes = [fix for id in ("D002", "D005", "D008") for finding in found("compose.yaml", text, id)
             for fix in finding.fixes]  # fmt: skip
    assert any("in service a rm -rf /" in fix.text for fix in fixes)
    assert not [fix for fix in fixes if "\nrm" in fix.text]
