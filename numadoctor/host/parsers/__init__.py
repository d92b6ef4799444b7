"""Readers of kernel text: pure functions from bytes to values.

They raise numadoctor.model.ParseError for input that has no meaning, and
nothing else, whatever the bytes.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from numadoctor.model.errors import ParseError as ParseError

_NAMES = {
    "lists": "MAX_ID format_list mask_digits numbered parse_isolcpus parse_list parse_map",
    "maps": "Backing Maps MapsLine parse_backing parse_maps",
    "nccl": "NcclCpu NcclDevice NcclLink NcclTopology parse_nccl_topology",
    "node": "BuddyRow Zone parse_buddyinfo parse_counters parse_distance parse_meminfo "
    "parse_page_size_dir parse_zoneinfo",
    "numa_maps": "GroupedNumaMaps NumaMaps NumaMapsLine NumaMapsPages SameLines "
    "parse_grouped_numa_maps parse_numa_maps parse_policy",
    "oom": "OomKill parse_oom_kill",
    "pci": "Acs parse_acs parse_bus_id parse_key_values parse_kfd_properties parse_link_speed",
    "process": "CgroupMembership Limit ProcStatus parse_argv parse_environ parse_limits "
    "parse_proc_cgroup parse_status",
    "scalars": "Choice parse_choice parse_flag parse_hex parse_integer parse_size parse_text "
    "parse_weight parse_words",
    "smaps": "Smaps SmapsEntry parse_smaps parse_smaps_rollup",
    "system": "CpuInfo Mount MountInfo Swap parse_cgroup_limit parse_command_line parse_cpuinfo "
    "parse_mountinfo parse_mounts parse_swaps",
    "task": "ProcStat Sched SysvSegment parse_sched parse_stat parse_sysvipc_shm",
}

if TYPE_CHECKING:
    from numadoctor.host.parsers.lists import MAX_ID as MAX_ID
    from numadoctor.host.parsers.lists import format_list as format_list
    from numadoctor.host.parsers.lists import mask_digits as mask_digits
    from numadoctor.host.parsers.lists import numbered as numbered
    from numadoctor.host.parsers.lists import parse_isolcpus as parse_isolcpus
    from numadoctor.host.parsers.lists import parse_list as parse_list
    from numadoctor.host.parsers.lists import parse_map as parse_map
    from numadoctor.host.parsers.maps import Backing as Backing
    from numadoctor.host.parsers.maps import Maps as Maps
    from numadoctor.host.parsers.maps import MapsLine as MapsLine
    from numadoctor.host.parsers.maps import parse_backing as parse_backing
    from numadoctor.host.parsers.maps import parse_maps as parse_maps
    from numadoctor.host.parsers.nccl import NcclCpu as NcclCpu
    from numadoctor.host.parsers.nccl import NcclDevice as NcclDevice
    from numadoctor.host.parsers.nccl import NcclLink as NcclLink
    from numadoctor.host.parsers.nccl import NcclTopology as NcclTopology
    from numadoctor.host.parsers.nccl import parse_nccl_topology as parse_nccl_topology
    from numadoctor.host.parsers.node import BuddyRow as BuddyRow
    from numadoctor.host.parsers.node import Zone as Zone
    from numadoctor.host.parsers.node import parse_buddyinfo as parse_buddyinfo
    from numadoctor.host.parsers.node import parse_counters as parse_counters
    from numadoctor.host.parsers.node import parse_distance as parse_distance
    from numadoctor.host.parsers.node import parse_meminfo as parse_meminfo
    from numadoctor.host.parsers.node import parse_page_size_dir as parse_page_size_dir
    from numadoctor.host.parsers.node import parse_zoneinfo as parse_zoneinfo
    from numadoctor.host.parsers.numa_maps import GroupedNumaMaps as GroupedNumaMaps
    from numadoctor.host.parsers.numa_maps import NumaMaps as NumaMaps
    from numadoctor.host.parsers.numa_maps import NumaMapsLine as NumaMapsLine
    from numadoctor.host.parsers.numa_maps import NumaMapsPages as NumaMapsPages
    from numadoctor.host.parsers.numa_maps import SameLines as SameLines
    from numadoctor.host.parsers.numa_maps import (
        parse_grouped_numa_maps as parse_grouped_numa_maps,
    )
    from numadoctor.host.parsers.numa_maps import parse_numa_maps as parse_numa_maps
    from numadoctor.host.parsers.numa_maps import parse_policy as parse_policy
    from numadoctor.host.parsers.oom import OomKill as OomKill
    from numadoctor.host.parsers.oom import parse_oom_kill as parse_oom_kill
    from numadoctor.host.parsers.pci import Acs as Acs
    from numadoctor.host.parsers.pci import parse_acs as parse_acs
    from numadoctor.host.parsers.pci import parse_bus_id as parse_bus_id
    from numadoctor.host.parsers.pci import parse_key_values as parse_key_values
    from numadoctor.host.parsers.pci import parse_kfd_properties as parse_kfd_properties
    from numadoctor.host.parsers.pci import parse_link_speed as parse_link_speed
    from numadoctor.host.parsers.process import CgroupMembership as CgroupMembership
    from numadoctor.host.parsers.process import Limit as Limit
    from numadoctor.host.parsers.process import ProcStatus as ProcStatus
    from numadoctor.host.parsers.process import parse_argv as parse_argv
    from numadoctor.host.parsers.process import parse_environ as parse_environ
    from numadoctor.host.parsers.process import parse_limits as parse_limits
    from numadoctor.host.parsers.process import parse_proc_cgroup as parse_proc_cgroup
    from numadoctor.host.parsers.process import parse_status as parse_status
    from numadoctor.host.parsers.scalars import Choice as Choice
    from numadoctor.host.parsers.scalars import parse_choice as parse_choice
    from numadoctor.host.parsers.scalars import parse_flag as parse_flag
    from numadoctor.host.parsers.scalars import parse_hex as parse_hex
    from numadoctor.host.parsers.scalars import parse_integer as parse_integer
    from numadoctor.host.parsers.scalars import parse_size as parse_size
    from numadoctor.host.parsers.scalars import parse_text as parse_text
    from numadoctor.host.parsers.scalars import parse_weight as parse_weight
    from numadoctor.host.parsers.scalars import parse_words as parse_words
    from numadoctor.host.parsers.smaps import Smaps as Smaps
    from numadoctor.host.parsers.smaps import SmapsEntry as SmapsEntry
    from numadoctor.host.parsers.smaps import parse_smaps as parse_smaps
    from numadoctor.host.parsers.smaps import parse_smaps_rollup as parse_smaps_rollup
    from numadoctor.host.parsers.system import CpuInfo as CpuInfo
    from numadoctor.host.parsers.system import Mount as Mount
    from numadoctor.host.parsers.system import MountInfo as MountInfo
    from numadoctor.host.parsers.system import Swap as Swap
    from numadoctor.host.parsers.system import parse_cgroup_limit as parse_cgroup_limit
    from numadoctor.host.parsers.system import parse_command_line as parse_command_line
    from numadoctor.host.parsers.system import parse_cpuinfo as parse_cpuinfo
    from numadoctor.host.parsers.system import parse_mountinfo as parse_mountinfo
    from numadoctor.host.parsers.system import parse_mounts as parse_mounts
    from numadoctor.host.parsers.system import parse_swaps as parse_swaps
    from numadoctor.host.parsers.task import ProcStat as ProcStat
    from numadoctor.host.parsers.task import Sched as Sched
    from numadoctor.host.parsers.task import SysvSegment as SysvSegment
    from numadoctor.host.parsers.task import parse_sched as parse_sched
    from numadoctor.host.parsers.task import parse_stat as parse_stat
    from numadoctor.host.parsers.task import parse_sysvipc_shm as parse_sysvipc_shm
else:

    def __getattr__(name: str) -> object:
        """Load the module of a parser when it is first asked for.

        Building a dataclass takes about 1.5 ms, and ``numadoctor syscalls`` needs two of the ten.
        """
        for module, names in _NAMES.items():
            if name in names.split():
                value: object = getattr(import_module(f"{__name__}.{module}"), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
