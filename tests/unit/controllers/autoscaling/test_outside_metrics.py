"""Metrics that adapters serve: paths, queries, and what is told if they do not answer."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kedge.api.autoscaling_v2.metrics import CrossVersionObjectReference, MetricIdentifier
from kedge.api.model import LabelSelector, LabelSelectorRequirement
from kedge.client.client import Client
from kedge.client.discovery import Discovery
from kedge.client.transport import Call, LocalTransport
from kedge.controllers.autoscaling.metric import selector_of
from kedge.controllers.autoscaling.outside_metrics import MOST_BYTES, OutsideMetrics
from kedge.controllers.autoscaling.proposal import UnknownUsage
from kedge.web.message import Response

CUSTOM = "/apis/custom.metrics.k8s.io"
METRIC = MetricIdentifier(name="qps")
CHOSEN = MetricIdentifier(
    name="qps",
    selector=LabelSelector(
        matchLabels={"b": "2", "a": "1"},
        matchExpressions=(LabelSelectorRequirement(key="c", operator="In", values=("x", "y")),),
    ),
)
WEB = CrossVersionObjectReference(kind="Deployment", name="web", apiVersion="apps/v1")


def served(group: str, plural: str, kind: str) -> Any:
    """One resource, as aggregated discovery tells it."""
    resource = {"resource": plural, "responseKind": {"kind": kind}, "verbs": ["get"]}
    return {"metadata": {"name": group}, "versions": [{"version": "v1", "resources": [resource]}]}


DISCOVERED = [served("apps", "deployments", "Deployment"), served("", "services", "Service")]


class Adapter:
    """Answers as an adapter behind the API server does, and records requests."""

    def __init__(self, *items: Any, versions: tuple[str, ...] = ("v1beta2", "v1beta1")) -> None:
        self.asked: list[str] = []
        self.answer: Callable[[], Response] = lambda: Response(
            200, msgspec.json.encode({"items": items})
        )
        self._versions = versions
        client = Client(LocalTransport(self._handle))
        self.metrics = OutsideMetrics(client, Discovery(client))

    def _handle(self, call: Call) -> Response:
        if call.path in ("/api", "/apis"):
            return Response(
                200, msgspec.json.encode({"items": DISCOVERED}), headers=[("ETag", "1")]
            )
        if call.path == CUSTOM:
            if not self._versions:
                return Response(404, b"404 page not found\n")
            versions = [{"groupVersion": f"{CUSTOM[6:]}/{each}"} for each in self._versions]
            group = {"versions": versions, "preferredVersion": versions[0]}
            return Response(200, msgspec.json.encode(group))
        self.asked.append(f"{call.path}?{call.query}" if call.query else call.path)
        return self.answer()


def value(amount: Any, name: str = "") -> Any:
    return {"value": amount, "describedObject": {"kind": "Pod", "name": name}}


async def test_pods_are_asked_for_by_their_labels() -> None:
    adapter = Adapter(value("1500m", "web-0"), value(2, "web-1"))
    found = await adapter.metrics.of_pods("team", "app=web", CHOSEN)
    assert found == {"web-0": 1500, "web-1": 2000}
    (asked,) = adapter.asked
    assert asked == (
        f"{CUSTOM}/v1beta2/namespaces/team/pods/*/qps?labelSelector=app%3Dweb"
        "&metricLabelSelector=a%3D1%2Cb%3D2%2Cc+in+%28x%2Cy%29"
    )


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (WEB, "deployments.apps/web/qps"),
        (CrossVersionObjectReference("Service", "web", "v1"), "services/web/qps"),
        (CrossVersionObjectReference("Service", "web"), "services/web/qps"),
        (CrossVersionObjectReference("Namespace", "other", "v1"), "metrics/qps"),
    ],
)
async def test_an_object_is_asked_for_in_the_namespace_of_the_autoscaler(
    target: CrossVersionObjectReference, path: str
) -> None:
    adapter = Adapter(value("7"), versions=("v1beta1",))
    assert await adapter.metrics.of_object("team", target, METRIC) == 7000
    assert adapter.asked == [f"{CUSTOM}/v1beta1/namespaces/team/{path}"]


async def test_external_values_are_added() -> None:
    adapter = Adapter({"metricName": "qps", "value": "3"}, {"metricName": "qps", "value": "500m"})
    assert await adapter.metrics.external("team", METRIC) == 3500
    assert adapter.asked == ["/apis/external.metrics.k8s.io/v1beta1/namespaces/team/qps"]
    huge = Adapter({"value": "9e18"}, {"value": "9e18"})
    assert await huge.metrics.external("team", METRIC) == (1 << 63) - 1


async def test_no_values_are_an_error() -> None:
    with pytest.raises(UnknownUsage, match=r"^no metrics returned from custom metrics API$"):
        await Adapter().metrics.of_pods("team", "app=web", METRIC)
    with pytest.raises(UnknownUsage, match=r"^no metrics returned from external metrics API$"):
        await Adapter().metrics.external("team", METRIC)
    with pytest.raises(UnknownUsage, match="returned 2 results when we asked for exactly one"):
        await Adapter(value("1"), value("2")).metrics.of_object("team", WEB, METRIC)


async def test_without_an_adapter_the_missing_api_is_named() -> None:
    nobody = Adapter(versions=())
    with pytest.raises(UnknownUsage) as found:
        await nobody.metrics.of_pods("team", "app=web", METRIC)
    assert str(found.value) == (
        "unable to fetch metrics from custom metrics API: "
        "no custom metrics API (custom.metrics.k8s.io) registered"
    )
    with pytest.raises(UnknownUsage, match=r"no known available metric versions found$"):
        await Adapter(versions=("v9",)).metrics.of_object("team", WEB, METRIC)
    unknown = CrossVersionObjectReference(kind="Lamp", name="a", apiVersion="x.io/v1")
    with pytest.raises(UnknownUsage) as found:
        await Adapter().metrics.of_object("team", unknown, METRIC)
    assert str(found.value) == (
        "unable to fetch metrics from custom metrics API: unable to map kind Lamp.x.io to "
        'resource: no matches for kind "Lamp" in group "x.io"'
    )


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            Response(404, b"404 page not found\n"),
            "the server could not find the requested resource (get qps.external.metrics.k8s.io)",
        ),
        (
            Response(503, b"service unavailable\n"),
            "the server is currently unable to handle the request"
            " (get qps.external.metrics.k8s.io)",
        ),
        (
            Response(500, b"boom"),
            'an error on the server ("boom") has prevented the request from succeeding'
            " (get qps.external.metrics.k8s.io)",
        ),
        (
            Response(418, b""),
            "the server rejected our request for an unknown reason"
            " (get qps.external.metrics.k8s.io)",
        ),
        (
            Response(403, b'{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}'),
            "no",
        ),
    ],
)
async def test_errors_are_told_as_by_clients_of_kubernetes(answer: Response, why: str) -> None:
    adapter = Adapter()
    adapter.answer = lambda: answer
    with pytest.raises(UnknownUsage) as found:
        await adapter.metrics.external("team", METRIC)
    assert str(found.value) == f"unable to fetch metrics from external metrics API: {why}"


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"items": 1}',
        b'{"items": [{"value": "lots"}]}',
        b'{"items": [{}]}',
        b" " * (MOST_BYTES + 1),
    ],
)
async def test_a_senseless_answer_is_an_error(body: bytes) -> None:
    adapter = Adapter()
    adapter.answer = lambda: Response(200, body)
    with pytest.raises(UnknownUsage, match=r"^unable to fetch metrics from custom metrics API: "):
        await adapter.metrics.of_pods("team", "app=web", METRIC)


async def test_a_selector_that_no_api_takes_is_an_error() -> None:
    wrong = LabelSelector(matchExpressions=(LabelSelectorRequirement(key="a", operator="Near"),))
    with pytest.raises(UnknownUsage, match="not a valid label selector operator"):
        await Adapter().metrics.external("team", MetricIdentifier(name="qps", selector=wrong))


def test_selectors_are_printed_as_kubernetes_does() -> None:
    assert selector_of(METRIC) == "nil"
    assert selector_of(CHOSEN) == (
        "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},"
        "MatchExpressions:[]LabelSelectorRequirement{"
        "LabelSelectorRequirement{Key:c,Operator:In,Values:[x y],},},}"
    )
