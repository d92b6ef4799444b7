"""Units, sysctls, boot options, Slurm's files, docker's options: places and meanings."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.lint import docker
from numadoctor.lint.devcontainer import without_comments
from numadoctor.lint.documents import Files
from numadoctor.lint.gathering import gather
from numadoctor.lint.lines import parse_boot, parse_modprobe, parse_slurm, parse_sysctl, parse_unit
from numadoctor.lint.nodes import Refused
from numadoctor.lint.reading import Source, decode
from numadoctor.lint.shell import parse_shell
from numadoctor.lint.workloads import Workload

UNIT = """\
# comment
[Unit]
Description=x
[Service]
Environment=A=1 "B=2 3"
ExecStart=-/usr/bin/numactl \\
# between the lines
  --membind=0 \\
  /usr/bin/vllm serve
SystemCallFilter=~@resources
SystemCallFilter=
SystemCallFilter = mbind
"""


def documents(**files: str) -> list[Workload]:
    sources = [
        Source(f"/x/{name.replace('__', '.')}", text.encode()) for name, text in files.items()
    ]
    return [w for document in gather(sources, Files()).documents for w in document.workloads]


def test_a_unit() -> None:
    settings = parse_unit(UNIT, "f")
    last = settings[-1]
    assert (last.section, last.name.text, last.value.text) == (
        "Service",
        "SystemCallFilter",
        "mbind",
    )
    assert (last.value.line, last.value.column) == (12, 20)
    (workload,) = documents(vllm__service=UNIT)
    words = [(w.text, w.line, w.column) for w in workload.commands[0].words]
    assert words == [
        ("/usr/bin/numactl", 6, 12), ("--membind=0", 8, 3),
        ("/usr/bin/vllm", 9, 3), ("serve", 9, 17),
    ]  # fmt: skip
    assert {n: w.text for n, w in workload.environment.items()} == {"A": "1", "B": "2 3"}


def test_an_empty_assignment_starts_a_list_anew() -> None:
    (document,) = gather([Source("/x/vllm.service", UNIT.encode())], Files()).documents
    assert [s.value.text for s in document.content.values("SystemCallFilter")] == ["mbind"]


def test_a_quadlet_container() -> None:
    (workload,) = documents(
        llm__container="[Container]\nImage=vllm/vllm-openai\nExec=--numa-bind\n"
        "AddCapability=SYS_NICE IPC_LOCK\nPodmanArgs=--cpuset-cpus=0-7 --cpuset-mems 0\n"
        "Ulimit=memlock=-1:-1\nShmSize=16g\nSeccompProfile=/x.json\n"
    )
    assert workload.launcher == "quadlet"
    assert [w.text for w in workload.added] == ["SYS_NICE", "IPC_LOCK"]
    texts = {
        name: getattr(workload, name).text for name in ("cpus", "mems", "memlock", "shm", "seccomp")
    }
    assert texts == {
        "cpus": "0-7",
        "mems": "0",
        "memlock": "-1",
        "shm": "16g",
        "seccomp": "/x.json",
    }


def test_sysctls() -> None:
    found = parse_sysctl("; x\n-vm/swappiness=1\n net.ipv4.conf.eth0/1.x = 2\n-vm.foo\n", "f")
    assert [(s.name.text, s.value.text) for s in found] == [
        ("vm.swappiness", "1"), ("net.ipv4.conf.eth0/1.x", "2"),
    ]  # fmt: skip
    with pytest.raises(Refused):
        parse_sysctl("what\n", "f")


def test_files_of_settings_are_bounded() -> None:
    for text in ("vm.swappiness=1\n" * 20_001, "a\n=" * 20_001):
        with pytest.raises(Refused):
            parse_sysctl(text, "f")
    with pytest.raises(Refused, match="words in a line"):
        parse_boot("quiet " * 20_002, "f")


def test_boot_options() -> None:
    grub = parse_boot('GRUB_TIMEOUT=5\nexport GRUB_CMDLINE_LINUX_DEFAULT="quiet numa=off"\n', "f")
    assert [(s.name.text, s.value.text, s.name.line, s.name.column) for s in grub] == [
        ("quiet", "", 2, 36), ("numa", "off", 2, 42),
    ]  # fmt: skip
    entry = parse_boot("title x\noptions root=/dev/sda numa=off\n", "f")
    assert [s.name.text for s in entry] == ["root", "numa"]
    assert [s.name.text for s in parse_boot('root=/dev/sda dyndbg="file a +p" numa=off', "f")] == [
        "root", "dyndbg", "numa",
    ]  # fmt: skip


def test_modprobe() -> None:
    found = parse_modprobe("options nvidia A=1 B=2\nblacklist nouveau\n", "f")
    assert [(module.text, s.name.text, s.value.text) for module, s in found] == [
        ("nvidia", "A", "1"), ("nvidia", "B", "2"),
    ]  # fmt: skip


def test_slurm() -> None:
    text = "NodeName=a Name=gpu File=/dev/nvidia0 \\\n  Cores=0-3 # near\nAutoDetect=nvml\n"
    first, second = parse_slurm(text, "f")
    assert {name: s.value.text for name, s in first.items()} == {
        "nodename": "a", "name": "gpu", "file": "/dev/nvidia0", "cores": "0-3",
    }  # fmt: skip
    assert list(second) == ["autodetect"]


def container(text: str) -> Workload | None:
    (command,) = parse_shell(text, "f")
    return docker.container_of(command)


@pytest.mark.parametrize(
    "text",
    [
        "docker run -itd --rm -e A=1 -v /a:/b --cpuset-cpus=0-7 --cap-add SYS_NICE img numactl x",
        "docker container run -it -eA=1 --cpuset-cpus 0-7 --cap-add=SYS_NICE img numactl x",
        "podman run --env A=1 --init=false --cpuset-cpus 0-7 --cap-add SYS_NICE img numactl x",
        "docker --context c run -t -e A=1 --cpuset-cpus 0-7 --cap-add SYS_NICE -- img numactl x",
        "nerdctl run -p 80:80 -e A=1 --cpuset-cpus 0-7 --cap-add SYS_NICE img numactl x",
    ],
)
def test_docker_run(text: str) -> None:
    found = container(text)
    assert found is not None
    assert found.image is not None
    assert found.cpus is not None
    assert (found.image.text, found.cpus.text) == ("img", "0-7")
    assert [word.text for word in found.added] == ["SYS_NICE"]
    assert {name: word.text for name, word in found.environment.items()} == {"A": "1"}
    assert [word.text for word in found.commands[0].words] == ["numactl", "x"]


@pytest.mark.parametrize(
    "text", ["docker ps", "docker compose run x", "docker exec -it c numactl -H", "run x"]
)
def test_commands_that_start_no_container(text: str) -> None:
    assert container(text) is None


@pytest.mark.parametrize(
    ("text", "image", "open_options"),
    [
        ("docker run $OPTS --gpus all img x", "img", "$OPTS"),
        ("docker run $OPTS -v /a:/b img x", "img", "$OPTS"),
        ("docker run $A $B --ipc=host $IMAGE --model m", "$IMAGE", "$B"),
        ('docker run "$@" img', "img", "$@"),
        ("docker run $IMAGE --model m -v", "$IMAGE", None),
        ("docker run --gpus all ${IMAGE:-x} -p 5", "${IMAGE:-x}", None),
        ("docker run -v $HOME:/x img --env", "img", None),
    ],
)
def test_variables_in_front_of_the_image(text: str, image: str, open_options: str | None) -> None:
    found = container(text)
    assert found is not None
    assert found.image is not None
    assert found.image.text == image
    assert (found.more.text if found.more else None) == open_options
    # What is not known to be missing is not missing.
    for word in (found.privileged, found.seccomp, found.shm, found.memlock):
        assert (word is None) == (open_options is None)


def test_a_devcontainer() -> None:
    text = """// comment
    {"image": "vllm//x", /* two
    lines */ "runArgs": ["--cpuset-cpus", "0-7", "--cap-add=SYS_NICE"], // "image": "y"
    "capAdd": ["IPC_LOCK"], "securityOpt": ["seccomp=unconfined"], "privileged": true,
    "containerEnv": {"A": "http://b"},}
    """
    (workload,) = documents(devcontainer__json=text)
    texts = {
        name: getattr(workload, name).text for name in ("image", "cpus", "seccomp", "privileged")
    }
    assert texts == {
        "image": "vllm//x", "cpus": "0-7", "seccomp": "unconfined", "privileged": "true",
    }  # fmt: skip
    assert [w.text for w in workload.added] == ["SYS_NICE", "IPC_LOCK"]
    assert workload.environ() == {"A": "http://b"}
    assert workload.cpus is not None
    assert (workload.cpus.line, workload.cpus.column) == (3, 43)


@given(st.text(st.sampled_from('/*"\\\n ,{}a'), max_size=40))
def test_comments_leave_all_else_in_its_place(text: str) -> None:
    kept = without_comments(text)
    assert len(kept) == len(text)
    assert [n for n, c in enumerate(kept) if c == "\n"] == [
        n for n, c in enumerate(text) if c == "\n"
    ]
    assert all(one in (other, " ") for one, other in zip(kept, text, strict=True))


@given(st.lists(st.text(max_size=8), max_size=8))
def test_any_words_behind_docker_run(words: list[str]) -> None:
    import shlex

    text = shlex.join(["docker", "run", *(w.replace("\0", "").replace("\r", "") for w in words)])
    for command in parse_shell(text, "f"):
        found = docker.container_of(command)
        assert found is not None


@given(st.text(max_size=120))
def test_any_text_in_formats_of_lines(text: str) -> None:
    for parse in (parse_unit, parse_sysctl, parse_modprobe, parse_boot, parse_slurm):
        with contextlib.suppress(Refused):
            parse(text, "f")


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    with contextlib.suppress(Refused):
        assert isinstance(decode(data), str)
