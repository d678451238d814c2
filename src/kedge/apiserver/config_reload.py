"""Configuration files that are read again while the server runs: outcome, metric and log line."""

import logging
from collections import Counter
from typing import Final

from kedge.apiserver.telemetry import Telemetry
from kedge.machinery.clock import Clock

log = logging.getLogger(__name__)

_HELP: Final = "Reloads of the {} configuration, by outcome."
_LAST_HELP: Final = "Time of the last reload of the {} configuration, by outcome."


class ReloadLog:
    """Counts and logs the reloads of one file."""

    def __init__(self, subject: str, clock: Clock) -> None:
        """`subject` is `authentication`, `authorization` or `encryption`."""
        self.subject = subject
        self._clock = clock
        self.counts: Counter[str] = Counter()
        """Changes of the file, by `success` and `failure`."""
        self._times: dict[str, float] = {}
        """The time of the last one of each, in seconds since 1970."""

    def succeeded(self) -> None:
        self._count("success")
        log.info("reloaded %s config", self.subject)

    def failed(self, error: Exception) -> None:
        """Note that the configuration before stays in force."""
        self._count("failure")
        log.error("%s config not reloaded error=%s", self.subject, str(error) or "timeout")

    def add_metrics(self, telemetry: Telemetry) -> None:
        name = f"apiserver_{self.subject}_config_controller_automatic_reload"
        telemetry.counter(
            f"{name}s_total",
            _HELP.format(self.subject),
            lambda: ((f'status="{key}"', n) for key, n in sorted(self.counts.items())),
        )
        telemetry.gauge(
            f"{name}_last_timestamp_seconds",
            _LAST_HELP.format(self.subject),
            lambda: ((f'status="{key}"', t) for key, t in sorted(self._times.items())),
        )

    def _count(self, status: str) -> None:
        self.counts[status] += 1
        self._times[status] = self._clock.now().timestamp()
