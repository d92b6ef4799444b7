import functools

import pytest

from numadoctor.kernel import syscalls
from tests.kernel.child import in_child


@functools.cache
def _policy_calls_answer() -> object:
    return in_child(lambda: [syscalls.mbind(0, 0, 0, 0, 0), syscalls.get_mempolicy(0, 0, 0, 0, 0)])


@pytest.fixture
def policy_calls() -> None:
    """For tests that make the real calls: skipped where the kernel lacks them or a filter is."""
    answer = _policy_calls_answer()
    if answer != [[0, 0], [0, 0]]:
        pytest.skip(f"mbind and get_mempolicy do not reach the kernel here: {answer}")
