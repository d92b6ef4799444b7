"""Flags, environment files and drop-ins of kubelets and other units come together."""

import contextlib
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.lint.documents import Files
from numadoctor.lint.gathering import gather
from numadoctor.lint.kubelet import as_configuration, flags, with_drop_in, with_flags
from numadoctor.lint.nodes import Mapping, Refused, Word
from numadoctor.lint.reading import Source
from numadoctor.lint.variables import filled, parse_environment, split_words
from tests.lint.test_projects import VALUES, nodes, root


def words(text: str) -> list[Word]:
    return [Word("f", 1, 1 + n, word) for n, word in enumerate(shlex.split(text))]


def test_flags_in_the_words_of_a_configuration() -> None:
    given_flags = flags(words(
        "kubelet --cpu-manager-policy=static --topology_manager_policy restricted --v=2 --x"
        " --kube-reserved=cpu=500m,memory=1Gi --kube-reserved cpu=1"
        " --eviction-hard='memory.available<500Mi,nodefs.available<10%'"
        " --reserved-memory '0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=2Gi'"
    ))  # fmt: skip
    found = as_configuration(given_flags)
    assert found is not None

    def text(*path: str) -> str | None:
        word = found.word(*path)
        return word.text if word else None

    assert text("cpuManagerPolicy") == "static"
    assert text("topologyManagerPolicy") == "restricted"
    assert [text("kubeReserved", n) for n in ("cpu", "memory")] == ["1", "1Gi"]
    assert text("evictionHard", "memory.available") == "500Mi"
    entries = found.sequence("reservedMemory").items
    pairs = [
        (e.word("numaNode"), e.word("limits", "memory")) for e in entries if isinstance(e, Mapping)
    ]
    assert [(n.text, m.text) for n, m in pairs if n and m] == [("0", "1Gi"), ("1", "2Gi")]
    assert as_configuration(flags(words("kubelet --v=2"))) is None


def test_drop_ins_merge_and_flags_replace() -> None:
    base = root("a: {b: 1, c: 2}\nl: [1]\nkubeReserved: {cpu: 1}")
    merged = with_drop_in(base, root("a: {b: 3, c: null}\nl: [2, 3]\nx: 1"))
    assert [w.text for name in "bc" if (w := merged.word("a", name))] == ["3"]
    assert len(merged.sequence("l").items) == 2
    said = as_configuration(flags(words("kubelet --kube-reserved=memory=1Gi")))
    assert said is not None
    assert list(with_flags(merged, said).mapping("kubeReserved").entries) == ["memory"]
    assert list(base.mapping("kubeReserved").entries) == ["cpu"]


def test_an_environment_file() -> None:
    text = (
        "# comment\n; another\nA=1\nB = \"two words\" \nC='$A'\nD=a\\\n  b\nexport E=1\nF\n"
        'G="a\\"b"\nH=x"y z"\n'
    )
    found = parse_environment(text, "f")
    assert {name: word.text for name, word in found.items()} == {
        "A": "1", "B": "two words", "C": "$A", "D": "a   b", "G": 'a"b', "H": "xy z",
    }  # fmt: skip
    assert (found["B"].line, found["B"].column) == (4, 5)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("x $ARGS z", ["x", "--a=b", "--c", "z"]),
        ("x ${ARGS}", ["x", "--a=b --c"]),
        ("x --y=${ONE}", ["x", "--y=1"]),
        ("x $OTHER ${OTHER}", ["x", "$OTHER", "${OTHER}"]),
        ("x $EMPTY z", ["x", "z"]),
    ],
)
def test_variables_in_a_command(command: str, expected: list[str]) -> None:
    values = {"ARGS": "--a=b --c", "ONE": "1", "EMPTY": ""}
    known = {name: Word("f", 1, 1, text, "'") for name, text in values.items()}
    given_words = [Word("f", 1, 1, text) for text in command.split()]
    assert [word.text for word in filled(given_words, known)] == expected


def test_words_as_systemd_divides_them() -> None:
    text = '/bin/x --a=\'b c\'d \\\n  <e;f> "g\\"h" i\\sj ; /bin/y'
    assert [(w.text, w.line, w.column) for w in split_words(text, "f", 3, 11)] == [
        ("/bin/x", 3, 11), ("--a=b cd", 3, 18), ("<e;f>", 4, 3), ('g"h', 4, 9), ("i j", 4, 16),
        (";", 4, 21), ("/bin/y", 4, 23),
    ]  # fmt: skip
    with pytest.raises(Refused, match="does not end") as caught:
        split_words("a 'b", "f", 1, 1)
    assert (caught.value.line, caught.value.column) == (1, 3)


@given(st.text(max_size=60))
def test_any_text_is_divided_or_refused(text: str) -> None:
    with contextlib.suppress(Refused):
        for word in split_words(text, "f", 1, 1):
            row = text.split("\n")[word.line - 1]
            assert 1 <= word.column <= len(row), "a word begins in its line"


@given(st.lists(st.text(st.characters(exclude_characters="\n\r\0'\\"), min_size=1), max_size=6))
def test_quoted_words_come_back(texts: list[str]) -> None:
    line = " ".join(f"'{text}'" for text in texts)
    assert [word.text for word in split_words(line, "f", 1, 1)] == texts


@pytest.mark.parametrize("word", ["$A", "${A}", "${A}" * 5000])
def test_what_variables_multiply_is_never_built(word: str) -> None:
    known = {"A": Word("f", 1, 1, "x " * 50_000)}
    with pytest.raises(Refused, match="multiply"):
        list(filled([Word("f", 1, 1, word)] * 1000, known))


UNIT = """\
[Service]
Environment=PORT=8000
EnvironmentFile=/etc/default/vllm
EnvironmentFile=-/etc/vllm/extra.env
ExecStart=/usr/bin/vllm serve m --port ${PORT} $VLLM_ARGS
"""


def test_environment_files_of_any_unit() -> None:
    files = {
        "/r/etc/systemd/system/vllm.service": UNIT,
        "/r/etc/default/vllm": 'PORT=9000\nVLLM_ARGS="--numa-bind --tp 4"\nHF_HOME=/m\n',
        "/r/etc/default/other": "VLLM_ARGS=--wrong\n",
    }
    found = gather([Source(name, text.encode()) for name, text in files.items()], Files())
    kinds = {d.file: d.kind for d in found.documents}
    assert kinds == {
        "/r/etc/systemd/system/vllm.service": "systemd", "/r/etc/default/other": "other",
    }  # fmt: skip
    (workload,) = (w for d in found.documents for w in d.workloads)
    assert [w.text for w in workload.commands[0].words] == [
        "/usr/bin/vllm", "serve", "m", "--port", "9000", "--numa-bind", "--tp", "4",
    ]  # fmt: skip
    assert workload.environ()["HF_HOME"] == "/m"


def test_files_of_several_machines_are_kept_apart() -> None:
    kubelet = "apiVersion: k/v1\nkind: KubeletConfiguration\ncpuManagerPolicy: none\n"
    unit = (
        "[Service]\nEnvironmentFile=/etc/default/kubelet\n"
        "ExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --config-dir=/k.d $A\n"
    )
    files: dict[str, str] = {}
    for node, policy in (("one", "static"), ("two", "none")):
        files[f"/{node}/var/lib/kubelet/config.yaml"] = kubelet
        files[f"/{node}/etc/systemd/system/kubelet.service"] = unit
        files[f"/{node}/etc/default/kubelet"] = f"A=--cpu-manager-policy={policy}\n"
        files[f"/{node}/k.d/a.conf"] = kubelet + f"reservedSystemCPUs: {len(node)}-{policy}\n"
    found = gather([Source(name, text.encode()) for name, text in files.items()], Files())
    told = {
        d.file: [d.content.word(n).text for n in ("cpuManagerPolicy", "reservedSystemCPUs")]
        for d in found.documents
        if d.kind == "kubelet"
    }
    assert told == {
        "/one/var/lib/kubelet/config.yaml": ["static", "3-static"],
        "/two/var/lib/kubelet/config.yaml": ["none", "3-none"],
    }


@given(st.lists(st.text(max_size=12), max_size=8))
def test_any_flags(texts: list[str]) -> None:
    names = ["--reserved-memory=", "--kube-reserved=", "--eviction-hard=", "--cpu-manager-policy"]
    mixed = [Word("f", 1, 1, names[n % 4] + text) for n, text in enumerate(texts)]
    as_configuration(flags([*mixed, *(Word("f", 1, 1, text) for text in texts)]))


@given(st.text(max_size=120))
def test_any_environment_file(text: str) -> None:
    with contextlib.suppress(Refused):
        known = parse_environment(text, "f")
        list(filled([Word("f", 1, 1, f"${name}") for name in known], known))


@given(VALUES, VALUES)
def test_any_drop_in(one: object, other: object) -> None:
    base, over = nodes({"a": one}), nodes({"a": other})
    assert isinstance(base, Mapping)
    assert isinstance(over, Mapping)
    before = repr((base, over))
    with_drop_in(base, over)
    assert repr((base, over)) == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cpuManagerPolicy: [static]", "3:19: cpuManagerPolicy: a word is expected here"),
        ("memoryManagerPolicy: {a: b}", "3:22: memoryManagerPolicy: a word is expected here"),
        ("systemReserved: 5", "3:17: systemReserved: a mapping is expected here"),
        ("kubeReserved: {cpu: [1]}", "3:21: kubeReserved.cpu: a word is expected here"),
        ("reservedMemory: {a: 1}", "3:17: reservedMemory: a list is expected here"),
        ("reservedMemory: [0]", "3:18: reservedMemory: a mapping is expected here"),
        ("reservedMemory: [{numaNode: [0]}]", "3:29: numaNode: a word is expected here"),
        ("reservedMemory: [{limits: 1Gi}]", "3:27: limits: a mapping is expected here"),
        ("reservedMemory: [{limits: {memory: [1]}}]", "limits.memory: a word is expected here"),
        ("systemReserved: null", None),
        ("systemReserved: ${RESERVED}", None),
        ("reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]", None),
    ],
)
def test_what_a_kubelet_refuses_is_not_understood(text: str, told: str | None) -> None:
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    files = gather([Source("kubelet.yaml", f"{head}{text}\n".encode())], Files())
    assert [document.kind for document in files.documents] == ["unreadable" if told else "kubelet"]
    assert bool(files.unread) == bool(told)
    assert (told or "") in "".join(files.unread)
