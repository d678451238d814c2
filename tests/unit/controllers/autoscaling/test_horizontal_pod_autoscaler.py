from collections.abc import AsyncIterator, Awaitable
from typing import Any

import msgspec
import pytest

from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport
from kedge.controllers.autoscaling.horizontal_pod_autoscaler import (
    PERIOD,
    HorizontalPodAutoscalerController,
)
from kedge.controllers.shared_informers import SharedInformers
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.testing.controllers import ControllerHarness, workshop
from kedge.testing.local_server import TOKEN
from kedge.testing.workloads import workload_document
from kedge.web.message import HttpRequest, Response

SETS = "/apis/apps/v1/namespaces/default/replicasets"
SCALERS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
PODS = "/api/v1/namespaces/default/pods"
Json = dict[str, Any]


class Scene:
    """A set of pods whose usage the test decides, and an autoscaler for it."""

    def __init__(self, place: ControllerHarness) -> None:
        self.place = place
        self.cpu: dict[str, str] = {}
        self.windows: dict[str, Json] = {}
        self.outside: dict[str, list[Json]] = {}
        """The values of custom and external metrics, by the end of the path."""

    def outside_answer(self, path: str) -> Response:
        if path == "/apis/custom.metrics.k8s.io" and self.outside:
            version = {"groupVersion": "custom.metrics.k8s.io/v1beta2"}
            return Response(200, msgspec.json.encode({"preferredVersion": version}))
        for end, items in self.outside.items():
            if path.endswith(end):
                return Response(200, msgspec.json.encode({"items": items}))
        return Response(404, b"404 page not found\n")

    def answer(self, path: str) -> Json:
        now = format_time(self.place.clock.now())
        items: list[Json]
        if path.startswith("/apis/metrics.k8s.io/"):
            items = [
                {"metadata": {"name": name, "namespace": "default"}, "timestamp": now}
                | {"window": "10s", "containers": [{"name": "web", "usage": {"cpu": cpu}}]}
                for name, cpu in self.cpu.items()
            ]
        else:
            items = [
                {"metadata": {"name": name, "namespace": "default"}}
                | {"containers": [{"metadata": {"name": "web"}, "metrics": windows}]}
                for name, windows in self.windows.items()
            ]
        return {"metadata": {}, "items": items}

    async def workload(self, replicas: int, **more: Any) -> None:
        container = {"name": "web", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
        document = workload_document({"spec": {"replicas": replicas, "template": template}})
        await self.place.create(SETS, document)
        for number in range(replicas):
            meta = {"name": f"web-{number}", "namespace": "default", "labels": {"app": "web"}}
            made = await self.place.create(PODS, {"metadata": meta, "spec": template["spec"]})
            await self.place.run_pod(made)
        await self.place.pass_time(600)

    async def autoscaler(self, name: str = "web", **spec: Any) -> None:
        target = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}
        usual = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 10}
        await self.place.create(
            SCALERS, {"metadata": {"name": name}, "spec": usual | {"metrics": [cpu(50)]} | spec}
        )

    async def replicas(self) -> int:
        return int((await self.place.server.get(f"{SETS}/web"))["spec"]["replicas"])

    async def status(self, name: str = "web") -> Json:
        status: Json = (await self.place.server.get(f"{SCALERS}/{name}"))["status"]
        return status

    async def conditions(self) -> dict[str, tuple[str, str]]:
        found = (await self.status())["conditions"]
        return {each["type"]: (each["status"], each["reason"]) for each in found}


def cpu(percent: int, **more: Any) -> Json:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target, **more}}


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scenes: list[Scene] = []

    def controller(client: Client, shared: SharedInformers, clock: Clock) -> Any:
        def handle(call: Call) -> Response | Awaitable[Response]:
            if call.path.startswith(("/apis/custom.", "/apis/external.")):
                return scenes[0].outside_answer(call.path)
            if call.path.startswith("/apis/metrics"):
                return Response(200, msgspec.json.encode(scenes[0].answer(call.path)))
            headers = {**call.headers, "authorization": f"Bearer {TOKEN}"}
            request = HttpRequest(call.method, call.path, call.query, headers, call.body)
            return scenes[0].place.server.app.handle(request)

        return HorizontalPodAutoscalerController(Client(LocalTransport(handle)), shared, clock)

    async with workshop(controller) as place:
        scenes.append(Scene(place))
        yield scenes[0]


async def test_replicas_follow_usage_up_and_after_five_minutes_down(scene: Scene) -> None:
    await scene.workload(2)
    scene.cpu = {"web-0": "900m", "web-1": "700m"}
    await scene.autoscaler()
    assert await scene.replicas() == 4
    status = await scene.status()
    assert status["currentReplicas"] == 2
    assert status["desiredReplicas"] == 4
    assert status["currentMetrics"][0]["resource"]["current"] == {
        "averageUtilization": 80,
        "averageValue": "800m",
    }
    assert status["lastScaleTime"]
    events = await scene.place.events()
    why = "cpu resource utilization (percentage of request) above target"
    assert ("SuccessfulRescale", f"New size: 4; reason: {why}") in events
    scene.cpu = {"web-0": "100m", "web-1": "100m"}
    await scene.place.pass_time(PERIOD)
    assert await scene.replicas() == 4
    assert (await scene.conditions())["AbleToScale"] == ("True", "ScaleDownStabilized")
    await scene.place.pass_time(300)
    assert await scene.replicas() == 1
    assert ("SuccessfulRescale", "New size: 1; reason: All metrics below target") in (
        await scene.place.events()
    )


async def test_conditions_say_what_limits(scene: Scene) -> None:
    await scene.workload(2)
    scene.cpu = {"web-0": "1", "web-1": "1"}
    await scene.autoscaler(maxReplicas=3)
    assert await scene.replicas() == 3
    assert await scene.conditions() == {
        "AbleToScale": ("True", "SucceededRescale"),
        "ScalingActive": ("True", "ValidMetricFound"),
        "ScalingLimited": ("True", "TooManyReplicas"),
    }


async def test_without_metrics_nothing_changes_and_the_reason_is_told(scene: Scene) -> None:
    await scene.workload(2)
    await scene.autoscaler()
    assert await scene.replicas() == 2
    status = await scene.status()
    active = next(each for each in status["conditions"] if each["type"] == "ScalingActive")
    assert (active["status"], active["reason"]) == ("False", "FailedGetResourceMetric")
    assert active["message"] == (
        "the HPA was unable to compute the replica count: failed to get cpu utilization: unable "
        "to get metrics for resource cpu: no metrics returned from resource metrics API"
    )
    reasons = {reason for reason, _ in await scene.place.events()}
    assert {"FailedGetResourceMetric", "FailedComputeMetricsReplicas"} <= reasons


async def test_one_unknown_metric_forbids_removing_but_not_adding(scene: Scene) -> None:
    await scene.workload(2)
    memory = {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}
    both = [cpu(50), {"type": "Resource", "resource": memory}]
    scene.cpu = {"web-0": "1", "web-1": "1"}
    await scene.autoscaler(metrics=both)
    assert await scene.replicas() == 4
    scene.cpu = {"web-0": "1m", "web-1": "1m"}
    await scene.place.pass_time(600)
    assert await scene.replicas() == 4


async def test_a_workload_outside_its_bounds_is_brought_inside_without_metrics(
    scene: Scene,
) -> None:
    await scene.workload(2)
    await scene.autoscaler(minReplicas=3)
    assert await scene.replicas() == 3


async def test_a_workload_that_somebody_stopped_stays_so(scene: Scene) -> None:
    await scene.workload(0)
    await scene.autoscaler()
    assert await scene.replicas() == 0
    assert (await scene.conditions())["ScalingActive"] == ("False", "ScalingDisabled")


async def test_a_target_that_is_not_there_is_told(scene: Scene) -> None:
    await scene.autoscaler()
    assert (await scene.conditions())["AbleToScale"] == ("False", "FailedGetScale")
    target = {"apiVersion": "apps/v1", "kind": "Nonsense", "name": "web"}
    await scene.autoscaler(name="other", scaleTargetRef=target)
    status = await scene.status("other")
    assert 'no matches for kind "Nonsense" in group "apps"' in status["conditions"][0]["message"]


async def test_two_autoscalers_of_the_same_pods_do_nothing(scene: Scene) -> None:
    await scene.workload(1)
    scene.cpu = {"web-0": "500m"}
    await scene.autoscaler("one")
    await scene.autoscaler("two")
    scene.cpu = {"web-0": "1"}
    await scene.place.pass_time(PERIOD)
    assert await scene.replicas() == 1
    found = {each["reason"] for each in (await scene.status("two"))["conditions"]}
    assert "AmbiguousSelector" in found


async def test_a_window_and_a_statistic_may_be_asked_for(scene: Scene) -> None:
    await scene.workload(1)
    now = format_time(scene.place.clock.now())
    used = {"mean": {"cpu": "100m"}, "max": {"cpu": "3"}, "95th": {"cpu": "1500m"}}
    scene.windows = {"web-0": {"1m": {"endtime": now, **used}}}
    scene.cpu = {"web-0": "100m"}
    await scene.autoscaler(metrics=[cpu(50, window="1m", statistic="95th")])
    assert await scene.replicas() == 3


async def test_an_unknown_window_is_refused(scene: Scene) -> None:
    target = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}
    spec = {"scaleTargetRef": target, "maxReplicas": 3}
    body = {"metadata": {"name": "x"}, "spec": spec | {"metrics": [cpu(50, window="2m")]}}
    answer = await scene.place.server.call("POST", SCALERS, body)
    assert answer.status == 422
    assert "spec.metrics[0].resource.window" in answer.message


async def test_container_metrics_count_one_container(scene: Scene) -> None:
    await scene.workload(1)
    scene.cpu = {"web-0": "1"}
    target = {"type": "Utilization", "averageUtilization": 25}
    source = {"name": "cpu", "container": "web", "target": target}
    await scene.autoscaler(metrics=[{"type": "ContainerResource", "containerResource": source}])
    assert await scene.replicas() == 4


def outside(kind: str, target: Json, **more: Any) -> Json:
    source = {"metric": {"name": "qps"}, "target": target, **more}
    return {"type": kind, kind.lower(): source}


def average(amount: str) -> Json:
    return {"type": "AverageValue", "averageValue": amount}


def total(amount: str) -> Json:
    return {"type": "Value", "value": amount}


SERVICE = {"apiVersion": "v1", "kind": "Service", "name": "web"}
PATHS = {
    "Pods": "/default/pods/*/qps",
    "Object": "/default/services/web/qps",
    "External": "/external.metrics.k8s.io/v1beta1/namespaces/default/qps",
}


@pytest.mark.parametrize(
    ("metric", "name", "replicas", "current"),
    [
        (outside("Pods", average("10")), "pods metric qps", 6, {"averageValue": "30"}),
        (
            outside("Object", total("20"), describedObject=SERVICE),
            "Service metric qps",
            6,
            {"value": "60"},
        ),
        (
            outside("Object", average("20"), describedObject=SERVICE),
            "external metric qps(nil)",
            3,
            {"averageValue": "30"},
        ),
        (outside("External", total("20")), "external metric qps(nil)", 6, {"value": "60"}),
        (outside("External", average("20")), "external metric qps(nil)", 3, {"averageValue": "30"}),
    ],
)
async def test_replicas_follow_metrics_of_adapters(
    scene: Scene, metric: Json, name: str, replicas: int, current: Json
) -> None:
    await scene.workload(2)
    sets = await scene.place.server.get(f"{SETS}/web")
    sets["status"] = {"replicas": 2}
    await scene.place.server.put(f"{SETS}/web/status", sets)
    pods = [{"value": "30", "describedObject": {"name": f"web-{n}"}} for n in range(2)]
    scene.outside = {PATHS[metric["type"]]: pods if metric["type"] == "Pods" else [{"value": "60"}]}
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 9, "periodSeconds": 60}]}}
    await scene.autoscaler(metrics=[metric], behavior=behavior)
    assert await scene.replicas() == replicas
    status = await scene.status()
    shown = {key: value for key, value in metric[metric["type"].lower()].items() if key != "target"}
    assert status["currentMetrics"] == [
        {"type": metric["type"], metric["type"].lower(): {**shown, "current": current}}
    ]
    assert (await scene.conditions())["ScalingActive"] == ("True", "ValidMetricFound")
    assert ("SuccessfulRescale", f"New size: {replicas}; reason: {name} above target") in (
        await scene.place.events()
    )


NO_CUSTOM = (
    "unable to fetch metrics from custom metrics API: "
    "no custom metrics API (custom.metrics.k8s.io) registered"
)
NO_EXTERNAL = (
    "unable to get external metric default/qps/nil: unable to fetch metrics from external metrics "
    "API: the server could not find the requested resource (get qps.external.metrics.k8s.io)"
)


@pytest.mark.parametrize(
    ("metric", "why", "first"),
    [
        (
            outside("Pods", average("10")),
            f"unable to get metric qps: {NO_CUSTOM}",
            "failed to get pods metric value: ",
        ),
        (
            outside("Object", total("10"), describedObject=SERVICE),
            f"unable to get metric qps: Service on default web/{NO_CUSTOM}",
            "failed to get object metric value: ",
        ),
        (
            outside("Object", average("10"), describedObject=SERVICE),
            f"unable to get metric qps: Service on default web/{NO_CUSTOM}",
            "failed to get object metric value: failed to get qps object metric: ",
        ),
        (
            outside("Object", {**total("10"), "type": "Utilization"}, describedObject=SERVICE),
            "invalid object metric source: neither a value target nor an average value target "
            "was set",
            "failed to get object metric value: ",
        ),
        (
            outside("External", total("10")),
            NO_EXTERNAL,
            "failed to get qps external metric value: failed to get external metric qps: ",
        ),
        (
            outside("External", average("10")),
            NO_EXTERNAL,
            "failed to get qps external metric value: failed to get qps external metric: ",
        ),
    ],
)
async def test_a_metric_without_an_adapter_is_told_in_conditions_and_events(
    scene: Scene, metric: Json, why: str, first: str
) -> None:
    await scene.workload(2)
    await scene.autoscaler(metrics=[metric])
    assert await scene.replicas() == 2
    reason = f"FailedGet{metric['type']}Metric"
    status = await scene.status()
    assert status["currentReplicas"] == 2
    assert status["currentMetrics"] == [{}]
    (active,) = [each for each in status["conditions"] if each["type"] == "ScalingActive"]
    assert (active["status"], active["reason"]) == ("False", reason)
    assert active["message"] == f"the HPA was unable to compute the replica count: {why}"
    events = await scene.place.events()
    assert (reason, why) in events
    whole = f"invalid metrics (1 invalid out of 1), first error is: {first}{why}"
    assert ("FailedComputeMetricsReplicas", whole) in events
