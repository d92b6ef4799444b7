"""The processes of an engine that serves from a shared pool of KV cache, as files of /proc."""

from collections.abc import Iterator

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

_SERVER, _WORKERS, _THREADS = 4242, range(4243, 4251), 4

# What the server and its workers have in common with the process of every sample.
_INHERITED = ("cgroup", "cpuset", "limits", "mounts")

_POOL = "/dev/shm/kv_pool"
_POOL_AT, _PINNED_AT = 0x7F0000000000, 0x7E0000000000
_POOL_BY_NODE = {0: 77 * 64 * GIB // 100, 1: 64 * GIB - 77 * 64 * GIB // 100}


def engine_files() -> dict[str, str]:
    """A server and eight workers, one for each GPU, that share a pool left to first touch."""
    files = dict(_process(_SERVER, 1, "vllm", None))
    for gpu, pid in enumerate(_WORKERS):
        files.update(_process(pid, _SERVER, f"VLLM::Worker_TP{gpu}", gpu))
    return files


def engine_links() -> dict[str, str]:
    """What they have open, and what they share with the process of every sample."""
    links = {f"/proc/{_SERVER}/fd/0": "/dev/null"}
    for gpu, pid in enumerate(_WORKERS):
        links[f"/proc/{pid}/fd/0"] = "/dev/null"
        links[f"/proc/{pid}/fd/9"] = f"/dev/nvidia{gpu}"
    for pid in (_SERVER, *_WORKERS):
        links.update({f"/proc/{pid}/{name}": f"../self/{name}" for name in _INHERITED})
    return links


def _process(pid: int, parent: int, title: str, gpu: int | None) -> Iterator[tuple[str, str]]:
    proc = f"/proc/{pid}"
    mappings = list(_mappings(gpu))
    # /proc tells the name of a task in 15 bytes.
    name = title[:15]
    resident = sum(sum(nodes.values()) for _, _, nodes, _ in mappings)
    yield f"{proc}/maps", "".join(line for line, *_ in mappings)
    yield f"{proc}/numa_maps", "".join(numa for _, numa, *_ in mappings)
    yield f"{proc}/cmdline", "\0".join([title] if gpu is not None else ["vllm", "serve", "model"])
    yield f"{proc}/environ", "\0".join(("HOME=/home/vllm", "LANG=C.UTF-8", ""))
    threads = range(pid * 10, pid * 10 + _THREADS - 1)
    yield f"{proc}/status", _status(name, pid, pid, parent, resident)
    yield f"{proc}/stat", _stat(name, pid, parent, pid % 32)
    for number, tid in enumerate((pid, *threads)):
        task = f"{proc}/task/{tid}"
        yield f"{task}/status", _status(name, tid, pid, parent, resident)
        yield f"{task}/stat", _stat(name, tid, parent, (pid + number) % 32)
        yield f"{task}/numa_maps", mappings[0][1]


def _mappings(gpu: int | None) -> Iterator[tuple[str, str, dict[int, int], int]]:
    """For each mapping its line of maps and of numa_maps, its bytes by node, its length."""
    program = "/usr/bin/python3.11"
    text = {0: 2 * MIB}
    yield (
        f"00400000-00600000 r-xp 00000000 fd:00 7                                  {program}\n",
        f"00400000 default file={program} mapped=512 N0=512 kernelpagesize_kB=4\n",
        text,
        2 * MIB,
    )
    if gpu is not None:
        # A buffer of the worker itself, where its GPU is.
        node = gpu // 4
        yield (
            f"{_PINNED_AT:x}-{_PINNED_AT + GIB:x} rw-p 00000000 00:00 0 \n",
            f"{_PINNED_AT:x} default anon={GIB // 4096} dirty={GIB // 4096} N{node}={GIB // 4096} "
            "kernelpagesize_kB=4\n",
            {node: GIB},
            GIB,
        )
    shares = {node: size // 4096 for node, size in _POOL_BY_NODE.items()}
    pages = " ".join(f"N{node}={count}" for node, count in shares.items())
    yield (
        f"{_POOL_AT:x}-{_POOL_AT + 64 * GIB:x} rw-s 00000000 00:1a 77 {'':20}{_POOL}\n",
        f"{_POOL_AT:x} default file={_POOL} dirty={sum(shares.values())} mapmax=9 {pages} "
        "kernelpagesize_kB=4\n",
        _POOL_BY_NODE,
        64 * GIB,
    )


def _status(name: str, tid: int, pid: int, parent: int, resident: int) -> str:
    return (
        f"Name:\t{name}\nState:\tS (sleeping)\nTgid:\t{pid}\nPid:\t{tid}\nPPid:\t{parent}\n"
        f"Uid:\t1000\t1000\t1000\t1000\nNSpid:\t{tid}\nVmLck:\t{0:8} kB\n"
        f"VmRSS:\t{resident // KIB:8} kB\nVmSwap:\t{0:8} kB\nHugetlbPages:\t{0:8} kB\n"
        f"Threads:\t{_THREADS}\n"
        "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
        "CapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\nNoNewPrivs:\t0\nSeccomp:\t0\n"
        "Seccomp_filters:\t0\nCpus_allowed:\tffffffff\nCpus_allowed_list:\t0-31\n"
        "Mems_allowed:\t00000000,00000003\nMems_allowed_list:\t0-1\n"
    )


def _stat(name: str, tid: int, parent: int, cpu: int) -> str:
    """The fields of proc_pid_stat(5) that are looked at; the rest is 0."""
    fields = ["0"] * 50
    values = {4: parent, 10: 40_000, 12: 12, 14: 90_000, 15: 4000, 20: _THREADS, 22: 8000, 39: cpu}
    for field, value in values.items():
        fields[field - 4] = str(value)
    return f"{tid} ({name}) S {' '.join(fields[:49])}\n"
