"""How hard the generated tests try: NUMADOCTOR_HYPOTHESIS=default, ci or thorough."""

import os

from hypothesis import HealthCheck, settings

# A busy machine must not fail a test: nothing here is about time.
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("default", _COMMON, max_examples=200)
settings.register_profile("ci", _COMMON, max_examples=100, derandomize=True)
settings.register_profile("thorough", _COMMON, max_examples=10_000)
settings.load_profile(os.environ.get("NUMADOCTOR_HYPOTHESIS", "default"))
