from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.engine.thresholds import THRESHOLDS, set_thresholds, threshold
from numadoctor.model import ParseError
from numadoctor.model.units import parse_amount


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    yield
    set_thresholds({})


def test_each_has_its_reason() -> None:
    for name, one in THRESHOLDS.items():
        assert one.value > 0, name
        assert one.unit, name
        assert len(one.reason) > 20, name
        assert one.unit != "share" or one.value < 1, name


def test_a_site_sets_its_own_and_the_rest_stays() -> None:
    set_thresholds({"off-node": 0.25})
    assert threshold("off-node") == 0.25
    assert threshold("large-pool") == THRESHOLDS["large-pool"].value
    assert set_thresholds({"large-pool": 1, "slow-memory": "1.5GiB"}) == {
        "large-pool": 1,
        "slow-memory": 3 << 29,
    }
    assert threshold("slow-memory") == 3 << 29
    assert threshold("off-node") == THRESHOLDS["off-node"].value


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"off-nodes": 0.1}, "there is none"),
        ({"off-node": 1.5}, "between 0 and 1"),
        ({"off-node": -0.1}, "from 0 on"),
        ({"off-node": float("nan")}, "from 0 on"),
        ({"window": float("inf")}, "from 0 on"),
        ({"large-pool": 10**5000}, "too large"),
        ({"large-pool": (1 << 60) + 1}, "too large"),
        ({"large-pool": -(10**5000)}, "below 0"),
        ({"large-pool": "1025P"}, "more than any machine has"),
        ({"large-pool": 1.5}, "a part of a byte"),
        ({"large-pool": -1}, "below 0"),
        ({"large-pool": float("inf")}, "write it as 64GiB"),
        ({"large-pool": True}, "from 0 on"),
        ({"large-pool": []}, "from 0 on"),
        ({"fault-rate": 10**5000}, "too large"),
        ({"large-pool": "much"}, "write it as 64GiB"),
        ({"window": "2M"}, "from 0 on"),
        ({"off-node": "much"}, "from 0 on"),
        ({"off-node": True}, "from 0 on"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    values: dict[str, object], reason: str
) -> None:
    set_thresholds({"off-node": 0.2})
    with pytest.raises(ParseError, match=reason):
        set_thresholds({"large-pool": 5, **values})
    assert threshold("off-node") == 0.2
    assert threshold("large-pool") == THRESHOLDS["large-pool"].value


@given(
    values=st.dictionaries(
        st.sampled_from(sorted(THRESHOLDS)) | st.text(max_size=8),
        st.floats() | st.integers() | st.text(max_size=8) | st.booleans(),
    )
)
def test_any_values_are_taken_or_refused(values: dict[str, float | str]) -> None:
    try:
        taken = set_thresholds(values)
    except ParseError:
        return
    assert taken.keys() == values.keys()
    for name, value in values.items():
        meant = parse_amount(value) if isinstance(value, str) else value
        assert threshold(name) == taken[name] == float(meant)
