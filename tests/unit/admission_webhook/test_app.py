"""The webhook's answers to requests."""

import asyncio
import json
import threading
from contextlib import suppress
from typing import Any

import pytest
from tests.unit.admission_webhook import reviews

from kedge.admission_webhook import review as review_module
from kedge.admission_webhook.app import AdmissionWebhookApp
from kedge.admission_webhook.limit_ranges import LimitRangesByNamespace
from kedge.web.message import HttpRequest, Response


def review(document: dict[str, Any], group: str = "", plural: str = "pods") -> bytes:
    request = {
        "uid": "u",
        "operation": "CREATE",
        "namespace": "shop",
        "resource": {"group": group, "version": "v1", "resource": plural},
        "object": document,
    }
    head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps({**head, "request": request}).encode()


@pytest.fixture
def ranges() -> LimitRangesByNamespace:
    return LimitRangesByNamespace()


async def ask(
    ranges: LimitRangesByNamespace,
    path: str,
    body: bytes = b"",
    *,
    ready: bool = True,
    method: str = "POST",
    kind: str = "application/json",
) -> Response:
    app = AdmissionWebhookApp(ranges, lambda: "" if ready else "not known yet")
    return await app.handle(HttpRequest(method, path, "", {"content-type": kind}, body))


def told(response: Response) -> dict[str, Any]:
    assert response.status == 200
    assert isinstance(response.body, bytes)
    found: dict[str, Any] = json.loads(response.body)["response"]
    return found


GREEDY = reviews.pod(reviews.container(resources={"limits": {"cpu": "2"}}))
LIMIT = reviews.limit_range({"type": "Container", "max": {"cpu": "1"}})


@pytest.mark.parametrize("padding", [0, 100_000])
async def test_reviews_are_answered_large_ones_too(
    ranges: LimitRangesByNamespace, padding: int
) -> None:
    document = {**GREEDY, "padding": "x" * padding}
    assert told(await ask(ranges, "/validate", review(document)))["allowed"] is True
    ranges.put(LIMIT)
    assert told(await ask(ranges, "/validate", review(document)))["allowed"] is False
    assert told(await ask(ranges, "/mutate", review(document)))["patchType"] == "JSONPatch"


async def test_few_large_reviews_are_worked_on_at_once(
    ranges: LimitRangesByNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[int] = []
    three = threading.Barrier(3)
    read = review_module.read

    def meet(body: bytes) -> review_module.ReviewRequest:
        with suppress(threading.BrokenBarrierError):
            met.append(three.wait(timeout=0.05))
        return read(body)

    monkeypatch.setattr(review_module, "read", meet)
    app = AdmissionWebhookApp(ranges, lambda: "")
    body = review({**GREEDY, "padding": "x" * 100_000})
    head = {"content-type": "application/json"}
    requests = [HttpRequest("POST", "/validate", "", head, body) for _ in range(6)]
    answers = await asyncio.gather(*map(app.handle, requests))
    assert {each.status for each in answers} == {200}
    assert met == []


async def test_before_the_limit_ranges_are_known_nothing_is_decided(
    ranges: LimitRangesByNamespace,
) -> None:
    response = await ask(ranges, "/validate", review(GREEDY), ready=False)
    assert response.status == 503
    assert (await ask(ranges, "/readyz", method="GET", ready=False)).status == 500
    assert (await ask(ranges, "/livez", method="GET", ready=False)).status == 200
    assert (await ask(ranges, "/readyz", method="GET")).status == 200


async def test_an_object_that_is_no_pod_is_refused_in_a_review(
    ranges: LimitRangesByNamespace,
) -> None:
    verdict = told(await ask(ranges, "/mutate", review({"spec": {"containers": "x"}})))
    assert verdict["allowed"] is False
    assert verdict["status"]["code"] == 400


async def test_an_invalid_limit_range_refuses_the_pods_of_its_namespace(
    ranges: LimitRangesByNamespace,
) -> None:
    ranges.put(reviews.limit_range({"type": "Pod", "selector": {}}))
    verdict = told(await ask(ranges, "/validate", review(GREEDY)))
    assert verdict["allowed"] is False
    assert "correct or delete it" in verdict["status"]["message"]


async def test_an_invalid_limit_range_can_be_corrected_and_stops_no_workload(
    ranges: LimitRangesByNamespace,
) -> None:
    ranges.put(reviews.limit_range({"type": "Pod", "selector": {}}))
    correct = {"metadata": {"name": "limits"}, "spec": {"limits": [{"type": "Pod"}]}}
    template = {"template": {"spec": GREEDY["spec"]}}
    for body in (
        review(correct, "kedge.dev", "limitranges"),
        review({"metadata": {"name": "web"}, "spec": template}, "apps", "deployments"),
    ):
        for path in ("/mutate", "/validate"):
            assert told(await ask(ranges, path, body))["allowed"] is True


@pytest.mark.parametrize(
    ("path", "method", "kind", "body", "status"),
    [
        ("/mutate", "GET", "application/json", b"", 405),
        ("/mutate", "POST", "text/plain", b"{}", 415),
        ("/mutate", "POST", "application/json", b"{", 400),
        ("/other", "POST", "application/json", b"{}", 404),
        ("/mutate", "POST", "application/json; charset=utf-8", review(GREEDY), 200),
    ],
)
async def test_other_requests_get_the_status_that_says_why(
    ranges: LimitRangesByNamespace, path: str, method: str, kind: str, body: bytes, status: int
) -> None:
    assert (await ask(ranges, path, body, method=method, kind=kind)).status == status
