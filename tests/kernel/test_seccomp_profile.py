"""Profiles as files: what is read, what is refused, and where the fault stands."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.kernel.abi import CALLS
from numadoctor.kernel.seccomp import (
    RUNTIMES,
    Profile,
    ProfileError,
    evaluate,
    parse_profile,
    profile_of,
)
from numadoctor.kernel.seccomp.position import position
from numadoctor.kernel.seccomp.profile import LONGEST

RULE = {"names": ["mbind"], "action": "SCMP_ACT_ALLOW"}


def profile(*rules: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": list(rules), **fields}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1 column 1: not JSON: Expecting value"),
        ('{"defaultAction": \n "SCMP_ACT_ALLOW",}', "line 2 column 19: not JSON"),
        ("[]", "is a list, not an object"),
        ("7", "is 7, not an object"),
        ("{}", "no seccomp profile"),
        ('{"apiVersion": "v1"}', "no seccomp profile"),
        ('{"defaultAction": "SCMP_ACT_MAYBE"}', "line 1 column 19: defaultAction: unknown action"),
        (
            '{"defaultAction": "SCMP_ACT_ERRNO",\n "syscalls": [\n  {"names": ["mbind"],\n'
            '   "action": "ALLOW"}]}',
            "line 4 column 14: syscalls[0].action: unknown action 'ALLOW' (known: SCMP_ACT_ALLOW,",
        ),
        ('{"syscalls": [{"names": ["a"]}]}', "syscalls[0].action: unknown action ''"),
        ('{"syscalls": [1]}', "line 1 column 15: syscalls[0]: is 1, not an object"),
        ('{"syscalls": {}}', "syscalls: is an object, not a list"),
        ('{"defaultAction": true}', "defaultAction: is true or false, not a string"),
        ('{"architectures": "SCMP_ARCH_X86"}', "architectures: is a string, not a list of strings"),
        ('{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": -1}', "defaultErrnoRet: is -1"),
        ('{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1.5}', "defaultErrnoRet: is 1.5"),
        ('{"defaultAction": NaN}', "not JSON: NaN"),
        ('{"defaultErrnoRet": ' + "9" * 5000 + "}", "a number of 5000 digits"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_file_is_told_with_its_position(text: str, told: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_profile(text.encode())
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({**RULE, "name": "mbind"}, "'name' and 'names' exclude each other"),
        ({**RULE, "args": [{"index": 6, "op": "SCMP_CMP_EQ"}]}, "args[0].index: argument 6"),
        ({**RULE, "args": [{"index": 0, "op": "EQ"}]}, "unknown operator 'EQ'"),
        ({**RULE, "includes": {"minKernel": "new"}}, "bad kernel version 'new'"),
        ({**RULE, "errnoRet": 1 << 64}, "errnoRet: is 18446744073709551616"),
    ],
)
def test_a_bad_rule_is_told(rule: dict[str, Any], told: str) -> None:
    with pytest.raises(ProfileError) as caught:
        profile_of(profile(rule))
    assert told in str(caught.value)


def test_architectures_and_arch_map_exclude_each_other() -> None:
    both = profile(
        architectures=["SCMP_ARCH_X86_64"], archMap=[{"architecture": "SCMP_ARCH_X86_64"}]
    )
    with pytest.raises(ProfileError, match="exclude each other"):
        profile_of(both)


def test_what_is_no_text_or_too_large_is_refused() -> None:
    with pytest.raises(ProfileError, match="byte 2: not UTF-8"):
        parse_profile(b'{"\xff": 1}')
    with pytest.raises(ProfileError, match="larger than 4 MiB"):
        parse_profile(b" " * (LONGEST + 1))


def test_keys_are_read_in_any_case_and_strange_ones_are_passed_over() -> None:
    odd = {"DEFAULTACTION": "SCMP_ACT_ALLOW", "Comment": 1, "Syscalls": [{"Names": ["mbind"],
           "ACTION": "SCMP_ACT_ERRNO", "comment": "x"}]}  # fmt: skip
    assert evaluate(profile_of(odd), "mbind").answer == "EPERM"


def test_a_config_json_holds_the_profile_and_the_capabilities() -> None:
    inner = profile({**RULE, "includes": {"caps": ["CAP_SYS_NICE"]}})
    config = {
        "process": {"capabilities": {"bounding": ["CAP_SYS_NICE"]}},
        "linux": {"seccomp": inner},
    }
    read = profile_of(config)
    assert read.capabilities == ("CAP_SYS_NICE",)
    assert evaluate(read, "mbind").open
    without = profile_of({"linux": {"namespaces": []}, "ociVersion": "1.0.2"})
    assert evaluate(without, "mbind").open
    assert "no filter" in evaluate(without, "mbind").reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["defaultAction", "syscalls", "names", "action", "args", "archMap", "includes",
                 "linux", "seccomp", "errnoRet", "index", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)  # fmt: skip


def outcome(content: bytes) -> tuple[Profile | None, str]:
    """The profile, or what is wrong with it."""
    try:
        return parse_profile(content), ""
    except ProfileError as error:
        return None, str(error)


@given(JSON)
def test_anything_is_a_profile_or_refused(data: Any) -> None:
    read, told = outcome(json.dumps(data).encode())
    if read is None:
        assert told.isprintable()
        return
    for runtime in RUNTIMES:
        for call in CALLS:
            assert evaluate(read, call, runtime=runtime).reason


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    read, told = outcome(content)
    assert (read is None) == bool(told)


@given(JSON, st.integers(0, 4), st.integers(0, 4))
def test_a_position_is_where_the_value_stands(data: Any, indent: int, way: int) -> None:
    """Every value of a text is found where a reader would begin to read it."""
    text = json.dumps(data, indent=indent)

    def walk(value: Any, steps: tuple[str | int, ...]) -> None:
        line, column = position(text, steps)
        offset = sum(len(one) + 1 for one in text.split("\n")[: line - 1]) + column - 1
        assert json.JSONDecoder().raw_decode(text, offset)[0] == value
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, (*steps, key))
        if isinstance(value, list):
            for place, inner in enumerate(value):
                walk(inner, (*steps, place))

    walk(data, ())
