"""Shows on the running kernel what maxnode means: ``python -m numadoctor.kernel.proof``.

Two claims are in circulation: that ``maxnode`` is the number of bits of the
mask, and that 65 makes the kernel read 128 bits. Both are false, and neither
can be argued away in a review: here the mask lies in the last word before an
unreadable page, so that reading one word more is EFAULT.
"""

import ctypes
import errno
import json
import mmap
from collections.abc import Callable
from typing import Any, Final

from numadoctor.kernel import syscalls
from numadoctor.kernel.abi import CALLS, UnknownAbi, current_abi
from numadoctor.kernel.child import NoAnswer, run_steps
from numadoctor.kernel.nodemask import (
    BYTEORDER,
    GET_MAXNODE,
    WORD_SIZE,
    decode,
    encode,
    maxnode_for,
    read_buffer,
    to_text,
)
from numadoctor.kernel.process import libc, mems_allowed

_BIND: Final = 2
_STATIC: Final = 1 << 15
_WORD_BITS: Final = 8 * WORD_SIZE


def prove() -> dict[str, Any]:
    """All proofs, each made in a forked child, as JSON data.

    ``word`` is what the kernel answers to a mask in the last word before an
    unreadable page, by call and ``maxnode``; ``last_bit`` which nodes are left
    of a mask when ``maxnode`` is the plain number of bits, and when it is one
    more; ``read`` how much get_mempolicy wrote. A part that could not be had is
    its reason in words.
    """
    try:
        abi = current_abi()
    except UnknownAbi as error:
        return {"abi": None, "unprobed": str(error)}
    parts: dict[str, Callable[[], Any]] = {
        "word": prove_word,
        "last_bit": prove_last_bit,
        "read": prove_read,
    }
    outcomes = run_steps(list(parts.values()))
    found: dict[str, Any] = {
        "abi": abi.name,
        "numbers": dict(abi.numbers),
        "word_bits": _WORD_BITS,
        "byteorder": BYTEORDER,
    }
    for name, outcome in zip(parts, outcomes, strict=True):
        ended = f"ended by signal {outcome.signal}" if outcome.signal else None
        found[name] = outcome.value if outcome.value is not None else outcome.unprobed or ended
    return found


def prove_word() -> dict[str, dict[str, str]]:
    """The answer of each call that takes a mask, by ``maxnode``, before an unreadable page."""
    node = _some_node()
    mask = _before_a_wall(encode([node])[-WORD_SIZE:], node)
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    calls: dict[str, Callable[[int], syscalls.Answer]] = {
        "set_mempolicy": lambda n: syscalls.set_mempolicy(_BIND, mask, n),
        "mbind": lambda n: syscalls.mbind(start, mmap.PAGESIZE, _BIND, mask, n),
        "migrate_pages": lambda n: syscalls.migrate_pages(0, n, mask, mask),
    }
    tried = (1, _WORD_BITS, _WORD_BITS + 1, _WORD_BITS + 2, 2 * _WORD_BITS)
    return {
        name: {str(maxnode): _word(call(maxnode)) for maxnode in tried}
        for name, call in calls.items()
    }


def prove_last_bit() -> dict[str, Any]:
    """Which nodes the kernel took from a mask of its first and its last bit.

    With MPOL_F_STATIC_NODES the kernel keeps the mask as it was given, nodes
    that are not there included, and get_mempolicy returns it: so it can be
    shown on a machine with a single node.
    """
    node = _some_node()
    last = _last_bit(node)
    mask = encode({node, last})
    buffer = ctypes.create_string_buffer(mask, len(mask))
    taken = {}
    for maxnode in (last + 1, maxnode_for(mask)):
        answer = syscalls.set_mempolicy(_BIND | _STATIC, ctypes.addressof(buffer), maxnode)
        taken[str(maxnode)] = list(_task_nodes()) if answer.returned == 0 else _word(answer)
    return {"mask": [node, last], "bits": 8 * len(mask), "taken": taken}


def prove_read() -> dict[str, Any]:
    """How many bytes get_mempolicy writes, by ``maxnode``, from the least that it accepts."""
    least = next((n for n in range(GET_MAXNODE + 1) if _written(n) is not None), None)
    if least is None:
        raise NoAnswer("get_mempolicy refuses every maxnode")
    tried = sorted({least, least + 1, _WORD_BITS, _WORD_BITS + 1, _WORD_BITS + 2, GET_MAXNODE})
    return {"least": least, "written": {str(n): _written(n) for n in tried if n >= least}}


def _some_node() -> int:
    """A node that this process may use, within the first word."""
    buffer = read_buffer()
    answer = syscalls.get_mempolicy(0, ctypes.addressof(buffer), GET_MAXNODE, 0, 4)
    if answer.errno:
        raise NoAnswer(f"get_mempolicy answers {_word(answer)}")
    return decode(bytes(buffer))[0]


def _last_bit(node: int) -> int:
    """The last bit of a word that the kernel's own nodemask has room for."""
    own = mems_allowed()
    shown = min(_WORD_BITS, own.bits if own else _WORD_BITS)
    # /proc shows four bits or more, and a kernel for two nodes (s390) takes two.
    for last in range(shown - 1, node, -1):
        buffer = ctypes.create_string_buffer(mask := encode({node, last}), len(mask))
        address = ctypes.addressof(buffer)
        if syscalls.set_mempolicy(_BIND | _STATIC, address, maxnode_for(mask)).errno == 0:
            return last
    raise NoAnswer("no second bit of a mask is taken")


def _task_nodes() -> tuple[int, ...]:
    buffer = read_buffer()
    syscalls.get_mempolicy(0, ctypes.addressof(buffer), GET_MAXNODE, 0, 0)
    return decode(bytes(buffer))


def _before_a_wall(word: bytes, node: int) -> int:
    """Address of the word, copied to the last bytes before a page that cannot be read."""
    if node >= _WORD_BITS:
        raise NoAnswer(f"the first allowed node, {node}, is not in the first word of a mask")
    size = mmap.PAGESIZE
    pages = mmap.mmap(-1, 2 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages[size - len(word) : size] = word
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    _WALLS.append(pages)
    if libc.mprotect(ctypes.c_void_p(start + size), ctypes.c_size_t(size), 0):
        raise NoAnswer("mprotect is refused")
    return start + size - len(word)


# Keeps what the kernel is pointed to from being unmapped; the child's end frees it.
_WALLS: list[mmap.mmap] = []


def _written(maxnode: int) -> int | None:
    """Bytes that get_mempolicy writes for that maxnode; None where it refuses."""
    size = GET_MAXNODE // 8 + 64
    painted = []
    for paint in (b"\x00", b"\xff"):
        buffer = ctypes.create_string_buffer(paint * size, size)
        if syscalls.get_mempolicy(0, ctypes.addressof(buffer), maxnode, 0, 0).errno:
            return None
        painted.append(bytes(buffer))
    # What was not written still differs.
    return sum(a == b for a, b in zip(painted[0], painted[1], strict=True))


def _word(answer: syscalls.Answer) -> str:
    return errno.errorcode.get(answer.errno, str(answer.errno)) if answer.errno else "ok"


def _report(found: dict[str, Any]) -> str:
    if found["abi"] is None:
        return f"Nothing was tried: {found['unprobed']}\n"
    lines = [
        f"ABI {found['abi']}: words of {found['word_bits']} bits, {found['byteorder']}-endian",
        "  ".join(f"{name} {found['numbers'][name]}" for name in CALLS[:3]),
        "  ".join(f"{name} {found['numbers'][name]}" for name in CALLS[3:]),
        "",
        "A mask in the last word before an unreadable page, by maxnode:",
    ]
    word, last, read = found["word"], found["last_bit"], found["read"]
    if isinstance(word, dict):
        lines += [
            f"  {name:<14}" + "  ".join(f"{n}: {answer}" for n, answer in answers.items())
            for name, answers in word.items()
        ]
        lines.append(f"So {found['word_bits'] + 1} reads one word, and not two.")
    else:
        lines.append(f"  not shown: {word}")
    if isinstance(last, dict):
        lines += ["", f"A mask of node {to_text(last['mask'])}, set and read back, by maxnode:"]
        lines += [
            f"  {n}: {'node ' + to_text(nodes) if isinstance(nodes, list) else nodes}"
            for n, nodes in last["taken"].items()
        ]
        lines.append("So the plain number of bits loses the last one: maxnode = bits + 1.")
    else:
        lines += ["", f"The last bit is not shown: {last}"]
    if isinstance(read, dict):
        lines += [
            "",
            f"get_mempolicy refuses a maxnode below {read['least']}; bytes written by maxnode:",
            "  " + "  ".join(f"{n}: {size}" for n, size in read["written"].items()),
            f"So read {GET_MAXNODE - 1} bits with maxnode {GET_MAXNODE}.",
        ]
    else:
        lines += ["", f"What get_mempolicy writes is not shown: {read}"]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Prints the proofs; with ``--json`` as data. 0 when all were had."""
    found = prove()
    if "--json" in arguments:
        print(json.dumps(found, indent=2))
    else:
        print(_report(found), end="")
    return 0 if all(isinstance(found.get(p), dict) for p in ("word", "last_bit", "read")) else 1


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
