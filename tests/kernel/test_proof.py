import ctypes
import errno
import json
import mmap
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from numadoctor.kernel import proof, syscalls
from numadoctor.kernel.abi import UnknownAbi, by_name, current_abi
from numadoctor.kernel.child import NoAnswer
from numadoctor.kernel.nodemask import GET_MAXNODE, decode, encode, maxnode_for
from numadoctor.kernel.process import MemsAllowed
from numadoctor.kernel.syscalls import Answer
from tests.kernel import compat32, seccomp
from tests.kernel.child import in_child

ROOT = Path(__file__).parents[2]
live = pytest.mark.usefixtures("policy_calls")


@live
def test_one_bit_more_than_a_word_reads_one_word_and_two_more_fault() -> None:
    found = proof.prove()
    bits = found["word_bits"]
    for call, answers in found["word"].items():
        assert answers == {
            "1": "EINVAL",
            str(bits): "ok",
            str(bits + 1): "ok",
            str(bits + 2): "EFAULT",
            str(2 * bits): "EFAULT",
        }, call
    assert set(found["word"]) == {"set_mempolicy", "mbind", "migrate_pages"}


@live
def test_the_plain_number_of_bits_loses_the_last_node() -> None:
    found = proof.prove()["last_bit"]
    first, last = found["mask"]
    assert found["taken"] == {
        str(last + 1): [first],
        str(maxnode_for(encode([last]))): [first, last],
    }


@pytest.mark.parametrize("room", [1, 2, 3, 4])
def test_the_last_bit_is_one_that_the_kernel_has_room_for(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """One digit of Mems_allowed stands for one to four bits."""

    def answer(mode: int, address: int, maxnode: int) -> Answer:
        nodes = decode(ctypes.string_at(address, (maxnode - 1) // 8))
        return Answer(-1, errno.EINVAL) if max(nodes) >= room else Answer(0, 0)

    monkeypatch.setattr(proof, "mems_allowed", lambda: MemsAllowed((0,), 4))
    monkeypatch.setattr(syscalls, "set_mempolicy", answer)
    if room == 1:
        with pytest.raises(NoAnswer, match="no second bit"):
            proof._last_bit(0)
    else:
        assert proof._last_bit(0) == room - 1


@live
def test_get_mempolicy_writes_whole_words_and_nothing_at_the_least_it_takes() -> None:
    found = proof.prove()["read"]
    least, written = found["least"], found["written"]
    for maxnode, size in written.items():
        assert size == (int(maxnode) - 1 + 63) // 64 * 8
    assert written[str(GET_MAXNODE)] == 128
    if least == 1:
        assert written["1"] == 0  # accepted, and the buffer is as before


@live
def test_the_report_can_be_pasted_into_a_review() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "numadoctor.kernel.proof"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    assert f"{bits + 1}: ok  {bits + 2}: EFAULT" in result.stdout
    assert f"mbind {current_abi().numbers['mbind']}" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_under_a_filter_it_says_what_is_not_shown() -> None:
    def ask(action: int) -> Any:
        seccomp.install(seccomp.actions(seccomp.PLAIN, action))
        return [proof.prove(), proof._report(proof.prove())]

    found, report = in_child(lambda: ask(seccomp.refuse(errno.EPERM)))
    assert found["word"] == found["last_bit"] == "get_mempolicy answers EPERM"
    assert found["read"] == "get_mempolicy refuses every maxnode"
    assert "not shown: get_mempolicy answers EPERM" in report
    found, _ = in_child(lambda: ask(seccomp.KILL_PROCESS))
    assert found["last_bit"] == "ended by signal 31"


def test_in_an_unknown_abi_nothing_is_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unknown() -> Any:
        raise UnknownAbi("no table")

    monkeypatch.setattr(proof, "current_abi", unknown)
    assert proof.main([]) == 1
    assert capsys.readouterr().out == "Nothing was tried: no table\n"
    assert proof.main(["--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"abi": None, "unprobed": "no table"}


def _in_a_32_bit_call() -> dict[str, Any]:
    """The same proofs by i386 calls: 4-byte words, and the kernel's compat path."""
    compat, numbers = compat32.Compat(), by_name("i386").numbers
    set_number, get_number = numbers["set_mempolicy"], numbers["get_mempolicy"]
    assert set_number is not None
    assert get_number is not None
    pages = compat32.low_pages(3)
    size = mmap.PAGESIZE
    libc = ctypes.CDLL(None)
    libc.mprotect(ctypes.c_void_p(pages + size), ctypes.c_size_t(size), 0)

    def put(mask: bytes) -> int:
        address = pages + size - len(mask)
        ctypes.memmove(address, mask, len(mask))
        return address

    bind, static = 2, 1 << 15
    node = put(encode([0], 4, "little"))
    word = {str(n): compat.call(set_number, bind, node, n)[1] for n in (1, 32, 33, 34, 64)}
    both = put(encode([0, 31], 4, "little"))
    taken, out = {}, pages + 2 * size
    for maxnode in (32, 33):
        assert compat.call(set_number, bind | static, both, maxnode) == (0, 0)
        ctypes.memset(out, 0, 256)
        assert compat.call(get_number, 0, out, GET_MAXNODE, 0, 0) == (0, 0)
        taken[str(maxnode)] = decode(ctypes.string_at(out, 128), 4, "little")
    written = {}
    for maxnode in (2, 33, 65, 66):
        images = []
        for paint in (0, 255):
            ctypes.memset(out, paint, 256)
            if compat.call(get_number, 0, out, maxnode, 0, 0) != (0, 0):
                break
            images.append(ctypes.string_at(out, 256))
        if len(images) == 2:
            written[str(maxnode)] = sum(a == b for a, b in zip(images[0], images[1], strict=True))
    return {"word": word, "taken": taken, "written": written}


@live
def test_a_32_bit_process_has_words_of_4_bytes() -> None:
    if reason := compat32.why_not():
        pytest.skip(reason)
    found = in_child(_in_a_32_bit_call)
    assert found["word"] == {
        "1": errno.EINVAL,
        "32": 0,
        "33": 0,
        "34": errno.EFAULT,
        "64": errno.EFAULT,
    }
    assert found["taken"] == {"32": [0], "33": [0, 31]}
    # A buffer of one word is too small for any answer: 8 bytes come.
    assert found["written"].get("65") == 8
    assert found["written"].get("33", 8) == 8
    assert found["written"].get("66") == 16
