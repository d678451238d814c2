"""How laws are tried: on the same examples every time, so that a change is judged by itself and not
by its luck. `--hypothesis-profile=exploring` looks for new ones."""

import pytest
from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("exploring", deadline=None)
# tools/mutate.py: a mutant need only be noticed, so no smaller example of the failure is searched.
settings.register_profile(
    "mutants",
    max_examples=25,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why the first try of a test failed, which pytest does not if the second one passes."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"first try of {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
