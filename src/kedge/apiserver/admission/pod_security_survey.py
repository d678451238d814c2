"""Looks at the pods of a namespace whose Pod Security level is raised."""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from kedge.api.core_v1.pod import pod
from kedge.api.pod_security.levels import LevelVersion
from kedge.api.pod_security.standards import reasons, violations
from kedge.apiserver.watchcache import Item, ResourceCache, Selection
from kedge.machinery.clock import Clock
from kedge.machinery.selectors import FieldSelector, LabelRequirements

MOST_PODS: Final = 3000
MOST_SECONDS: Final = 1.0


class _PodOwner(msgspec.Struct):
    uid: str = ""
    controller: bool | None = None


class _OwnedMetadata(msgspec.Struct, frozen=True, rename="camel"):
    owner_references: tuple[_PodOwner, ...] = ()


class _ClassedSpec(msgspec.Struct, frozen=True, rename="camel"):
    runtime_class_name: str | None = None


class _OwnedPod(msgspec.Struct):
    """The fields of a pod that decide whether it is looked at, and when."""

    metadata: _OwnedMetadata = _OwnedMetadata()
    spec: _ClassedSpec = _ClassedSpec()

    @property
    def controller(self) -> str:
        return next((each.uid for each in self.metadata.owner_references if each.controller), "")


_DECODER: Final = msgspec.json.Decoder(_OwnedPod)


class _Finding(NamedTuple):
    """Pods that break the same rules."""

    first: str
    pods: int = 1

    def with_pod(self, name: str) -> "_Finding":
        return _Finding(min(self.first, name), self.pods + 1)

    def __str__(self) -> str:
        if self.pods == 1:
            return self.first
        others = self.pods - 1
        return f"{self.first} (and {others} other pod{'s' if others > 1 else ''})"


class ExistingPods:
    """The pods that a raised level would refuse. Work ends after a second or 3000 pods."""

    def __init__(self, pods: ResourceCache, clock: Clock, exempt: Collection[str]) -> None:
        self._pods = pods
        self._clock = clock
        self._exempt = exempt
        """RuntimeClasses whose pods are not looked at."""

    async def warnings(self, namespace: str, level: LevelVersion) -> list[str]:
        """Return warnings about the pods of the namespace that the level would refuse."""
        deadline = self._clock.monotonic() + MOST_SECONDS
        everything = Selection(pod.RESOURCE, namespace, LabelRequirements(), FieldSelector())
        items = await self._ordered(self._pods.select(everything), deadline)
        found: dict[str, _Finding] = {}
        checked = 0
        for item in items[:MOST_PODS]:
            await self._clock.give_way()
            each = pod.RESOURCE.decode(item.body)
            checked += 1
            if text := reasons(violations(level, each.metadata.annotations, each.spec)):
                name, known = each.metadata.name, found.get(text)
                found[text] = known.with_pod(name) if known else _Finding(name)
            if self._clock.monotonic() > deadline:
                break
        return survey_warnings(namespace, level, found, checked, len(items))

    async def _ordered(self, items: Sequence[Item], deadline: float) -> list[Item]:
        """Return one pod of each controller first: its other pods tell the same."""
        first: list[Item] = []
        rest: list[Item] = []
        controllers = set()
        for index, item in enumerate(items):
            await self._clock.give_way()
            if self._clock.monotonic() > deadline:
                return [*first, *rest, *items[index:]]
            owned = _DECODER.decode(item.body)
            if (owned.spec.runtime_class_name or "") in self._exempt:
                continue
            controller = owned.controller
            (rest if controller in controllers else first).append(item)
            if controller:
                controllers.add(controller)
        return first + rest


def survey_warnings(
    namespace: str, level: LevelVersion, found: dict[str, _Finding], checked: int, total: int
) -> list[str]:
    """Return the warnings for pods that break rules, by the rules that they break."""
    warnings = []
    if checked < total:
        warnings.append(
            "new PodSecurity enforce level only checked against the first"
            f" {checked} of {total} existing pods"
        )
    if found:
        warnings.append(
            f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level'
            f' "{level}"'
        )
    return warnings + sorted(f"{finding}: {text}" for text, finding in found.items())
