"""Configuration files that are read again while the server runs: outcome, metric and log line."""

import logging
from collections import Counter
from typing import Final

from kedge.apiserver.telemetry import Telemetry

log = logging.getLogger(__name__)

_HELP: Final = "Reloads of the {} configuration, by outcome."


class ReloadLog:
    """Counts and logs the reloads of one file."""

    def __init__(self, subject: str) -> None:
        """`subject` is `authentication`, `authorization` or `encryption`."""
        self.subject = subject
        self.counts: Counter[str] = Counter()
        """Changes of the file, by `success` and `failure`."""

    def succeeded(self) -> None:
        self.counts["success"] += 1
        log.info("reloaded %s config", self.subject)

    def failed(self, error: Exception) -> None:
        """Note that the configuration before stays in force."""
        self.counts["failure"] += 1
        log.error("%s config not reloaded error=%s", self.subject, error or "timeout")

    def add_metric(self, telemetry: Telemetry) -> None:
        name = f"apiserver_{self.subject}_config_controller_automatic_reloads_total"
        telemetry.counter(
            name,
            _HELP.format(self.subject),
            lambda: ((f'status="{key}"', n) for key, n in sorted(self.counts.items())),
        )
