"""DashboardOnDemand: the steps of the dashboard, which is loaded with the first browser."""

from typing import TYPE_CHECKING

from kedge.apiserver.authentication.authenticator import Authenticator
from kedge.apiserver.context import RequestContext
from kedge.apiserver.ui.paths import SECRET_HEADER, is_page
from kedge.machinery.clock import Clock

if TYPE_CHECKING:
    from kedge.apiserver.ui.dashboard import Dashboard


class DashboardOnDemand:
    """Steps of every request. Most clusters never load the rest."""

    def __init__(self, authenticator: Authenticator, clock: Clock) -> None:
        self._authenticator = authenticator
        self._clock = clock
        self._made: Dashboard | None = None

    def identify(self, context: RequestContext) -> None:
        """Before authentication: give requests of the page the credentials of their session."""
        headers = context.http.headers
        if ("cookie" in headers or SECRET_HEADER in headers) and not _is_ours(context):
            self._dashboard.identify(context)

    def check(self, context: RequestContext) -> None:
        """Instead of authorization: refuse what may not be done below `/ui`."""
        if context.target is None and is_page(context.http.path):
            self._dashboard.check(context)

    def answer(self, context: RequestContext) -> None:
        """Answer requests for paths below `/ui`."""
        if context.target is None and is_page(context.http.path):
            self._dashboard.answer(context)

    @property
    def _dashboard(self) -> "Dashboard":
        if self._made is None:
            from kedge.apiserver.ui.dashboard import Dashboard

            self._made = Dashboard(self._authenticator, self._clock)
        return self._made


def _is_ours(context: RequestContext) -> bool:
    return context.target is None and is_page(context.http.path)
