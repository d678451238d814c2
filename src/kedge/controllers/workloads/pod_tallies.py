"""PodTallies: the numbers of each owner's pods, kept as pods change.

An owner of thousands of pods is reconciled while they start: to count all of them for each change
of one would take longer than anything else that the server does.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from kedge.api.core_v1.pod.pod import Pod
from kedge.controllers.pod_state import ENDED, is_active, is_ready, ready_since
from kedge.controllers.shared_informers import LabelSet, controller_of, label_set


class PodGroup:
    """The numbers of one owner's pods that have equal labels: a selector matches all or none."""

    __slots__ = ("active", "labels", "pods", "ready", "ready_since", "terminating", "waiting")

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels
        self.pods = 0
        self.active = 0
        self.waiting = 0
        """Active pods without a node."""
        self.ready = 0
        """Active pods that are ready."""
        self.ready_since: dict[datetime, int] = {}
        """How many of these became ready at each time. There are fewer times than pods: they are
        in seconds, and pods become ready together."""
        self.terminating = 0

    def add(self, pod: Pod, by: int) -> None:
        """Count a pod, or with -1 no longer."""
        self.pods += by
        if not is_active(pod):
            self.terminating += by * (pod.status.phase not in ENDED)
            return
        self.active += by
        self.waiting += by * (not pod.spec.nodeName)
        if is_ready(pod):
            self.ready += by
            if (since := ready_since(pod)) is not None:
                self._add_ready(since, by)

    def _add_ready(self, since: datetime, by: int) -> None:
        if left := self.ready_since.get(since, 0) + by:
            self.ready_since[since] = left
        else:
            del self.ready_since[since]

    def available(self, min_ready_seconds: int, now: datetime) -> int:
        """Return how many pods have been ready for so long."""
        if not min_ready_seconds:
            return self.ready
        length = timedelta(seconds=min_ready_seconds)
        return sum(count for since, count in self.ready_since.items() if now - since >= length)

    def next_available(self, min_ready_seconds: int, now: datetime) -> float | None:
        """Return the seconds until the next pod has been ready for so long; None if none will."""
        length = timedelta(seconds=min_ready_seconds)
        left = (length - (now - since) for since in self.ready_since)
        return min((each.total_seconds() for each in left if each > timedelta()), default=None)


class PodTallies:
    """The groups of the pods of all owners of one kind."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._groups: dict[str, dict[LabelSet, PodGroup]] = {}
        """By uid of the owner."""

    def of(self, uid: str) -> Collection[PodGroup]:
        """Return the groups of an owner's pods."""
        return self._groups.get(uid, {}).values()

    def changed(self, before: Pod | None, now: Pod | None) -> None:
        """Follow the change of a pod."""
        if before is not None:
            self._add(before, -1)
        if now is not None:
            self._add(now, 1)

    def _add(self, pod: Pod, by: int) -> None:
        owner = controller_of(pod)
        if owner is None or owner.kind != self._kind:
            return
        labels = label_set(pod)
        groups = self._groups.setdefault(owner.uid, {})
        group = groups.get(labels)
        if group is None:
            group = groups[labels] = PodGroup(dict(pod.metadata.labels))
        group.add(pod, by)
        if not group.pods:
            del groups[labels]
            if not groups:
                del self._groups[owner.uid]
