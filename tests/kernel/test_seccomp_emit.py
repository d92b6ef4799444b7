"""The smallest change: what is added, that it opens the calls, and that nothing else changes."""

import difflib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.kernel.abi import CALLS
from numadoctor.kernel.seccomp import ProfileError, parse_profile
from numadoctor.kernel.seccomp.outlook import Case, opened
from numadoctor.model import Evidence

ALLOW, ERRNO = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"
MOVE = {"names": ["move_pages", "migrate_pages"], "action": ERRNO, "errnoRet": 1}


def emitted(text: str, runtime: str = "docker", arch: str = "x86_64", **how: Any) -> str:
    case = Case(
        parse_profile(text.encode()), "p.json", runtime, arch, how.get("caps", ()), (), None,
        lambda rule: Evidence("p.json", str(rule)),
    )  # fmt: skip
    return opened(text, case)


def added(before: str, after: str) -> list[str]:
    """The lines that were added; none may have gone."""
    lines = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    assert [line for line in lines if line.startswith("- ")] == []
    return [line[2:].strip() for line in lines if line.startswith("+ ")]


PRETTY = json.dumps(
    {"defaultAction": ERRNO, "syscalls": [{"names": ["read"], "action": ALLOW}, MOVE]}, indent=1
)


def test_one_rule_is_put_first_and_the_rest_stays_as_it_is() -> None:
    (line,) = added(PRETTY, emitted(PRETTY))
    assert json.loads(line.rstrip(",")) == {"names": list(CALLS), "action": ALLOW}
    assert json.loads(emitted(PRETTY))["syscalls"][1:] == json.loads(PRETTY)["syscalls"]


def test_where_calls_are_allowed_unless_listed_their_names_go() -> None:
    """A rule that says what the default action says counts for nothing (crun, runc)."""
    text = json.dumps(
        {
            "defaultAction": ALLOW,
            "syscalls": [{**MOVE, "names": ["swapon", "move_pages", "swapoff"]}, MOVE,
                         {"names": ["mbind"], "action": ALLOW}],
        },
        indent="\t",
    )  # fmt: skip
    after = json.loads(emitted(text))
    assert [rule["names"] for rule in after["syscalls"]] == [["swapon", "swapoff"], ["mbind"]]
    gone = set(text.splitlines()) - set(emitted(text).splitlines())
    assert {line.strip() for line in gone} <= {'"move_pages",', '"migrate_pages"', '"errnoRet": 1'}
    old_form = json.dumps(
        {"defaultAction": ALLOW, "syscalls": [{"name": "mbind", "action": ERRNO}]}
    )
    assert json.loads(emitted(old_form))["syscalls"] == []
    open_already = json.dumps({"defaultAction": ALLOW, "syscalls": []})
    assert emitted(open_already) == open_already


def test_capabilities_that_the_container_has_count() -> None:
    nice = {"names": list(CALLS[:3]), "action": ALLOW, "includes": {"caps": ["CAP_SYS_NICE"]}}
    text = json.dumps({"defaultAction": ERRNO, "syscalls": [nice]}, indent=1)
    (line,) = added(text, emitted(text, caps=("SYS_NICE",)))
    assert json.loads(line.rstrip(","))["names"] == list(CALLS[3:])


@pytest.mark.parametrize(
    "text",
    [
        '{"defaultAction": "SCMP_ACT_ERRNO"}',
        '{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": null}',
        '{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": []}',
        '{ "syscalls" : [ ] , "defaultAction":"SCMP_ACT_KILL" }',
        '{"DefaultAction": "SCMP_ACT_ERRNO", "SYSCALLS": [{"NAMES": ["read"], "Action": '
        '"SCMP_ACT_ALLOW"}]}',
        '\n{"defaultAction": "SCMP_ACT_ERRNO","syscalls":[{"names":["mbind"],"args":[{"index":0,'
        '"op":"SCMP_CMP_EQ","value":7}],"action":"SCMP_ACT_TRAP"}]}\n',
    ],
)
def test_forms_of_writing(text: str) -> None:
    assert parse_profile(emitted(text).encode()).rules[0].names


def test_an_architecture_that_is_missing_is_added_where_the_file_keeps_them() -> None:
    listed = json.dumps(
        {"defaultAction": ERRNO, "architectures": ["SCMP_ARCH_X86_64"], "syscalls": []}, indent=1
    )
    assert json.loads(emitted(listed, arch="i386"))["architectures"] == [
        "SCMP_ARCH_X86", "SCMP_ARCH_X86_64",
    ]  # fmt: skip
    mapped = {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]}
    text = json.dumps({"defaultAction": ERRNO, "archMap": [mapped], "syscalls": []}, indent=1)
    assert json.loads(emitted(text, arch="x32"))["archMap"][0]["subArchitectures"] == [
        "SCMP_ARCH_X32", "SCMP_ARCH_X86",
    ]  # fmt: skip
    assert json.loads(emitted(text)).get("architectures") is None


def test_a_config_json_is_changed_where_the_profile_stands() -> None:
    config = {"ociVersion": "1.0.2", "linux": {"seccomp": json.loads(PRETTY)}}
    data = json.loads(emitted(json.dumps(config), runtime="containerd"))
    assert data["linux"]["seccomp"]["syscalls"][0]["action"] == ALLOW
    assert data["ociVersion"] == "1.0.2"


def test_what_no_rule_opens_is_told() -> None:
    text = '{"defaultAction": "SCMP_ACT_NOTIFY"}'
    with pytest.raises(ProfileError, match=r"no rule opens mbind.*SCMP_ACT_NOTIFY"):
        emitted(text)


rules = st.fixed_dictionaries(
    {
        # Of these six alone: rules that libseccomp does not take together for another
        # call are not mended by one for these.
        "names": st.lists(st.sampled_from(CALLS), max_size=3),
        "action": st.sampled_from([ALLOW, ERRNO, "SCMP_ACT_TRAP"]),
    },
    optional={
        "includes": st.fixed_dictionaries({"caps": st.just(["CAP_SYS_NICE"])}),
        "args": st.lists(
            st.fixed_dictionaries({"index": st.integers(0, 5), "op": st.just("SCMP_CMP_EQ"),
                                   "value": st.integers(0, 3)}), max_size=1,
        ),
    },
)  # fmt: skip


@given(
    st.fixed_dictionaries(
        {"defaultAction": st.sampled_from([ALLOW, ERRNO]), "syscalls": st.lists(rules, max_size=5)}
    ),
    st.none() | st.integers(0, 4),
    st.sampled_from(["docker", "containerd", "podman", "crio", "kubernetes"]),
)
def test_whatever_the_profile_the_calls_are_open_after(
    data: dict[str, Any], indent: int | None, runtime: str
) -> None:
    text = json.dumps(data, indent=indent)
    after = emitted(text, runtime)
    assert emitted(after, runtime) == after
    if data["defaultAction"] == ERRNO:
        assert json.loads(after)["syscalls"][-len(data["syscalls"]) or 99 :] == data["syscalls"]
