"""ClusterControls: the pages under /testing, which exist only in clusters for tests."""

from typing import Final

import msgspec

from kedge.api.testing import fault_rule
from kedge.apiserver.api import Api
from kedge.apiserver.app import ControlSteps
from kedge.apiserver.context import Answer, RequestContext
from kedge.apiserver.testing import fault_steps
from kedge.apiserver.testing.fault_table import FaultTable
from kedge.apiserver.testing.request_log import RequestLog, record
from kedge.machinery.errors import method_not_allowed, too_large
from kedge.web.message import HttpRequest, Response

PREFIX: Final = "/testing/"
MOST_BYTES: Final = 1 << 16
"""Bytes of the body of a request to these pages."""


class ClusterControls:
    """The abilities of tests that clients of Kubernetes do not have."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._faults = FaultTable()
        self._requests = RequestLog()

    def steps(self) -> ControlSteps:
        clock = self._api.clock
        return ControlSteps(
            before_work=(self._pages, fault_steps.inject(self._faults, clock)),
            after_work=(fault_steps.delay(clock),),
            last=(
                fault_steps.follow(self._faults),
                record(self._requests, clock, except_below=PREFIX),
            ),
        )

    def _pages(self, context: RequestContext) -> None:
        if context.target is None and context.http.path.startswith(PREFIX):
            context.answer = self._page(context.http)

    def _page(self, http: HttpRequest) -> Answer | None:
        match http.path.removeprefix(PREFIX).strip("/").split("/"):
            case ["faults"]:
                return self._fault_list(http)
            case ["faults", name]:
                if http.method != "DELETE":
                    raise method_not_allowed()
                return _document(self._faults.remove(name))
            case ["requests"]:
                if http.method != "GET":
                    raise method_not_allowed()
                return _document(self._requests.page(http.query))
            case _:
                return None

    def _fault_list(self, http: HttpRequest) -> Response:
        match http.method:
            case "GET":
                return _document({"items": self._faults.rules()})
            case "POST":
                return _document(self._faults.add(fault_rule.decoded(_body(http))), 201)
            case "DELETE":
                return _document({"items": self._faults.clear()})
            case _:
                raise method_not_allowed()


def _body(http: HttpRequest) -> bytes:
    if len(http.body) > MOST_BYTES:
        raise too_large(MOST_BYTES)
    return http.body


def _document(content: object, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(content))
