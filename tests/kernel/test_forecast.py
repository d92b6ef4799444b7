from hypothesis import given
from hypothesis import strategies as st

from numadoctor.kernel.forecast import predict_bind

nodes = st.frozensets(st.integers(0, 9), max_size=6)


def test_case_10_a_node_outside_the_cpuset() -> None:
    forecast = predict_bind([1], mems_allowed=[0], memory_nodes=[0, 1])
    assert forecast.errno == "EINVAL"
    assert forecast.effective == ()
    assert forecast.not_allowed == (1,)
    assert forecast.because == (
        "Asked for node 1; Mems_allowed_list is 0: no node is left, and the call answers EINVAL."
    )
    docker = next(fix for fix in forecast.fixes if fix.launcher == "docker")
    assert docker.text == "--cpuset-mems 1"
    assert "missing" not in forecast.because


def test_case_14_a_narrowed_interleave_set() -> None:
    forecast = predict_bind([0, 1], mems_allowed=[0])
    assert forecast.errno is None
    assert forecast.effective == (0,)
    assert forecast.narrowed
    assert forecast.because == (
        "Asked for node 0-1; Mems_allowed_list is 0: the kernel uses node 0 and drops the rest "
        "without a word."
    )


def test_a_node_without_memory_is_no_matter_of_the_cpuset() -> None:
    forecast = predict_bind([2], mems_allowed=[0, 1, 2], memory_nodes=[0, 1])
    assert forecast.errno == "EINVAL"
    assert forecast.without_memory == (2,)
    assert "no memory on node 2" in forecast.because
    assert not forecast.fixes


def test_all_allowed() -> None:
    forecast = predict_bind([8, 0, 0], mems_allowed=range(16))
    assert (forecast.asked, forecast.effective, forecast.errno) == ((0, 8), (0, 8), None)
    assert not forecast.narrowed
    assert not forecast.fixes


def test_no_node_at_all() -> None:
    assert predict_bind([], mems_allowed=[0]).errno == "EINVAL"


def test_an_unknown_cpuset_predicts_nothing() -> None:
    forecast = predict_bind([1], mems_allowed=None)
    assert (forecast.effective, forecast.errno, forecast.narrowed) == (None, None, False)
    assert "not known" in forecast.because


@given(nodes, nodes, st.one_of(st.none(), nodes))
def test_the_sets_add_up(
    asked: frozenset[int], allowed: frozenset[int], memory: frozenset[int] | None
) -> None:
    forecast = predict_bind(asked, allowed, memory)
    kept = {n for n in asked if n in allowed and (memory is None or n in memory)}
    assert set(forecast.effective or ()) == kept
    assert (forecast.errno == "EINVAL") == (not kept)
    if asked:
        parts = [*(forecast.effective or ()), *forecast.not_allowed, *forecast.without_memory]
        assert sorted(parts) == sorted(asked)
    assert forecast.narrowed == bool(kept and kept != asked)
