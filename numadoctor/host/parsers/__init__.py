"""Readers of kernel text: pure functions from bytes to values.

They raise numadoctor.model.ParseError for input that has no meaning, and
nothing else, whatever the bytes.
"""

from numadoctor.host.parsers.lists import (
    MAX_ID,
    format_list,
    mask_digits,
    numbered,
    parse_isolcpus,
    parse_list,
    parse_map,
)
from numadoctor.host.parsers.node import (
    BuddyRow,
    Zone,
    parse_buddyinfo,
    parse_counters,
    parse_distance,
    parse_meminfo,
    parse_page_size_dir,
    parse_zoneinfo,
)
from numadoctor.host.parsers.pci import parse_bus_id, parse_key_values
from numadoctor.host.parsers.process import (
    CgroupMembership,
    Limit,
    ProcStatus,
    parse_argv,
    parse_environ,
    parse_limits,
    parse_proc_cgroup,
    parse_status,
)
from numadoctor.host.parsers.scalars import (
    Choice,
    parse_choice,
    parse_flag,
    parse_hex,
    parse_integer,
    parse_size,
    parse_text,
    parse_weight,
    parse_words,
)
from numadoctor.host.parsers.system import (
    CpuInfo,
    Mount,
    MountInfo,
    Swap,
    parse_cgroup_limit,
    parse_command_line,
    parse_cpuinfo,
    parse_mountinfo,
    parse_mounts,
    parse_swaps,
)
from numadoctor.model.errors import ParseError

__all__ = [
    "MAX_ID",
    "BuddyRow",
    "CgroupMembership",
    "Choice",
    "CpuInfo",
    "Limit",
    "Mount",
    "MountInfo",
    "ParseError",
    "ProcStatus",
    "Swap",
    "Zone",
    "format_list",
    "mask_digits",
    "numbered",
    "parse_argv",
    "parse_buddyinfo",
    "parse_bus_id",
    "parse_cgroup_limit",
    "parse_choice",
    "parse_command_line",
    "parse_counters",
    "parse_cpuinfo",
    "parse_distance",
    "parse_environ",
    "parse_flag",
    "parse_hex",
    "parse_integer",
    "parse_isolcpus",
    "parse_key_values",
    "parse_limits",
    "parse_list",
    "parse_map",
    "parse_meminfo",
    "parse_mountinfo",
    "parse_mounts",
    "parse_page_size_dir",
    "parse_proc_cgroup",
    "parse_size",
    "parse_status",
    "parse_swaps",
    "parse_text",
    "parse_weight",
    "parse_words",
    "parse_zoneinfo",
]
