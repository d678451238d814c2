"""HorizontalPodAutoscaler: scales workloads by metrics."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kedge.api.autoscaling_v2.horizontal_pod_autoscaler import RESOURCE, HorizontalPodAutoscaler
from kedge.api.autoscaling_v2.metrics import MetricSpec, MetricStatus
from kedge.api.core_v1.pod import pod as pods
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.resource import Resource
from kedge.client.client import Client
from kedge.client.discovery import Discovery
from kedge.client.events import NORMAL, WARNING, Recorder
from kedge.client.informer import Key
from kedge.controllers.autoscaling.metric import name_of, refusal_of, status_of
from kedge.controllers.autoscaling.metric_reader import MetricReader
from kedge.controllers.autoscaling.pace import (
    ConditionReason,
    ReplicaBounds,
    ScalingHistory,
    decide,
)
from kedge.controllers.autoscaling.proposal import UnknownUsage
from kedge.controllers.autoscaling.report import FailedMeasurement, StatusReport
from kedge.controllers.autoscaling.scale_target import ScaleTarget
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.shared_informers import ObjectCache, SharedInformers, key_of
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.machinery.errors import StatusError
from kedge.machinery.selectors import LabelRequirements, parse_labels

COMPONENT: Final = "horizontal-pod-autoscaler"
PERIOD: Final = 15.0
"""Seconds between two looks at an autoscaler's metrics."""
WORKERS: Final = 5
TRIES: Final = 5
"""How often a scale is written that others write at the same time."""

ABLE: Final = "AbleToScale"
ACTIVE: Final = "ScalingActive"
LIMITED: Final = "ScalingLimited"

GOT_SCALE: Final = ConditionReason(
    "SucceededGetScale", "the HPA controller was able to get the target's current scale"
)
DISABLED: Final = ConditionReason(
    "ScalingDisabled", "scaling is disabled since the replica count of the target is zero"
)


class ScalingFailure(Exception):
    """An autoscaler cannot scale now; becomes a condition and an event."""

    def __init__(
        self,
        type_: str,
        verdict: ConditionReason,
        event: ConditionReason,
        *,
        measured: FailedMeasurement | None = None,
    ) -> None:
        super().__init__(verdict.message)
        self.type = type_
        self.verdict = verdict
        self.event = event
        self.measured = measured


class ScalingProposal(msgspec.Struct, frozen=True):
    """The result of all metrics of an autoscaler: the largest proposal counts."""

    replicas: int
    metric: str
    """The one that asks for most."""
    statuses: Sequence[MetricStatus]


class HorizontalPodAutoscalerController:
    """Reconciles every autoscaler four times a minute, and immediately when its spec changes."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: ObjectCache[HorizontalPodAutoscaler] = shared.of(RESOURCE)
        self._pods: ObjectCache[Pod] = shared.of(pods.RESOURCE)
        self._discovery = Discovery(client)
        self._reader = MetricReader(client, self._discovery, clock)
        self._recorder = Recorder(client, clock, COMPONENT)
        self._memories: dict[Key, ScalingHistory] = {}
        self._selectors: dict[Key, LabelRequirements] = {}
        self._loop: ControllerLoop[Key] = ControllerLoop(
            COMPONENT, self.reconcile, clock, workers=WORKERS
        )
        self._known.follow(self._changed)

    async def run(self) -> None:
        await together(self._recorder.run(), self._loop.run())

    def _changed(
        self, before: HorizontalPodAutoscaler | None, now: HorizontalPodAutoscaler | None
    ) -> None:
        # Its status is written here: a new one is no news.
        if before is None or now is None or before.spec != now.spec:
            self._loop.add(key_of(now or before))  # type: ignore[arg-type]

    async def reconcile(self, key: Key) -> None:
        hpa = self._known.get(key.name, key.namespace)
        if hpa is None:
            self._memories.pop(key, None)
            self._selectors.pop(key, None)
            return
        self._loop.add_later(key, PERIOD)
        report = StatusReport(hpa, format_time(self._clock.now()))
        try:
            after = await self._scaled(key, report)
        except ScalingFailure as failure:
            report.say(failure.type, False, failure.verdict)
            self._recorder.record(hpa, WARNING, failure.event.reason, failure.event.message)
            after = report.failed(failure.measured)
        if after.status != hpa.status:
            await self._known.written(
                await self._client.update(RESOURCE, after, subresource="status")
            )

    async def _scaled(self, key: Key, report: StatusReport) -> HorizontalPodAutoscaler:
        """Give the workload the replicas that it should have; the autoscaler with its status."""
        hpa = report.hpa
        scale = await self._scale(hpa)
        report.say(ABLE, True, GOT_SCALE)
        current, now = scale.replicas, self._clock.now()
        memory = self._memories.get(key)
        if memory is None:
            memory = self._memories[key] = ScalingHistory()
            memory.proposed(current, now)
        bounds = ReplicaBounds(
            1 if hpa.spec.minReplicas is None else hpa.spec.minReplicas, hpa.spec.maxReplicas
        )
        if current == 0:
            report.say(ACTIVE, False, DISABLED)
            return report.told(0, 0, ())
        statuses: Sequence[MetricStatus] = ()
        if current > bounds.most:
            desired, reason = bounds.most, "Current number of replicas above Spec.MaxReplicas"
        elif current < bounds.least:
            desired, reason = bounds.least, "Current number of replicas below Spec.MinReplicas"
        else:
            measured = await self._measured(key, report, scale)
            statuses = measured.statuses
            decision = decide(current, measured.replicas, bounds, hpa.spec.behavior, memory, now)
            report.say(ABLE, True, decision.held)
            report.say(LIMITED, decision.limited, decision.limit)
            desired = decision.replicas
            above = measured.replicas > current
            reason = f"{measured.metric} above target" if above else "All metrics below target"
        if desired == current:
            return report.told(current, desired, statuses)
        await self._rescale(hpa, scale, desired, reason)
        memory.changed(desired - current, now)
        report.say(
            ABLE,
            True,
            ConditionReason(
                "SucceededRescale",
                f"the HPA controller was able to update the target scale to {desired}",
            ),
        )
        return report.told(current, desired, statuses, rescaled=True)

    # The workload.

    async def _scale(self, hpa: HorizontalPodAutoscaler) -> ScaleTarget:
        target = hpa.spec.scaleTargetRef
        try:
            resource = await self._resource(target.apiVersion, target.kind)
            document = await self._client.exchange(
                "GET", resource, target.name, "scale", namespace=hpa.metadata.namespace
            )
        except (StatusError, UnknownUsage) as error:
            message = f"the HPA controller was unable to get the target's current scale: {error}"
            reason = "FailedGetScale"
            raise ScalingFailure(
                ABLE, ConditionReason(reason, message), ConditionReason(reason, str(error))
            ) from error
        return ScaleTarget(resource, document)

    async def _resource(self, api_version: str, kind: str) -> Resource[Any]:
        found = self._discovery.known.of_kind(api_version, kind)
        if found is None:
            found = (await self._discovery.served()).of_kind(api_version, kind)
        if found is None:
            group = api_version.rpartition("/")[0]
            raise UnknownUsage(f'no matches for kind "{kind}" in group "{group}"')
        return found

    async def _rescale(
        self, hpa: HorizontalPodAutoscaler, scale: ScaleTarget, replicas: int, reason: str
    ) -> None:
        outcome = f"New size: {replicas}; reason: {reason}"
        try:
            await self._write(hpa, scale, replicas)
        except StatusError as error:
            raise ScalingFailure(
                ABLE,
                ConditionReason(
                    "FailedUpdateScale",
                    f"the HPA controller was unable to update the target scale: {error}",
                ),
                ConditionReason("FailedRescale", f"{outcome}; error: {error}"),
            ) from error
        self._recorder.record(hpa, NORMAL, "SuccessfulRescale", outcome)

    async def _write(self, hpa: HorizontalPodAutoscaler, scale: ScaleTarget, replicas: int) -> None:
        name, namespace = hpa.spec.scaleTargetRef.name, hpa.metadata.namespace
        document = scale.document
        for left in reversed(range(TRIES)):
            wanted = {**document, "spec": {**document.get("spec", {}), "replicas": replicas}}
            try:
                await self._client.exchange(
                    "PUT", scale.resource, name, "scale", wanted, namespace=namespace
                )
                return
            except StatusError as error:
                if error.reason != "Conflict" or not left:
                    raise
            document = await self._client.exchange(
                "GET", scale.resource, name, "scale", namespace=namespace
            )

    # The metrics.

    async def _measured(
        self, key: Key, report: StatusReport, scale: ScaleTarget
    ) -> ScalingProposal:
        """The largest number that a metric asks for.

        While one of them is unknown, replicas may be added but not removed.
        """
        hpa = report.hpa
        selected = await self._selected(key, hpa, scale)
        asked: list[tuple[int, str]] = []
        statuses: list[MetricStatus] = []
        failures: list[tuple[MetricSpec, str]] = []
        for spec in hpa.spec.metrics:
            try:
                proposal = await self._reader.proposal(hpa, spec, scale, selected)
            except UnknownUsage as error:
                failures.append((spec, str(error)))
                self._recorder.record(hpa, WARNING, f"FailedGet{spec.type}Metric", str(error))
                statuses.append(MetricStatus())
            else:
                asked.append((proposal.replicas, name_of(spec)))
                statuses.append(status_of(spec, proposal))
        replicas, metric = max(asked, key=lambda each: each[0], default=(0, ""))
        if failures and (not asked or replicas < scale.replicas):
            spec, why = failures[0]
            message = f"the HPA was unable to compute the replica count: {why}"
            count, total = len(failures), len(hpa.spec.metrics)
            raise ScalingFailure(
                ACTIVE,
                ConditionReason(f"FailedGet{spec.type}Metric", message),
                ConditionReason(
                    "FailedComputeMetricsReplicas",
                    f"invalid metrics ({count} invalid out of {total}), "
                    f"first error is: {refusal_of(spec, why)}",
                ),
                measured=FailedMeasurement(scale.replicas, statuses),
            )
        success = f"the HPA was able to successfully calculate a replica count from {metric}"
        report.say(ACTIVE, True, ConditionReason("ValidMetricFound", success))
        return ScalingProposal(replicas, metric, statuses)

    async def _selected(
        self, key: Key, hpa: HorizontalPodAutoscaler, scale: ScaleTarget
    ) -> list[Pod]:
        """The pods of the workload, which no other autoscaler may have as well."""
        if not scale.selector:
            message = "the HPA target's scale is missing a selector"
            told = ConditionReason("SelectorRequired", "selector is required")
            raise ScalingFailure(ACTIVE, ConditionReason("InvalidSelector", message), told)
        selector = self._selectors[key] = parse_labels(scale.selector)
        namespace = hpa.metadata.namespace
        found = [
            pod for pod in self._pods.within(namespace) if selector.matches(pod.metadata.labels)
        ]
        rivals: list[Key] = []
        for other, theirs in list(self._selectors.items()):
            # A namespace may have a thousand autoscalers, each for a thousand pods.
            await self._clock.give_way()
            if other.namespace == namespace and any(
                theirs.matches(pod.metadata.labels) for pod in found
            ):
                rivals.append(other)
        if len(rivals) > 1:
            names = " ".join(f"{{{each.namespace} {each.name}}}" for each in sorted(rivals))
            message = (
                f"pods by selector {scale.selector} are controlled by multiple HPAs: [{names}]"
            )
            verdict = ConditionReason("AmbiguousSelector", message)
            raise ScalingFailure(ACTIVE, verdict, verdict)
        return found
