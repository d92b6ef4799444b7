"""The sysctls of memory that kernels have."""

# Sysctls of virtual memory, up to Linux 6.12 (Documentation/admin-guide/sysctl/vm.rst and
# kernel.rst, mm/*.c), those of other architectures and options included.
_VM = frozenset(
    """
    admin_reserve_kbytes block_dump compact_memory compact_unevictable_allowed
    compaction_proactiveness defrag_mode dirty_background_bytes dirty_background_ratio dirty_bytes
    dirty_expire_centisecs dirty_ratio dirty_writeback_centisecs dirtytime_expire_seconds
    drop_caches enable_soft_offline extfrag_threshold highmem_is_dirtyable hugetlb_optimize_vmemmap
    hugetlb_shm_group laptop_mode legacy_va_layout lowmem_reserve_ratio max_map_count mem_profiling
    memfd_noexec memory_failure_early_kill memory_failure_recovery min_free_kbytes min_slab_ratio
    min_unmapped_ratio mmap_min_addr mmap_rnd_bits mmap_rnd_compat_bits movable_gigantic_pages
    nr_hugepages nr_hugepages_mempolicy nr_overcommit_hugepages numa_stat numa_zonelist_order
    oom_dump_tasks oom_kill_allocating_task overcommit_kbytes overcommit_memory overcommit_ratio
    page-cluster page_lock_unfairness panic_on_oom percpu_pagelist_fraction
    percpu_pagelist_high_fraction stat_interval stat_refresh swappiness unprivileged_userfaultfd
    user_reserve_kbytes vdso_enabled vfs_cache_pressure vfs_cache_pressure_denom
    watermark_boost_factor watermark_scale_factor zone_reclaim_mode
    """.split()  # noqa: SIM905  a list of them would be a page long
)
_KERNEL_NUMA = frozenset(("numa_balancing", "numa_balancing_promote_rate_limit_MBps"))


def is_known(name: str) -> bool:
    """Whether a kernel has the sysctl; ``name`` begins with ``vm.`` or ``kernel.numa``."""
    return name.removeprefix("vm.") in _VM or name.removeprefix("kernel.") in _KERNEL_NUMA


def nearest(name: str) -> str:
    """A sysctl of a name that is nearly the same, or empty."""
    from difflib import get_close_matches

    near = get_close_matches(name.removeprefix("vm."), sorted(_VM), 1, 0.8)
    return f"vm.{near[0]}" if near else ""
