"""Whether the LimitRanges that the webhook decides by are those of the cluster."""

from typing import Any, Final

from kedge.admission_webhook.limit_ranges import GROUP, PLURAL
from kedge.client.informer import Informer
from kedge.machinery.clock import Clock

SILENCE_SECONDS: Final = 130.0
"""An API server sends a bookmark each minute. A watch that misses two is begun anew."""
STALE_SECONDS: Final = 300.0
"""After so long without any word from the API server, the webhook decides nothing."""
_HINT: Final = "is their CustomResourceDefinition there, and may the webhook list them?"


class LimitRangeFreshness:
    """Says why the LimitRanges are not known."""

    def __init__(self, informer: Informer[Any], clock: Clock) -> None:
        """The informer notes silence."""
        self._informer = informer
        self._clock = clock

    def problem(self) -> str:
        """Return why no review can be answered; empty if all can."""
        if not self._informer.synced.is_set():
            return f"the {PLURAL}.{GROUP} of the cluster are not known yet: {_HINT}"
        silent = self._clock.monotonic() - self._informer.heard
        if silent < STALE_SECONDS:
            return ""
        return (
            f"the {PLURAL}.{GROUP} of the cluster have not been heard of for {silent:.0f} s, and"
            " may have changed: look for the error in the log of the webhook, and check whether its"
            " token has expired"
        )
