"""``numadoctor plan`` on the sample hosts, and what it refuses."""

import io
import json
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import click
import pytest

from numadoctor.cli import main
from numadoctor.cli import plan as command_line
from numadoctor.host import sample_names
from numadoctor.model.plan import PoolBacking, PoolPolicy
from numadoctor.planning.intent import plan_of
from numadoctor.planning.launchers import LAUNCHERS
from tests.cli.programs import Done, numadoctor
from tests.schemas import validate
from tests.trees import parse_tree


def run(*arguments: str) -> Done:
    """In this process: a start takes longer than a plan."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        main(list(arguments))
    written = [stream.buffer.getvalue().decode() for stream in (out, err)]
    assert isinstance(end.value.code, int)
    return Done(end.value.code, *written)


def planned(*arguments: str, code: int = 0) -> Any:
    done = run("plan", *arguments, "-o", "json")
    assert (done.code, done.err) == (code, "")
    data = json.loads(done.out)
    validate("plan", data)
    return data


def told(*arguments: str, code: int = 0) -> str:
    done = run("plan", *arguments)
    assert (done.code, done.err) == (code, "")
    return done.out


def test_the_words_of_the_options_are_those_of_the_library() -> None:
    assert tuple(LAUNCHERS) == command_line.LAUNCHERS
    assert ("auto", *(policy.value for policy in PoolPolicy)) == command_line.MODES
    assert tuple(backing.value for backing in PoolBacking) == command_line.BACKINGS
    assert isinstance(command_line.command, click.Command)


@pytest.mark.parametrize("name", sample_names())
@pytest.mark.parametrize("instances", ["1", "2"])
def test_every_sample_has_a_plan_or_a_refusal(name: str, instances: str) -> None:
    """The text and the data of each, and the data taken back as a plan."""
    arguments = ("--sysroot", f"sample:{name}", "--instances", instances, "--pool-size", "8GiB")
    done = run("plan", *arguments, "-o", "json")
    assert done.err == ""
    data = json.loads(done.out)
    validate("plan", data)
    assert data["fits"] is (done.code == 0)
    assert run("plan", *arguments).code == done.code
    if not data["fits"]:
        assert data["refusal"]["reason"]
        return
    assert len(plan_of(data).instances) == int(instances)
    node_of = {node["node"]: node for node in data["nodes"]}
    taken: list[int] = list(data["reserved_cpus"])
    for instance in data["instances"]:
        taken += instance["cpus"]
        for node in instance["nodes"]:
            assert node_of[node]["left_out"] is None
            assert node_of[node]["kind"] not in ("gpu", "cxl")
        assert {command["launcher"] for command in instance["commands"]} == set(LAUNCHERS)
        for command in instance["commands"]:
            if command["launcher"] in ("numactl", "taskset", "docker", "slurm", "vllm"):
                assert shlex.split(command["text"])
    assert len(taken) == len(set(taken))
    for node in data["nodes"]:
        assert node["planned_bytes"] <= (node["available_bytes"] or 0)


def test_two_sockets() -> None:
    data = planned("--sysroot", "sample:two-socket", "--instances", "2", "--pool-size", "64GiB")
    first, second = data["instances"]
    assert [gpu["node"] for gpu in first["gpu_details"]] == [0, 0, 0, 0]
    assert [gpu["node"] for gpu in second["gpu_details"]] == [1, 1, 1, 1]
    assert (first["policy"], first["nodes"]) == ("bind", [0])
    assert (second["policy"], second["nodes"]) == ("bind", [1])
    assert first["nics"] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]
    assert data["proven"]
    assert not first["given_up"]
    commands = {c["launcher"]: c["text"] for c in second["commands"]}
    assert commands["numactl"] == (
        "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=4,5,6,7 "
        "NCCL_IB_HCA==mlx5_4,mlx5_5,mlx5_6,mlx5_7 "
        "numactl --physcpubind=9-15,25-31 --membind=1 COMMAND"
    )
    assert "NUMAPolicy=bind\nNUMAMask=1" in commands["systemd"]
    assert "--cpuset-mems 1" in commands["docker"]
    assert "SYS_NICE" not in commands["docker"]
    assert "--mem-bind=mask_mem:0x2" in commands["slurm"]
    assert "--numa-bind-nodes 1 1 1 1" in commands["vllm"]
    assert "--hicache-size 17" in commands["sglang"]  # 64 GiB over four, in 10**9 bytes


def test_cores_are_whole() -> None:
    data = planned("--sysroot", "sample:two-socket", "--instances", "4")
    for instance in data["instances"]:
        assert {cpu % 16 for cpu in instance["cpus"] if cpu < 16} == {
            cpu % 16 for cpu in instance["cpus"] if cpu >= 16
        }


def test_memory_of_gpus_is_never_interleaved_over() -> None:
    data = planned(
        "--sysroot", "sample:gpu-memory-nodes", "--pool-size", "64GiB", "--mode", "interleave"
    )
    assert data["instances"][0]["nodes"] == [0, 8]
    assert "--interleave=0,8" in data["instances"][0]["commands"][0]["text"]


def test_a_slower_tier_is_left_out() -> None:
    data = planned("--sysroot", "sample:cxl-tier", "--gpus-per-instance", "0")
    assert data["instances"][0]["nodes"] == [0, 1]
    assert {node["node"]: node["left_out"] for node in data["nodes"]}[2] == "a slower tier"


def test_a_gpu_without_local_memory() -> None:
    text = told("--sysroot", "sample:gpu-on-memoryless-node", "--instances", "2")
    assert "no pool goes to node 1, where its GPUs are (it has no memory)" in text


def test_groups_that_are_asked_for() -> None:
    data = planned("--sysroot", "sample:two-socket", "--group", "0,4", "--group", "0000:2A:00.0,5")
    assert [gpu["index"] for gpu in data["instances"][0]["gpu_details"]] == [0, 4]
    assert [gpu["index"] for gpu in data["instances"][1]["gpu_details"]] == [1, 5]
    assert "as asked" in data["instances"][0]["given_up"][0]
    assert data["instances"][0]["policy"] == "interleave"


def test_gpus_that_are_left_over_are_told() -> None:
    data = planned("--sysroot", "sample:two-socket", "--instances", "3")
    assert [len(instance["gpus"]) for instance in data["instances"]] == [2, 2, 2]
    assert "No instance has GPUs 2-3." in data["remarks"]


def test_fewer_gpus_than_instances_are_no_gpus_at_all() -> None:
    text = told("--sysroot", "sample:one-gpu", "--instances", "2", code=1)
    assert "1 GPU cannot be divided among 2 instances" in text
    planned("--sysroot", "sample:one-gpu", "--instances", "2", "--gpus-per-instance", "0")


def test_a_group_that_no_node_holds() -> None:
    text = told("--sysroot", "sample:two-socket", "--gpus-per-instance", "6", "--pool-size", "8G")
    assert "no node has 6 GPUs" in " ".join(text.split())


def test_huge_pages() -> None:
    data = planned(
        "--sysroot", "sample:two-socket", "--instances", "2", "--pool-size", "3GiB",
        "--page-size", "2MiB",
    )  # fmt: skip
    assert [page["needed"] for page in data["huge_pages"]] == [1536, 1536]
    assert [page["total"] for page in data["huge_pages"]] == [1536, 1536]
    assert "echo 1536 > /sys/devices/system/node/node1/" in data["prepare"][0]["text"]
    assert data["instances"][0]["backing"] == "hugetlb"


def test_kept_cores() -> None:
    data = planned("--sysroot", "sample:two-socket", "--keep-cores", "3")
    assert data["reserved_cpus"] == [0, 1, 2, 8, 9, 10, 16, 17, 18, 24, 25, 26]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--instances", "3", "--pool-size", "400GiB"), "1.2 TiB, and the nodes have 917.9 GiB"),
        (("--instances", "3", "--gpus-per-instance", "3"), "3 × 3 GPUs are 9"),
        (
            ("--group", "0,1", "--group", "2,3", "--pool-size", "300GiB", "--mode", "bind"),
            "node 0 has 458.9 GiB for 600 GiB",
        ),
        (("--instances", "20", "--gpus-per-instance", "0"), "instances need cores of node"),
    ],
)  # fmt: skip
def test_what_cannot_fit_is_refused_with_the_numbers(arguments: list[str], says: str) -> None:
    text = told("--sysroot", "sample:two-socket", *arguments, code=1)
    assert says in " ".join(text.split())
    data = planned("--sysroot", "sample:two-socket", *arguments, code=1)
    assert not data["fits"]


def test_weights_of_the_kernel(scratch: Path) -> None:
    weights = "/sys/kernel/mm/mempolicy/weighted_interleave"
    tree = "use two-socket\n" + "".join(
        f"-- {weights}/node{n} --\n{w}\n" for n, w in ((0, 3), (1, 1))
    )
    arguments = ("--group", "0,4", "--pool-size", "64GiB", "--mode", "weighted-interleave")
    root = parse_tree(tree).build(scratch / "weights")
    (instance,) = planned("--sysroot", str(root), *arguments)["instances"]
    assert instance["shares"] == {"0": 48 << 30, "1": 16 << 30}
    assert (
        "numactl --physcpubind=1-7,9-15,17-23,25-31 --weighted-interleave=0-1"
        in (instance["commands"][0]["text"])
    )
    root = parse_tree(f"use two-socket\n-- {weights} removed --\n").build(scratch / "none")
    text = told("--sysroot", str(root), *arguments, code=1)
    assert "weighted interleave needs Linux 6.9" in " ".join(text.split())


def test_the_size_that_would_fit_does() -> None:
    text = told("--sysroot", "sample:two-socket", "--instances", "3", "--pool-size", "1T", code=1)
    found = re.search(r"--pool-size (\S+)", text)
    assert found is not None
    planned("--sysroot", "sample:two-socket", "--instances", "3", "--pool-size", found[1])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--group", "0,9"), "bad GPU '9': the machine has GPUs 0-7 in bus order"),
        (("--group", "0,0"), "named twice"),
        (("--group", "0", "--group", "0000:18:00.0"), "named twice"),
        (("--group", ","), "a group without a GPU"),
        (("--group", "0", "--instances", "2"), "leave out the numbers"),
        (("--pool-size", "much"), "write it as 64GiB"),
        (("--pool-size", "9999999999T"), "more than any machine has"),
        (("--page-size", "3MiB"), "no size of huge pages"),
        (("--page-size", "2MiB", "--backing", "posix"), "--page-size is for huge pages"),
        (("--instances", "0"), "0 is not in the range"),
        (("--mode", "everywhere"), "everywhere"),
        (("--launcher", "nohup"), "nohup"),
    ],
)
def test_wrong_use_is_one_line(arguments: tuple[str, ...], says: str) -> None:
    done = run("plan", "--sysroot", "sample:two-socket", *arguments)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert "Traceback" not in done.err


def test_launchers_in_text() -> None:
    text = told("--sysroot", "sample:two-socket", "--launcher", "docker", "--launcher", "vllm",
                "--command", "serve 'a model'")  # fmt: skip
    assert "\n  docker\n" in text
    assert "\n  vllm\n" in text
    assert "\n  numactl\n" not in text
    assert "serve 'a model'" in text


def test_the_same_host_gives_the_same_bytes() -> None:
    arguments = ("plan", "--sysroot", "sample:two-socket", "--instances", "4", "-o", "json")
    first = numadoctor(*arguments, env={"PYTHONHASHSEED": "1"})
    second = numadoctor(*arguments, env={"PYTHONHASHSEED": "2"})
    assert first.out == second.out


PAGE = Path(__file__).parents[2] / "docs" / "plan.md"
PRINTED = re.findall(r"(?ms)^```\n\$ numadoctor plan (.*?)\n(.*?)^```$", PAGE.read_text())


@pytest.mark.parametrize(("arguments", "output"), PRINTED, ids=[one[0] for one in PRINTED])
def test_the_plans_of_the_page_are_what_is_printed(
    arguments: str, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert told(*arguments.split()) == output


def test_the_page_shows_the_seven_kinds_of_machines() -> None:
    shown = {name for arguments, _ in PRINTED for name in re.findall(r"sample:(\S+)", arguments)}
    assert shown >= {
        "two-socket", "gpus-permuted", "grace-gpu-memory", "grace-blackwell", "mi300x",
        "vm-unplaced-gpus", "one-gpu",
    }  # fmt: skip


def test_a_gpu_of_unknown_node_stays_unknown() -> None:
    data = planned("--sysroot", "sample:vm-unplaced-gpus", "--instances", "2", "--pool-size", "8G")
    for instance in data["instances"]:
        assert [gpu["node"] for gpu in instance["gpu_details"]] == [None, None]
        assert "is unknown" in instance["assumed"][0]
        assert instance["nodes"] == [0, 1]
        assert instance["nics"] == []


def test_what_was_assumed_is_incomplete_if_strict() -> None:
    told("--sysroot", "sample:vm-unplaced-gpus", "--strict", code=3)
    told("--sysroot", "sample:two-socket", "--strict")
    told("--sysroot", "sample:two-socket", "--strict", "--pool-size", "9T", code=1)


def test_names_of_the_machine_cannot_act_in_commands(scratch: Path) -> None:
    """A captured folder may hold any name: those that are not plain are left out."""
    device = "/sys/devices/pci0000:15/0000:15:03.0/0000:17:00.0"
    tree = parse_tree(
        "use two-socket\n"
        f"-- {device}/infiniband removed --\n"
        f'-- {device}/infiniband/$(reboot)";x/port --\n1\n'
        "-- /proc/driver/nvidia/gpus/0000:18:00.0/information --\n"
        "Model: \t\t \x1b[31mH100\nGPU UUID: \t $(reboot)\nDevice Minor: \t 0\n"
    )
    root = str(tree.build(scratch / "root"))
    data = planned("--sysroot", root, "--instances", "2")
    text = told("--sysroot", root, "--instances", "2", "--launcher", "all")
    assert "reboot" not in json.dumps(data["instances"])
    assert "reboot" not in text
    assert "\x1b" not in text


def test_what_spills_over_is_no_part_of_the_policy() -> None:
    (instance,) = planned(
        "--sysroot", "sample:two-socket", "--group", "0", "--pool-size", "600GiB",
        "--mode", "preferred",
    )["instances"]  # fmt: skip
    assert instance["nodes"] == [0]
    assert set(instance["shares"]) == {"0", "1"}
    assert sum(instance["shares"].values()) == 600 << 30
    assert "--preferred=0 " in instance["commands"][0]["text"]
    assert plan_of({"instances": [instance]}).instances[0].nodes == (0,)


def test_gpus_that_bridges_join_are_kept_together() -> None:
    found = planned("--sysroot", "sample:nvlink-pairs", "--instances", "4")
    groups = [[gpu["index"] for gpu in i["gpu_details"]] for i in found["instances"]]
    assert groups == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert [i["given_up"] for i in found["instances"]] == [[]] * 4
    assert all("each joined to each other (NV12)" in i["why"][0] for i in found["instances"])


def test_links_that_a_group_lacks_are_given_up() -> None:
    given = ("--group", "0,1", "--group", "2,6", "--group", "3,4,7")
    found = planned("--sysroot", "sample:nvlink-pairs", *given)
    lost = [i["given_up"][0] for i in found["instances"]]
    assert lost[0].startswith("GPUs 0-1 are not joined by NVLink, as GPUs 0,2 are (NV12): ")
    assert lost[1].startswith("GPUs 2,6 are not joined by NVLink")
    assert lost[2].startswith("3 of 3 pairs of its GPUs are not joined by NVLink")


def test_gpus_that_are_joined_over_nodes() -> None:
    found = planned("--sysroot", "sample:mi300x", "--instances", "1")
    (lost,) = found["instances"][0]["given_up"]
    assert lost.endswith("though what they exchange is not")


def test_links_that_are_unknown_are_told_where_groups_are_chosen() -> None:
    text = "Which GPUs NVLink joins is unknown (nvidia-ml-py is not installed)"
    base = ("--sysroot", "sample:two-socket")
    assert any(text in remark for remark in planned(*base, "--instances", "2")["remarks"])
    for no_choice in (("--instances", "1"), ("--instances", "8"), ("--group", "0,1")):
        assert not any(text in remark for remark in planned(*base, *no_choice)["remarks"])
