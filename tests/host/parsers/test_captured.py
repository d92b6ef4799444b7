"""The parsers against machines captured elsewhere, if the archives stand beside the repository."""

import json
import re
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from numadoctor.host import parsers

HOSTS = Path(__file__).resolve().parents[4] / "shared" / "hosts"
EXPECTED: dict[str, Any] = (
    json.loads((HOSTS / "expected.json").read_text()) if HOSTS.is_dir() else {}
)

pytestmark = pytest.mark.skipif(not EXPECTED, reason="../shared/hosts is not there")

PARSER_OF = {
    "class": parsers.parse_hex,
    "cmdline": parsers.parse_command_line,
    "core_id": parsers.parse_integer,
    "core_siblings": parsers.parse_map,
    "cpuinfo": parsers.parse_cpuinfo,
    "cpulist": parsers.parse_list,
    "cpumap": parsers.parse_map,
    "cpuset.cpus": parsers.parse_list,
    "cpuset.cpus.effective": parsers.parse_list,
    "cpuset.mems": parsers.parse_list,
    "cpuset.mems.effective": parsers.parse_list,
    "device": parsers.parse_hex,
    "distance": parsers.parse_distance,
    "has_cpu": parsers.parse_list,
    "has_memory": parsers.parse_list,
    "has_normal_memory": parsers.parse_list,
    "isolated": parsers.parse_list,
    "local_cpulist": parsers.parse_list,
    "local_cpus": parsers.parse_map,
    "meminfo": parsers.parse_meminfo,
    "mounts": parsers.parse_mounts,
    "nr_hugepages": parsers.parse_integer,
    "numa_node": parsers.parse_integer,
    "numa_status": parsers.parse_key_values,
    "numastat": parsers.parse_counters,
    "offline": parsers.parse_list,
    "online": parsers.parse_list,
    "physical_package_id": parsers.parse_integer,
    "possible": parsers.parse_list,
    "read_bandwidth": parsers.parse_integer,
    "thread_siblings": parsers.parse_map,
    "vendor": parsers.parse_hex,
}

_TREES = re.compile(
    r"proc/|sys/devices/system/|sys/fs/cgroup/|sys/kernel/mm/|"
    r"sys/devices/pci[^/]+/(?:[0-9a-f:.]+/)*(?:class|device|vendor|numa_node|local_cpus|local_cpulist)$"
)


@cache
def files(archive: str) -> dict[str, bytes]:
    """The archive's files below its root, by path."""
    root = EXPECTED[archive]["folder"] + "/"
    found = {}
    with tarfile.open(HOSTS / archive) as tar:
        for member in tar:
            path = member.name.removeprefix("./").removeprefix(root)
            if member.isfile() and _TREES.match(path):
                file = tar.extractfile(member)
                assert file is not None
                found[path] = file.read()
    return found


@pytest.mark.parametrize("archive", EXPECTED)
def test_every_file_is_understood(archive: str) -> None:
    understood = 0
    for path, data in files(archive).items():
        parse = PARSER_OF.get(path.rpartition("/")[2])
        if parse is not None:
            parse(data)
            understood += 1
    assert understood > 2


@pytest.mark.parametrize("archive", EXPECTED)
def test_nodes_are_as_read_by_others(archive: str) -> None:
    tree = files(archive)
    folder = "sys/devices/system/node/"
    ids = parsers.numbered({path.split("/")[4] for path in tree if path.startswith(folder)}, "node")
    nodes = EXPECTED[archive].get("nodes", {})
    assert set(map(str, ids)) == set(nodes)
    for node, facts in nodes.items():
        base = f"{folder}node{node}"
        assert parsers.parse_map(tree[f"{base}/cpumap"]) == tuple(facts["cpus"])
        memory = parsers.parse_meminfo(tree[f"{base}/meminfo"])["MemTotal"]
        assert memory == facts["memory_bytes"]
        assert parsers.parse_distance(tree[f"{base}/distance"]) == tuple(facts["distance"])
