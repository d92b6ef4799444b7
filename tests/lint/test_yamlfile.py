"""YAML into nodes: the same values as PyYAML gives, at their places, and never more of them."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.lint.nodes import Mapping, Node, Refused, Sequence, Word
from numadoctor.lint.yamlfile import DEEPEST, parse_yaml

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
DATA = st.recursive(
    TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def plain(node: Node) -> Any:
    if isinstance(node, Mapping):
        return {name.text: plain(value) for name, value in node.items()}
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    assert isinstance(node, Word)
    return node.text


def only(text: str) -> Any:
    (root,) = parse_yaml(text, "f")
    return root


@given(DATA.filter(lambda data: data != ""), st.booleans(), st.booleans())
def test_values_are_those_of_pyyaml(data: Any, flow: bool, unicode: bool) -> None:
    text = yaml.safe_dump([data], default_flow_style=flow, allow_unicode=unicode)
    assert plain(only(text)) == [data]


@given(st.lists(st.text(st.sampled_from("abc01"), min_size=1), min_size=1, max_size=6))
def test_words_stand_at_their_places(words: list[str]) -> None:
    text = "\n".join(f"{'  ' * (n % 3)}- [x, {word}]" for n, word in enumerate(words[:1]))
    text += "".join(f"\n- [x, {word}]" for word in words[1:])
    lines = text.split("\n")
    for item in only(text).items:
        for word in item.items:
            assert lines[word.line - 1][word.column - 1 :].startswith(word.text)


def test_a_block_begins_with_its_text() -> None:
    root = only("a: |\n\n    one\n    two\nb: x\n")
    word = root.word("a")
    assert (word.line, word.column, word.style) == (3, 5, "|")


def test_merge_keys_give_way_to_names() -> None:
    text = "a: &a {k: 1, l: 2}\nb: &b {l: 3, m: 4}\nc: {<<: [*a, *b], k: 5}\nd: {<<: *a}\n"
    root = only(text)
    assert plain(root.get("c")) == {"k": "5", "l": "2", "m": "4"}
    assert plain(root.get("d")) == {"k": "1", "l": "2"}
    assert root.get("c").repeated == []


def test_names_that_stand_twice() -> None:
    root = only("a: 1\nb: 2\na: 3\n")
    assert root.word("a").text == "3"
    assert [(word.text, word.line) for word in root.repeated] == [("a", 3)]


def test_null_is_no_value() -> None:
    root = only("a:\nb: ~\nc: null\nd: ''\ne: 'null'\n")
    assert [root.word(name) is None for name in "abcde"] == [True, True, True, False, False]


def test_several_documents_and_empty_ones() -> None:
    assert [plain(root) for root in parse_yaml("---\na: 1\n---\n---\n# x\n---\nb: 2\n", "f")] == [
        {"a": "1"}, {"b": "2"},
    ]  # fmt: skip
    assert list(parse_yaml("", "f")) == []


def test_an_anchor_that_holds_itself_is_followed_no_further() -> None:
    root = only("a: &a [*a, x]\nb: &b {c: *b}\n")
    assert root.sequence("a").items[0] is root.get("a")
    assert root.get("b", *["c"] * 50) is root.get("b")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a: [1\nb: 2\n", 2, "no YAML"),
        ("a:\n\t- b\n", 2, "a tab"),
        ("a: *b\n", 1, "no anchor"),
        ("a: 1\n--- \nb: {\n", 4, "no YAML"),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), 1, "levels deep"),
        ("- " * (DEEPEST + 1) + "x", 1, "levels deep"),
    ],
)
def test_what_is_refused(text: str, line: int, reason: str) -> None:
    with pytest.raises(Refused, match=reason) as told:
        list(parse_yaml(text, "f"))
    assert told.value.line == line


@given(st.text(st.sampled_from("ab:- \n\t[]{}&*!|>'\"#%@,?<0"), max_size=80))
def test_any_text_gives_nodes_or_is_refused(text: str) -> None:
    try:
        roots = list(parse_yaml(text, "f"))
    except Refused:
        return
    assert all(isinstance(root, Node) for root in roots)
