"""Fixtures that tests of the allocator share with those of the kernel's calls."""

from tests.kernel.conftest import _policy_calls_answer, policy_calls

__all__ = ["_policy_calls_answer", "policy_calls"]
