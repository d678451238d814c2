"""Sets the default requests and limits of LimitRanges in containers."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.limits.bounds import Bound, ContainerDefaults, NamespaceLimits
from kedge.machinery.quantity import Quantity

ANNOTATION = "kubernetes.io/limit-ranger"
PREFIX = "LimitRanger plugin set: "


class DefaultedAmount(NamedTuple):
    """One amount that a LimitRange set in a container."""

    container: str
    init: bool
    """Whether it is an init container."""
    bound: Bound
    resource: str
    amount: Quantity
    limit_range: str
    """The name of the LimitRange that it comes from."""


class ContainerDefaulting(NamedTuple):
    """The amounts that a container got together; expanded by `each`."""

    container: str
    init: bool
    bound: Bound
    missing: Sequence[str]
    gifts: ContainerDefaults

    def __str__(self) -> str:
        owner = "init container" if self.init else "container"
        return f"{', '.join(self.missing)} {self.bound} for {owner} {self.container}"

    def each(self) -> Iterator[DefaultedAmount]:
        _, _, bound, missing, gifts = self
        for name in missing:
            amount, giver = gifts.of(bound)[name], gifts.givers[bound, name]
            yield DefaultedAmount(self.container, self.init, bound, name, amount, giver)


def with_defaults(bounds: NamespaceLimits, pod: Pod) -> Pod:
    """The pod with what the bounds give to its containers."""
    return _given_out(bounds, pod)[0]


def defaulted(bounds: NamespaceLimits, pod: Pod) -> tuple[Pod, Sequence[DefaultedAmount]]:
    """The pod with what the bounds give to its containers, and what that was.

    Ephemeral containers and the pod as a whole get nothing. A pod that nothing was given to is the
    very same object.
    """
    changed, handouts = _given_out(bounds, pod)
    return changed, [each for handout in handouts for each in handout.each()]


def _given_out(bounds: NamespaceLimits, pod: Pod) -> tuple[Pod, Sequence[ContainerDefaulting]]:
    if not bounds.givers:
        return pod, ()
    handouts: list[ContainerDefaulting] = []
    gifts = bounds.gifts or _SelectedDefaults(bounds, pod)
    spec = pod.spec
    changes = {"containers": [_filled(each, False, gifts, handouts) for each in spec.containers]}
    if spec.initContainers:
        init = [_filled(each, True, gifts, handouts) for each in spec.initContainers]
        changes["initContainers"] = init
    if not handouts:
        return pod, ()
    told = PREFIX + "; ".join(map(str, handouts))
    metadata = replace(pod.metadata, annotations={**pod.metadata.annotations, ANNOTATION: told})
    return replace(pod, metadata=metadata, spec=replace(spec, **changes)), handouts


class _SelectedDefaults:
    """Defaults that depend on the container."""

    def __init__(self, bounds: NamespaceLimits, pod: Pod) -> None:
        self._rules = [rule for rule in bounds.givers if rule.covers(pod)]

    def to(self, container: str) -> ContainerDefaults:
        return ContainerDefaults(rule for rule in self._rules if rule.covers_container(container))


def _filled(
    container: Container,
    init: bool,
    source: ContainerDefaults | _SelectedDefaults,
    handouts: list[ContainerDefaulting],
) -> Container:
    gifts = source.to(container.name)
    requests, limits = container.resources.requests, container.resources.limits
    if missing := [name for name in gifts.requests if name not in requests]:
        handouts.append(ContainerDefaulting(container.name, init, "request", missing, gifts))
        requests = {**gifts.requests, **requests}
    if missing_limits := [name for name in gifts.limits if name not in limits]:
        handouts.append(ContainerDefaulting(container.name, init, "limit", missing_limits, gifts))
        limits = {**gifts.limits, **limits}
    if not missing and not missing_limits:
        return container
    resources = replace(container.resources, requests=requests, limits=limits)
    return replace(container, resources=resources)
