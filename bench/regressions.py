"""Decide which figures of a benchmark exceed the accepted ones."""

from collections.abc import Mapping

ALLOWED_GROWTH = 0.15


def report(now: Mapping[str, float], accepted: Mapping[str, float]) -> list[str]:
    """Return a table of microseconds."""
    lines = [f"{'operation':12}{'accepted':>10}{'now':>10}{'change':>9}"]
    for operation, taken in now.items():
        was = accepted.get(operation)
        change = "new" if was is None else f"{taken / was - 1:+.0%}"
        lines.append(f"{operation:12}{was or 0:10,.1f}{taken:10,.1f}{change:>9}")
    return lines


def regressions(now: Mapping[str, float], accepted: Mapping[str, float]) -> list[str]:
    """Return the operations that take too much more than accepted. One without an accepted
    figure has none to exceed."""
    return [
        operation
        for operation, taken in now.items()
        if operation in accepted and taken > accepted[operation] * (1 + ALLOWED_GROWTH)
    ]
