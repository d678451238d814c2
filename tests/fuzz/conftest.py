"""Fuzzing: minutes in `make test`, hours by `make fuzz`, which sets KEDGE_FUZZ_HOURS.

A failure prints what it takes to see it again: hypothesis its example, the requests their seed.
"""

import os

from hypothesis import HealthCheck, settings

HOURS = float(os.environ.get("KEDGE_FUZZ_HOURS", 0))
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "fuzz-minutes",
    max_examples=300,
    derandomize=True,
    deadline=2_000,
    suppress_health_check=_QUIET,
)
settings.register_profile(
    "fuzz-hours",
    max_examples=int(60_000 * HOURS) or 1,
    deadline=2_000,
    suppress_health_check=_QUIET,
)
settings.load_profile("fuzz-hours" if HOURS else "fuzz-minutes")
