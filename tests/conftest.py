"""How laws are tried: on the same examples every time, so that a change is judged by itself and not
by its luck. `--hypothesis-profile=exploring` looks for new ones."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("exploring", deadline=None)
settings.load_profile("steady")
