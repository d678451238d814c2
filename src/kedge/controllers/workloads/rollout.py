"""Rollout: computes the next size of each ReplicaSet of a Deployment. Pure functions."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kedge.api.apps_v1 import rolling
from kedge.api.apps_v1.deployment import Deployment, RollingUpdateDeployment
from kedge.api.apps_v1.replica_set import ReplicaSet

DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
"""On a ReplicaSet: how many pods its Deployment wanted when it was last resized."""
MOST: Final = "deployment.kubernetes.io/max-replicas"
"""On a ReplicaSet: how many pods its Deployment could have had at that time, surge included."""
_INT32_MAX: Final = 2**31 - 1


class DeploymentReplicaSets(msgspec.Struct, frozen=True):
    """The ReplicaSets of a Deployment: the new one and the old ones."""

    new: ReplicaSet | None = None
    """The one that has the Deployment's template."""
    old: Sequence[ReplicaSet] = ()
    """All others, oldest first."""

    @property
    def all(self) -> Sequence[ReplicaSet]:
        return [*self.old, self.new] if self.new is not None else self.old


class ReplicaSetResize(msgspec.Struct, frozen=True):
    """A ReplicaSet and the size it should have."""

    set: ReplicaSet
    size: int


# The pace.


def desired_replicas(deployment: Deployment) -> int:
    return deployment.spec.replicas or 0


def size(set_: ReplicaSet) -> int:
    return set_.spec.replicas or 0


def total(sets: Iterable[ReplicaSet]) -> int:
    return sum(map(size, sets))


def active(sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """The ReplicaSets that have pods, or should have them."""
    return [each for each in sets if size(each) > 0]


def by_age(set_: ReplicaSet) -> tuple[str, str]:
    """A sort key that puts the oldest first."""
    return set_.metadata.creationTimestamp, set_.metadata.name


def is_rolling(deployment: Deployment) -> bool:
    return deployment.spec.strategy.type == "RollingUpdate"


def surge(deployment: Deployment) -> int:
    """How many pods there may be beyond those that are wanted."""
    return _pace(deployment)[0]


def unavailable(deployment: Deployment) -> int:
    """How many of the wanted pods may be missing."""
    return min(_pace(deployment)[1], desired_replicas(deployment))


def most(deployment: Deployment) -> int:
    """How many pods there may be at all."""
    return min(desired_replicas(deployment) + surge(deployment), _INT32_MAX)


def _pace(deployment: Deployment) -> tuple[int, int]:
    if not is_rolling(deployment):
        return 0, 0
    pace = deployment.spec.strategy.rollingUpdate or RollingUpdateDeployment()
    above = rolling.count(pace.maxSurge, desired_replicas(deployment), up=True)
    below = rolling.count(pace.maxUnavailable, desired_replicas(deployment), up=False)
    # Rounding must not stop a rollout: one pod goes first, for quota may forbid one more.
    return above, below if above or below else 1


# A rolling update.


def first_size(deployment: Deployment, old: Sequence[ReplicaSet]) -> int:
    """The size that a new ReplicaSet begins with."""
    return _grown(deployment, 0, total(old))


def grown(deployment: Deployment, sets: DeploymentReplicaSets) -> list[ReplicaSetResize]:
    """The new ReplicaSet, if it has to grow, or to shrink because fewer pods are wanted."""
    new = sets.new
    if new is None:
        return []
    target = desired_replicas(deployment)
    if size(new) < target:
        target = _grown(deployment, size(new), total(sets.all))
    return [ReplicaSetResize(new, target)] if target != size(new) else []


def _grown(deployment: Deployment, now: int, pods: int) -> int:
    if not is_rolling(deployment):
        return desired_replicas(deployment)
    room = max(most(deployment) - pods, 0)
    return min(now + room, desired_replicas(deployment))


def shrunk(deployment: Deployment, sets: DeploymentReplicaSets) -> list[ReplicaSetResize]:
    """The old ReplicaSets that can give pods away: first pods that are of no use, then good ones.

    New pods that are not available yet count as missing already, so that they take no old pod
    with them.
    """
    if sets.new is None:
        return []
    least = desired_replicas(deployment) - unavailable(deployment)
    useless_new = size(sets.new) - sets.new.status.availableReplicas
    spare = total(sets.all) - least - useless_new
    if spare <= 0:
        return []
    sizes = {each.metadata.name: size(each) for each in sets.old}
    useless = [size(each) - each.status.availableReplicas for each in sets.old]
    _take(sizes, sets.old, [max(count, 0) for count in useless], spare)
    available = sum(each.status.availableReplicas for each in sets.all)
    _take(sizes, sets.old, [sizes[each.metadata.name] for each in sets.old], available - least)
    return _changes(sets.old, sizes)


def _take(
    sizes: dict[str, int], sets: Sequence[ReplicaSet], most_each: Sequence[int], count: int
) -> None:
    """Remove `count` pods in all, from the oldest set first, at most `most_each` from each."""
    for each, at_most in zip(sets, most_each, strict=True):
        taken = min(max(count, 0), at_most)
        sizes[each.metadata.name] -= taken
        count -= taken


def _changes(sets: Iterable[ReplicaSet], sizes: dict[str, int]) -> list[ReplicaSetResize]:
    resizes = [ReplicaSetResize(each, sizes[each.metadata.name]) for each in sets]
    return [each for each in resizes if each.size != size(each.set)]


def cleared(sets: DeploymentReplicaSets) -> list[ReplicaSetResize]:
    """All old ReplicaSets without pods, as Recreate wants it."""
    return [ReplicaSetResize(each, 0) for each in active(sets.old)]


# Scaling.


def is_scaled(deployment: Deployment, sets: DeploymentReplicaSets) -> bool:
    """Whether the Deployment wants another number of pods than when its sets were resized."""
    noted = (noted_number(each, DESIRED) for each in active(sets.all))
    return any(each is not None and each != desired_replicas(deployment) for each in noted)


def noted_number(set_: ReplicaSet, annotation: str) -> int | None:
    """A number that an annotation holds; None if it holds none."""
    text = set_.metadata.annotations.get(annotation, "")
    if not (text.isascii() and text.isdecimal()) or len(text) > 10 or int(text) > _INT32_MAX:
        return None
    return int(text)


def rescaled(deployment: Deployment, sets: DeploymentReplicaSets) -> list[ReplicaSetResize]:
    """The sizes after a change of the number of wanted pods, or while a Deployment is paused.

    In the middle of a rollout all ReplicaSets grow or shrink in proportion: the rollout is
    neither hastened nor undone by it.
    """
    only = _only_or_latest(sets)
    if only is not None:
        return [ReplicaSetResize(only, desired_replicas(deployment))]
    if _is_saturated(deployment, sets.new):
        return cleared(sets)
    if is_rolling(deployment):
        return _in_proportion(deployment, sets)
    return []


def _only_or_latest(sets: DeploymentReplicaSets) -> ReplicaSet | None:
    """The one ReplicaSet with pods; the newest if none has; None if several have."""
    found = active(sets.all)
    if len(found) > 1 or not sets.all:
        return None
    return found[0] if found else sets.all[-1]


def _is_saturated(deployment: Deployment, new: ReplicaSet | None) -> bool:
    """Whether the new ReplicaSet holds all pods that are wanted, all of them available."""
    if new is None:
        return False
    counts = size(new), noted_number(new, DESIRED), new.status.availableReplicas
    return all(count == desired_replicas(deployment) for count in counts)


def _in_proportion(deployment: Deployment, sets: DeploymentReplicaSets) -> list[ReplicaSetResize]:
    found = active(sets.all)
    allowed = most(deployment) if desired_replicas(deployment) else 0
    left = allowed - total(found)
    grows = left > 0
    # The largest first; of equals, the newer one grows and the older one shrinks.
    found.sort(key=by_age, reverse=grows)
    found.sort(key=size, reverse=True)
    sizes: list[int] = []
    for each in found:
        share = _share(deployment, each)
        share = min(share, left) if grows else max(share, left)
        share = share if left else 0
        sizes.append(size(each) + share)
        left -= share
    # The largest set gets the remainder of the rounding.
    sizes[0] = max(sizes[0] + left, 0)
    return [ReplicaSetResize(each, count) for each, count in zip(found, sizes, strict=True)]


def _share(deployment: Deployment, set_: ReplicaSet) -> int:
    """By how much a ReplicaSet would change if it kept its part of the whole."""
    if not desired_replicas(deployment):
        return -size(set_)
    before = noted_number(set_, MOST) or deployment.status.replicas
    if not before:
        return 0
    return _rounded(size(set_) * most(deployment), before) - size(set_)


def _rounded(amount: int, parts: int) -> int:
    """A quotient, halves rounded up."""
    return (2 * amount + parts) // (2 * parts)
