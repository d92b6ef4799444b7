from tests.kernel.conftest import policy_calls

__all__ = ["policy_calls"]
