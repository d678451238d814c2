"""ClusterControls: the pages under /testing, which exist only in clusters for tests."""

from collections.abc import Sequence
from typing import Final

import msgspec

from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.node_types import is_simulated
from kedge.api.testing import fault_rule
from kedge.api.testing.clock_change import ClockChange, ClockState, decoded_change
from kedge.apiserver.api import Api
from kedge.apiserver.app import ControlSteps
from kedge.apiserver.authorization.node import node_name
from kedge.apiserver.context import Answer, RequestContext
from kedge.apiserver.request import User
from kedge.apiserver.testing import fault_steps
from kedge.apiserver.testing.clock_followers import ClockFollowers
from kedge.apiserver.testing.fault_table import FaultTable
from kedge.apiserver.testing.request_log import RequestLog, record
from kedge.apiserver.testing.snapshots import Snapshots
from kedge.machinery.durations import format_micro_time
from kedge.machinery.errors import bad_request, method_not_allowed, too_large
from kedge.machinery.travel_clock import TravelClock
from kedge.web.message import HttpRequest, Response

PREFIX: Final = "/testing/"
LAST_YEAR: Final = 9000
YEAR_SECONDS: Final = 365 * 86400
MOST_BYTES: Final = 1 << 16
"""Bytes of the body of a request to these pages."""


class ClusterControls:
    """The abilities of tests that clients of Kubernetes do not have."""

    def __init__(self, api: Api, faults: FaultTable) -> None:
        self._api = api
        self._faults = faults
        self._requests = RequestLog()
        self._snapshots = Snapshots(api)
        clock = api.clock
        self._followers = ClockFollowers(clock) if isinstance(clock, TravelClock) else None

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
            context.answer = self._page(context.http, context.user)

    def _page(self, http: HttpRequest, user: User) -> Answer | None:
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
            case ["clock"]:
                return self._clock_page(http)
            case ["clock", "course"]:
                return self._course_page(http, user)
            case ["snapshots", *below]:
                return self._snapshot_page(http, below)
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

    def _clock_page(self, http: HttpRequest) -> Answer | None:
        clock, followers = self._api.clock, self._followers
        if not isinstance(clock, TravelClock) or followers is None:
            return None
        match http.method:
            case "GET":
                return _document(state_of(clock, followers.behind(self._nodes())))
            case "POST":
                wanted = decoded_change(_body(http))
                change(clock, wanted)
                return self._clock_followed(clock, followers, wanted)
            case _:
                raise method_not_allowed()

    async def _clock_followed(
        self, clock: TravelClock, followers: ClockFollowers, wanted: ClockChange
    ) -> Response:
        """Answer when the nodes have followed a change of the clock. Only then it counts for their
        silence, and it never does if some of them cannot follow: they renew their leases in the
        machine's time."""
        await followers.follow()
        behind = followers.behind(self._nodes())
        if behind:
            clock.withhold(wanted.advance)
        else:
            clock.release(wanted.advance)
        return _document(state_of(clock, behind))

    def _nodes(self) -> list[str]:
        """Return the nodes that have a clock of their own: simulated ones follow as one client."""
        nodes = self._api.cache.of(NODES).values()
        return [item.key.rpartition("/")[2] for item in nodes if not is_simulated(item.labels)]

    def _course_page(self, http: HttpRequest, user: User) -> Answer | None:
        if self._followers is None:
            return None
        if http.method != "GET":
            raise method_not_allowed()
        name = user.name if (node := node_name(user)) is None else node
        return self._course(self._followers, name, http.query.get("version"))

    async def _course(self, followers: ClockFollowers, name: str, version: str) -> Response:
        return _document(await followers.course(name, version))

    def _snapshot_page(self, http: HttpRequest, below: list[str]) -> Answer | None:
        match http.method, below:
            case "GET", []:
                return _document({"items": self._snapshots.infos()})
            case "POST", []:
                return self._take_snapshot()
            case "GET", [name]:
                return Response(200, self._snapshots.content(name))
            case "DELETE", [name]:
                return _document(self._snapshots.delete(name))
            case "POST", [name, "restore"]:
                return self._restore(name)
            case _, [] | [_] | [_, "restore"]:
                raise method_not_allowed()
            case _:
                return None

    async def _take_snapshot(self) -> Response:
        return _document(await self._snapshots.take(), 201)

    async def _restore(self, name: str) -> Response:
        return _document(await self._snapshots.restore(name))


def change(clock: TravelClock, wanted: ClockChange) -> None:
    """Move a clock; 400 if its time would have no spelling any more."""
    if clock.now().year + wanted.advance / YEAR_SECONDS > LAST_YEAR:
        raise bad_request(f"advance: the clock would pass the year {LAST_YEAR}")
    if wanted.frozen is True:
        clock.freeze()
    if wanted.frozen is False:
        clock.resume()
    clock.advance(wanted.advance)


def state_of(clock: TravelClock, behind: Sequence[str] = ()) -> ClockState:
    """Return where a clock stands, and the nodes that do not follow it."""
    reading = clock.reading
    return ClockState(
        now=format_micro_time(reading.now),
        offset=reading.offset,
        frozen=reading.frozen,
        behind=list(behind),
    )


def _body(http: HttpRequest) -> bytes:
    if len(http.body) > MOST_BYTES:
        raise too_large(MOST_BYTES)
    return http.body


def _document(content: object, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(content))
