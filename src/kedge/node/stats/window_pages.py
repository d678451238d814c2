"""WindowPages: metrics/v1alpha1 on the node's own port, for this node and its pods.

The API server asks here for percentiles and histories, which frames do not have.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from kedge.machinery.errors import bad_request, not_found
from kedge.metrics import percentiles, usage_history
from kedge.metrics.frame import Frame, FramePod, in_whole_numbers
from kedge.metrics.percentiles import Percentile
from kedge.metrics.serve import encoding
from kedge.metrics.track import Track
from kedge.metrics.windows import TICK_SECONDS, WINDOWS
from kedge.node.stats.sampler import Sampler
from kedge.web.message import HttpRequest, Response, json_response

Document = dict[str, Any]

_GROUP: Final = "metrics"
_VERSION: Final = f"{_GROUP}/v1alpha1"
_LISTS: Final = {"nodes": "NodeList", "pods": "PodList"}


class WindowPages:
    """Serves get and list; watches are the API server's."""

    def __init__(self, sampler: Sampler, node: str, uid: Callable[[], str]) -> None:
        self._sampler = sampler
        self._node = node
        self._uid = uid

    def answer(self, request: HttpRequest) -> Response | None:
        """Return the page for a path; None if there is none. Raises 400 and 404."""
        wanted = requested(request)
        _, _, *path = [unquote(part) for part in request.path.strip("/").split("/")][1:]
        frame = in_whole_numbers(self._sampler.current(self._node, self._uid(), TICK_SECONDS))
        pods = [each for each in frame.pods if each.containers]
        match path:
            case ["nodes"]:
                return _listed("nodes", [self._node_document(frame, wanted)])
            case ["nodes", name]:
                if name != self._node:
                    raise not_found(_GROUP, "nodes", name)
                shown = self._node_document(frame, wanted)
                if request.query.flag(usage_history.PARAMETER):
                    shown["history"] = usage_history.document(
                        self._sampler.node.machine.histories()
                    )
                return json_response(shown)
            case ["pods"]:
                return _listed("pods", [self._pod(frame, each, wanted) for each in pods])
            case ["namespaces", namespace, "pods", *name] if len(name) < 2:
                found = [each for each in pods if each.namespace == namespace]
                if not name:
                    return _listed("pods", [self._pod(frame, each, wanted) for each in found])
                one = self._named(frame, found, name[0], wanted)
                if request.query.flag(usage_history.PARAMETER):
                    self._add_histories(one)
                return json_response(one)
            case _:
                return None

    def _named(
        self, frame: Frame, found: Sequence[FramePod], name: str, wanted: Sequence[Percentile]
    ) -> Document:
        for each in found:
            if each.name == name:
                return self._pod(frame, each, wanted)
        raise not_found(_GROUP, "pods", name)

    def _add_histories(self, made: Document) -> None:
        """Add the course of each container of a pod, and that of their sum."""
        meter = self._sampler.meters[made["metadata"]["uid"]]
        for each in made["containers"]:
            track = meter.containers[each["metadata"]["name"]].track
            each["history"] = usage_history.document(track.histories())
        if "total" in made and meter.total is not None:
            made["history"] = usage_history.document(meter.total.histories())

    def _node_document(self, frame: Frame, wanted: Sequence[Percentile]) -> Document:
        node = self._sampler.node
        head = encoding.metadata(self._node, "", frame.uid, frame.end_tick, frame.since, "")
        made = _decoded("Node", head, encoding.node(frame))
        _add(made["machine"], node.machine, wanted)
        for each in made["systemContainers"]:
            _add(each["metrics"], node.systems[each["metadata"]["name"]], wanted)
        return made

    def _pod(self, frame: Frame, pod: FramePod, wanted: Sequence[Percentile]) -> Document:
        meter = self._sampler.meters[pod.uid]
        marks = encoding.marks(meter.pod.metadata.labels)
        end = pod.end_tick or frame.end_tick
        head = encoding.metadata(pod.name, pod.namespace, pod.uid, end, pod.since, marks)
        total = (pod.row, pod.since)
        made = _decoded("Pod", head, encoding.pod(frame, end, pod.containers, total))
        for each in made["containers"]:
            _add(each["metrics"], meter.containers[each["metadata"]["name"]].track, wanted)
        if "total" in made and meter.total is not None:
            _add(made["total"], meter.total, wanted)
        return made


def requested(request: HttpRequest) -> tuple[Percentile, ...]:
    """The percentiles that a request asks for; 400 if they make no sense."""
    if percentiles.PARAMETER not in request.query:
        return ()
    try:
        return percentiles.parse(request.query.get(percentiles.PARAMETER))
    except ValueError as error:
        raise bad_request(str(error)) from None


def _decoded(kind: str, head: bytes, rest: bytes) -> Document:
    made: Document = msgspec.json.decode(encoding.beginning(kind) + head + rest)
    return made


def _add(windows: dict[str, Any], track: Track, wanted: Sequence[Percentile]) -> None:
    if not wanted:
        return
    for window in WINDOWS:
        if window in windows:
            windows[window] |= _statistics(track.percentiles(window, wanted), wanted)


def _statistics(
    found: Mapping[str, Sequence[float]], wanted: Sequence[Percentile]
) -> dict[str, dict[str, str]]:
    return {
        each.key: {name: encoding.quantity(name, numbers[at]) for name, numbers in found.items()}
        for at, each in enumerate(wanted)
    }


def _listed(plural: str, items: Sequence[Document]) -> Response:
    return json_response(
        {"kind": _LISTS[plural], "apiVersion": _VERSION, "metadata": {}, "items": items}
    )
