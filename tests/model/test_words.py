"""Counts, ids and enumerations in words."""

import pytest

from numadoctor.model.words import count, cpus_text, listed, nodes_text


@pytest.mark.parametrize(
    ("texts", "text"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_listed(texts: list[str], text: str) -> None:
    assert listed(iter(texts)) == text


@pytest.mark.parametrize(
    ("ids", "text"),
    [((), "no node"), ((8,), "node 8"), ((8, 8), "node 8"), ((0, 8, 1), "nodes 0-1,8")],
)
def test_nodes_in_words(ids: tuple[int, ...], text: str) -> None:
    assert nodes_text(iter(ids)) == text
    assert cpus_text(iter(ids)) == text.replace("node", "CPU")


def test_counts_in_words() -> None:
    assert count(1, "page") == "1 page"
    assert count(0, "page") == "0 pages"
    assert count(2048, "process", "processes") == "2,048 processes"
