"""Keeps the status of PodDisruptionBudgets: the number of allowed disruptions."""

from typing import Final

from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import PodCondition
from kedge.api.label_selector import compiled
from kedge.api.policy_v1.pod_disruption_budget import (
    RESOURCE,
    PodDisruptionBudget,
    PodDisruptionBudgetStatus,
)
from kedge.client.client import Client
from kedge.client.events import NORMAL, WARNING, Recorder
from kedge.client.informer import Key
from kedge.controllers.disruptions import budget as pure
from kedge.controllers.disruptions.scales import OwnerScales, UnknownScale
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.pod_marks import mark
from kedge.controllers.pod_state import is_leaving, is_ready
from kedge.controllers.shared_informers import (
    SharedInformers,
    controller_of,
    differ_in_status_only,
    key_of,
)
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.machinery.selectors import LabelRequirements

COMPONENT: Final = "controllermanager"
UNMANAGED: Final = (
    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a "
    "result, the status of the PDB cannot be calculated correctly, which may result in undefined "
    'behavior. To account for these pods please set ".spec.minAvailable" field of the PDB to an '
    "integer value."
)


class DisruptionController:
    """Recomputes a budget whenever one of its pods changes."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._pods = shared.of(PODS)
        self._labelled = self._pods.by_labels()
        self._budgets = shared.of(RESOURCE)
        self._scales = OwnerScales(client, shared)
        self._recorder = Recorder(client, clock, COMPONENT)
        self._selectors: dict[Key, LabelRequirements] = {}
        self._loop: ControllerLoop[Key] = ControllerLoop("disruption", self._reconcile, clock)
        self._marks: ControllerLoop[Key] = ControllerLoop("stale-disruption", self._unmark, clock)
        self._budgets.follow(self._budget_changed)
        self._pods.follow(self._pod_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._marks.run(), self._recorder.run())

    # Events: which budgets to reconcile.

    def _budget_changed(
        self, before: PodDisruptionBudget | None, now: PodDisruptionBudget | None
    ) -> None:
        if now is not None:
            self._selectors[key_of(now)] = compiled(now.spec.selector)
            if before is not None and differ_in_status_only(before, now):
                self._loop.add_after_pause(key_of(now), now.status.expectedPods)
            else:
                self._loop.add(key_of(now))
        elif before is not None:
            self._selectors.pop(key_of(before), None)

    def _pod_changed(self, before: Pod | None, now: Pod | None) -> None:
        if now is not None and (seconds := pure.stale_in(now, self._clock.now())) is not None:
            self._marks.add_later(key_of(now), seconds)
        if before is not None and now is not None and _counts_alike(before, now):
            return
        for pod in (before, now):
            if pod is not None:
                self._tell_budgets(pod)

    def _tell_budgets(self, pod: Pod) -> None:
        found = [
            each
            for each in self._budgets.within(pod.metadata.namespace)
            if self._selectors[key_of(each)].matches(pod.metadata.labels)
        ]
        for each in found:
            self._loop.add_after_pause(key_of(each), each.status.expectedPods)
        if len(found) > 1:
            meta = pod.metadata
            message = (
                f'Pod "{meta.namespace}"/"{meta.name}" matches multiple PodDisruptionBudgets.  '
                f'Chose "{found[0].metadata.name}" arbitrarily.'
            )
            self._recorder.record(pod, WARNING, "MultiplePodDisruptionBudgets", message)

    # Budgets.

    async def _reconcile(self, key: Key) -> None:
        budget = self._budgets.get(key.name, key.namespace)
        if budget is None:
            return
        try:
            status = await self._assess(budget)
        except (StatusError, UnknownScale) as error:
            message = f"Failed to calculate the number of expected pods: {error}"
            self._recorder.record(budget, WARNING, "CalculateExpectedPodCountFailed", message)
            status = pure.failed(budget, str(error), self._clock.now())
        await self._write(budget, status)

    async def _assess(self, budget: PodDisruptionBudget) -> PodDisruptionBudgetStatus:
        pods = self._covered(budget)
        if not pods:
            self._recorder.record(budget, NORMAL, "NoPods", "No matching pods found")
        expected = len(pods)
        unowned: list[str] = []
        if pure.needs_scale(budget.spec):
            expected, unowned = await self._scales.of(pods)
        if unowned:
            message = UNMANAGED.format(pure.shown(budget.spec.selector))
            self._recorder.record(budget, WARNING, "UnmanagedPods", message)
        now = self._clock.now()
        disrupted = pure.disrupted(budget, pods, now)
        for pod in disrupted.kept:
            meta = budget.metadata
            message = (
                f"Pod was expected by PDB {meta.namespace}/{meta.name} to be deleted but it wasn't"
            )
            self._recorder.record(pod, WARNING, "NotDeleted", message)
        if disrupted.until is not None:
            self._loop.add_later(key_of(budget), (disrupted.until - now).total_seconds())
        return pure.assessed(
            budget,
            current=pure.healthy(pods, disrupted.expected),
            desired=pure.desired_healthy(budget.spec, expected),
            expected=expected,
            disrupted=disrupted.expected,
            now=now,
        )

    def _covered(self, budget: PodDisruptionBudget) -> list[Pod]:
        selector = self._selectors[key_of(budget)]
        return self._labelled.selected(budget.metadata.namespace, selector.matches)

    async def _write(self, budget: PodDisruptionBudget, status: PodDisruptionBudgetStatus) -> None:
        if _same(status, budget.status):
            return
        changed = replace(budget, status=status)
        await self._budgets.written(
            await self._client.update(RESOURCE, changed, subresource="status")
        )

    # Pods that were to be disrupted, and were not.

    async def _unmark(self, key: Key) -> None:
        pod = self._pods.get(key.name, key.namespace)
        if pod is None:
            return
        seconds = pure.stale_in(pod, self._clock.now())
        if seconds is None:
            return
        if seconds > 0:
            self._marks.add_later(key, seconds)
            return
        said = PodCondition(type=pure.TARGET, status="False")
        await mark(self._client, self._pods, pod, said, self._clock.now())


def _counts_alike(before: Pod, now: Pod) -> bool:
    """Whether two states of a pod are the same in the eyes of a budget."""
    return _seen(before) == _seen(now)


def _seen(pod: Pod) -> tuple[object, ...]:
    owner = controller_of(pod)
    meta = pod.metadata
    return meta.uid, meta.labels, is_leaving(pod), is_ready(pod), owner and owner.uid


def _same(new: PodDisruptionBudgetStatus, old: PodDisruptionBudgetStatus) -> bool:
    return replace(new, conditions=()) == replace(old, conditions=()) and list(
        new.conditions
    ) == list(old.conditions)
