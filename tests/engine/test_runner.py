import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from numadoctor.engine import Check, Requires, Scope, check
from numadoctor.engine.catalogue import Catalogue, Problem
from numadoctor.engine.discovery import discover
from numadoctor.engine.runner import (
    MACHINE_SCOPES,
    UnknownSelection,
    run,
    run_on_files,
    select,
)
from numadoctor.host import FolderRoot, Host, open_root
from numadoctor.model import (
    Denied,
    Evidence,
    Finding,
    Fix,
    Malformed,
    Missing,
    Report,
    Severity,
    Status,
    Target,
    TooLarge,
    Undecided,
    Unreadable,
    Vanished,
    fail,
    info,
    passed,
    skip,
    unknown,
    warn,
)
from tests.memory import MemoryRoot

Body = Callable[[Any, Target], Any]
ONE_NODE = {
    "/sys/devices/system/node": "node0 online",
    "/sys/devices/system/node/node0/cpumap": "1",
}
NO_NUMA = {"/sys/devices/system/cpu": "cpu0"}
TWO_NODES = {"/sys/devices/system/node": "node0 node8"}


def declare(body: Body, id: str = "X001", name: str = "site-rule", **kwargs: Any) -> Check:
    return check(id, name=name, needs=("/proc/x",), **kwargs)(body)


def examine(body: Body, host: Host | None = None, **kwargs: Any) -> Report:
    return run(host or Host(MemoryRoot(TWO_NODES)), [declare(body, **kwargs)])


def yields(*findings: Finding) -> Body:
    return lambda host, target: iter(findings)


def raises(error: BaseException) -> Body:
    def body(host: Any, target: Target) -> Iterator[Finding]:
        yield from ()
        raise error

    return body


# Selection.


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    catalogue = Catalogue()
    declared = [("K001", "numa-balancing"), ("K002", "reclaim"), ("T001", "masks"), ("X001", "k")]
    catalogue.add(declare(yields(), id, name) for id, name in declared)
    return catalogue


@pytest.mark.parametrize(
    ("chosen", "ignored", "ids"),
    [
        ([], [], "K001 K002 T001 X001"),
        (["K001"], [], "K001"),
        (["k001", "T"], [], "K001 T001"),
        (["t"], [], "T001"),
        (["K"], [], "K001 K002 X001"),  # the family, and the check of that name
        (["numa-balancing", "MASKS"], [], "K001 T001"),
        ([], ["K"], "T001"),
        (["K"], ["K001", "k001"], "K002 X001"),
        (["K001"], ["K001"], ""),
        (["T001", "K001"], [], "K001 T001"),
    ],
)
def test_selection(catalogue: Catalogue, chosen: list[str], ignored: list[str], ids: str) -> None:
    assert [check.id for check in select(catalogue, chosen, ignored)] == ids.split()


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("K00", "did you mean K002 or K001?"),
        ("numa-balancng", "did you mean numa-balancing?"),
        ("Q", "numadoctor list shows all"),
        ("", "numadoctor list shows all"),
        ("K001,K002", "did you mean"),
        ("*", "numadoctor list shows all"),
    ],
)
def test_an_unknown_word_is_told_with_the_nearest(
    catalogue: Catalogue, word: str, hint: str
) -> None:
    for arguments in ([[word]], [[], [word]], [["K001", word]]):
        with pytest.raises(UnknownSelection) as caught:
            select(catalogue, *arguments)
        assert str(caught.value).startswith(f'no check "{word}": ')
        assert hint in str(caught.value)


def test_what_was_not_loaded_may_be_the_one() -> None:
    catalogue = Catalogue(problems=[Problem("/etc/rules.py", "cannot be loaded: SyntaxError")])
    with pytest.raises(UnknownSelection, match=r"; not loaded: /etc/rules.py: cannot be loaded"):
        select(catalogue, ["X001"])


def test_every_built_in_check_can_be_selected_by_id_and_name() -> None:
    everything = discover()
    for one in everything:
        assert [c.id for c in select(everything, [one.id], scopes=[one.scope])] == [one.id]
        assert [c.id for c in select(everything, [one.name], scopes=[one.scope])] == [one.id]
        assert one in select(everything, [one.family], scopes=[one.scope])


def test_what_there_is_to_examine_decides_which_checks_are_meant() -> None:
    everything = discover()
    assert {c.scope for c in select(everything)} == set(MACHINE_SCOPES)
    assert {c.family for c in select(everything, scopes=[Scope.FILE])} == {"D"}
    # One file of settings serves all commands.
    assert [c.id for c in select(everything, ["K001", "D001"])] == ["K001"]
    assert "D001" not in {c.id for c in select(everything, [], ["D001"])}
    with pytest.raises(UnknownSelection, match=r"D001 is a check of deployment files.*lint"):
        select(everything, ["D001"])
    with pytest.raises(UnknownSelection, match=r"E, K001 are checks of machines.*check"):
        select(everything, ["K001", "E"], scopes=[Scope.FILE])


@dataclass
class Paper:
    """A document."""

    need: str
    subject: str = "paper"


def test_documents_are_given_to_the_checks_of_their_kind() -> None:
    @check("D901", name="of-a", needs=("kind a",), scope=Scope.FILE)
    def of_a(host: object, document: Paper) -> Iterator[Finding]:
        yield fail(f"{host} {document.need}")

    @check("D902", name="crashes", needs=("kind a", "kind b"), scope=Scope.FILE)
    def crashes(host: object, document: Paper) -> Iterator[Finding]:
        raise ValueError(document.need)

    papers = [Paper("kind a"), Paper("kind b"), Paper("kind c")]
    report = run_on_files(None, [of_a, crashes], papers, name="papers", incomplete=["x"])
    assert [(f.id, f.status.value) for f in report.findings] == [
        ("D901", "fail"), ("D902", "error"), ("D902", "error"),
    ]  # fmt: skip
    assert (report.host, report.incomplete, report.exit_code) == ("papers", ("x",), 1)
    assert report.findings[0].message == "None kind a"
    assert report.findings[1].subject == "paper"


# What a finding becomes.


def test_a_finding_gets_the_checks_name_and_keeps_the_rest() -> None:
    fix = Fix("docker", "--cap-add SYS_NICE", needs_restart=True)
    finding = fail(
        "bad", subject="node 1", cause="because", evidence=[Evidence("/x", "1")], fixes=[fix]
    )
    (found,) = examine(yields(finding), id="K999", severity=Severity.HIGH).findings
    assert (found.id, found.name, found.severity) == ("K999", "site-rule", Severity.HIGH)
    assert (found.message, found.subject, found.cause) == ("bad", "node 1", "because")
    assert (found.evidence, found.fixes) == ((Evidence("/x", "1"),), (fix,))


def test_the_source_is_the_docstrings_unless_the_finding_has_its_own() -> None:
    def body(host: Any, target: Target) -> Iterator[Finding]:
        """Summary.

        Source
            mm/mempolicy.c
        """
        yield passed("one")
        yield Finding(Status.PASS, "two", source="elsewhere")

    assert [f.source for f in examine(body).findings] == ["mm/mempolicy.c", "elsewhere"]


def test_findings_are_sorted_by_harm() -> None:
    every = [skip("s"), passed("p"), info("i"), unknown("u"), warn("w"), fail("f")]
    low = declare(yields(*every), "X001", severity=Severity.LOW)
    high = declare(yields(*every), "X002", severity=Severity.HIGH)
    also_high = declare(yields(*every), "A001", severity=Severity.HIGH)
    crash = declare(raises(ValueError("x")), "X003")
    report = run(Host(MemoryRoot()), [low, high, also_high, crash])
    found = [(f.status.value, f.id) for f in report.findings]
    ids = ["A001", "X002", "X001"]
    expected = [("fail", i) for i in ids] + [("error", "X003")]
    for status in ("warn", "unknown", "info", "pass", "skip"):
        expected += [(status, i) for i in ids]
    assert found == expected
    assert report.summary == {
        "fail": 3, "error": 1, "warn": 3, "unknown": 3, "info": 3, "pass": 3, "skip": 3,
    }  # fmt: skip


def test_a_status_may_be_its_plain_word() -> None:
    (found,) = examine(yields(Finding("warn", "w"))).findings  # type: ignore[arg-type]
    assert found.status is Status.WARN


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Denied("/proc/x", errno.EACCES), "cannot read /proc/x: Permission denied (EACCES)"),
        (
            Missing("/proc/x", errno.ENOENT),
            "cannot read /proc/x: No such file or directory (ENOENT)",
        ),
        (Vanished("/proc/7/x", errno.ESRCH), "cannot read /proc/7/x: No such process (ESRCH)"),
        (Unreadable("/proc/x", errno.EIO), "cannot read /proc/x: Input/output error (EIO)"),
        (TooLarge("/proc/x"), "cannot read /proc/x: larger than"),
        (Malformed("/proc/x", None, "no number"), "cannot understand /proc/x: no number"),
        (Undecided("the call", 38), "cannot read the call: Function not implemented (ENOSYS)"),
    ],
)
def test_what_could_not_be_had_is_unknown_with_path_and_errno(error: Undecided, text: str) -> None:
    (found,) = examine(raises(error)).findings
    assert (found.status, found.id) == (Status.UNKNOWN, "X001")
    assert text in found.message
    assert [e.source for e in found.evidence] == [error.path]
    assert found.evidence[0].text == error.reason


@pytest.mark.parametrize(
    ("error", "how"),
    [
        (Denied("/x", errno.EACCES), "Run numadoctor as the owner of what is examined"),
        (Missing("/x"), "This kernel, container or captured folder does not show it."),
        (Vanished("/x"), "The process ended"),
        (Missing("/x", hint="mount it"), "Mount it."),
        (Malformed("/x"), ""),
    ],
)
def test_an_unknown_says_how_to_let_numadoctor_look(error: Undecided, how: str) -> None:
    (found,) = examine(raises(error)).findings
    assert found.cause.startswith(how)
    assert bool(found.cause) is bool(how)
    assert "mount it" not in found.message


def test_what_was_found_before_an_error_is_kept() -> None:
    def body(host: Any, target: Target) -> Iterator[Finding]:
        yield fail("first", subject="node 0")
        raise Denied("/proc/x", errno.EACCES)

    def crashing(host: Any, target: Target) -> Iterator[Finding]:
        yield warn("second", subject="node 1")
        raise ZeroDivisionError

    assert [f.status.value for f in examine(body).findings] == ["fail", "unknown"]
    assert [f.status.value for f in examine(crashing).findings] == ["error", "warn"]


class Untellable(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (raises(RuntimeError("two\nlines")), "RuntimeError: two lines"),
        (raises(SystemExit(0)), "SystemExit: 0"),
        (raises(MemoryError()), "MemoryError"),
        (raises(GeneratorExit()), "GeneratorExit"),
        (raises(StopIteration()), "RuntimeError: generator raised StopIteration"),
        (raises(Untellable()), "Untellable: its message cannot be had"),
        (raises(ValueError("x" * 10**6)), "ValueError: xxx"),
        (lambda host, target: None, "TypeError: "),
        (lambda host: iter(()), "TypeError: "),
        (lambda host, target: ["text"], "AttributeError: "),
        (yields(Finding("bad", "x")), "ValueError: 'bad' is not a valid Status"),  # type: ignore[arg-type]
        (yields(passed(None)), "TypeError: a finding holds None where text belongs"),  # type: ignore[arg-type]
        (yields(passed("x", evidence=[Evidence("/x", 1)])), "a finding holds 1 where"),  # type: ignore[arg-type]
        (yields(fail("x", fixes=[Fix("any", b"y")])), "a finding holds b'y' where"),  # type: ignore[arg-type]
    ],
)
def test_a_check_that_breaks_is_an_error_and_the_others_run(body: Body, text: str) -> None:
    checks = [declare(body, "X001", "broken"), declare(yields(passed("right")), "X002")]
    report = run(Host(MemoryRoot()), checks)
    broken, right = report.findings
    assert (broken.status, broken.id) == (Status.ERROR, "X001")
    assert broken.message.startswith("check X001 (broken) crashed: ")
    assert text in broken.message
    assert len(broken.message) < 400
    assert "\n" not in broken.message
    assert broken.evidence[0].source.rpartition(":")[2].isdigit()
    assert right.message == "right"
    assert report.exit_code == 3


def test_a_crash_cites_the_line_that_raised() -> None:
    (found,) = examine(raises(ValueError("x"))).findings
    assert found.evidence[0].text == "raise error"
    assert found.evidence[0].source.startswith(f"{__file__}:")


def test_an_interrupt_ends_the_run() -> None:
    with pytest.raises(KeyboardInterrupt):
        examine(raises(KeyboardInterrupt()))


def test_a_check_that_says_nothing_is_told() -> None:
    (found,) = examine(yields()).findings
    assert found.status is Status.SKIP
    assert found.message == "nothing here for this check to look at"


def test_what_a_check_prints_is_not_in_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    def body(host: Any, target: Target) -> Iterator[Finding]:
        print("debug")
        yield passed("right")

    examine(body)
    assert capsys.readouterr() == ("", "debug\n")


# Which checks apply.


@pytest.mark.parametrize(
    ("requires", "files", "status", "text"),
    [
        (Requires.NOTHING, {}, "pass", "right"),
        (Requires.NUMA, NO_NUMA, "skip", "no NUMA support"),
        (Requires.NUMA, {}, "unknown", "/sys/devices/system/node: there is no sysfs"),
        (Requires.NUMA, ONE_NODE, "pass", "right"),
        (Requires.SEVERAL_NODES, NO_NUMA, "skip", "no NUMA support"),
        (Requires.SEVERAL_NODES, ONE_NODE, "skip", "one NUMA node"),
        (Requires.SEVERAL_NODES, TWO_NODES, "pass", "right"),
        (
            Requires.NUMA,
            {"/sys/devices/system/node": Denied("/sys/devices/system/node", errno.EACCES)},
            "unknown",
            "/sys/devices/system/node: Permission denied (EACCES)",
        ),
    ],
)
def test_requirements(requires: Requires, files: dict[str, Any], status: str, text: str) -> None:
    (found,) = examine(yields(passed("right")), Host(MemoryRoot(files)), requires=requires).findings
    assert found.status.value == status
    assert text in found.message


def test_a_check_that_does_not_apply_is_not_run() -> None:
    (found,) = examine(
        raises(AssertionError("was run")), Host(MemoryRoot(NO_NUMA)), requires=Requires.NUMA
    ).findings
    assert found.status is Status.SKIP


def test_requirements_on_real_samples() -> None:
    one = declare(yields(passed("right")), requires=Requires.SEVERAL_NODES)
    for name, status in (("two-socket", "pass"), ("laptop", "skip"), ("no-numa", "skip")):
        report = run(Host(open_root(f"sample:{name}")), [one])
        assert [f.status.value for f in report.findings] == [status], name


# Targets.


def by_target(host: Any, target: Target) -> Iterator[Finding]:
    yield passed(f"{target.proc} {target.name}", subject=target.subject)


def test_process_checks_run_for_each_target_and_machine_checks_once() -> None:
    checks = [
        declare(by_target, "P901", scope=Scope.PROCESS),
        declare(by_target, "K901", scope=Scope.MACHINE),
    ]
    targets = [Target(7, "vllm"), Target(8, "sglang")]
    report = run(Host(MemoryRoot()), checks, targets)
    assert sorted((f.id, f.message, f.subject) for f in report.findings) == [
        ("K901", "/proc/self ", "process"),
        ("P901", "/proc/7 vllm", "process vllm"),
        ("P901", "/proc/8 sglang", "process sglang"),
    ]
    assert report.target == "pid 7 vllm, pid 8 sglang"


def test_without_targets_a_process_check_looks_at_the_caller() -> None:
    report = run(Host(MemoryRoot()), [declare(by_target, scope=Scope.PROCESS)])
    assert [f.message for f in report.findings] == ["/proc/self "]
    assert report.target == ""


def test_what_happens_to_one_target_does_not_touch_the_other() -> None:
    def body(host: Any, target: Target) -> Iterator[Finding]:
        if target.pid == 7:
            raise Vanished("/proc/7/maps", errno.ESRCH)
        yield passed("right", subject=target.subject)

    targets = [Target(7, "gone"), Target(8, "here")]
    report = run(Host(MemoryRoot()), [declare(body, scope=Scope.PROCESS)], targets)
    assert [(f.status.value, f.subject) for f in report.findings] == [
        ("unknown", "process gone"),
        ("pass", "process here"),
    ]


# The report.


def test_the_report_as_a_whole() -> None:
    host = Host(MemoryRoot({"/proc/sys/kernel/hostname": "gpu-07\n"}))
    report = run(host, [], problems=[Problem("x.py", "broken")], incomplete=["pid 7: gone"])
    assert report.host == "gpu-07"
    assert report.incomplete == ("pid 7: gone",)
    assert report.exit_code == 3
    assert report.seconds >= 0
    (found,) = report.findings
    assert (found.status, found.message) == (Status.ERROR, "x.py: broken")


@pytest.mark.parametrize(
    ("findings", "options", "code"),
    [
        ([fail("f")], {}, 1),
        ([fail("f")], {"fail_on": "never"}, 0),
        ([warn("w")], {}, 0),
        ([warn("w")], {"fail_on": "warn"}, 1),
        ([unknown("u")], {}, 0),
        ([unknown("u")], {"strict": True}, 3),
        ([passed("p")], {"incomplete": ["pid 7: gone"]}, 3),
        ([fail("f")], {"incomplete": ["pid 7: gone"]}, 1),
    ],
)
def test_options_reach_the_exit_code(
    findings: list[Finding], options: dict[str, Any], code: int
) -> None:
    report = run(Host(MemoryRoot()), [declare(yields(*findings))], **options)
    assert report.exit_code == code
    assert type(report.exit_code) is int


def test_a_check_that_meets_a_huge_file_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    with open(tmp_path / "proc" / "version", "wb") as file:
        file.truncate(1 << 30)

    def body(host: Host, target: Target) -> Iterator[Finding]:
        yield passed(host.text("/proc/version"))

    (found,) = examine(body, Host(FolderRoot(str(tmp_path)))).findings
    assert found.status is Status.UNKNOWN
    assert "/proc/version: larger than 64 MiB" in found.message
