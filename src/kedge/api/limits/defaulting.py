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
    defaults: ContainerDefaults

    def __str__(self) -> str:
        owner = "init container" if self.init else "container"
        return f"{', '.join(self.missing)} {self.bound} for {owner} {self.container}"

    def each(self) -> Iterator[DefaultedAmount]:
        _, _, bound, missing, defaults = self
        for name in missing:
            amount, source = defaults.of(bound)[name], defaults.sources[bound, name]
            yield DefaultedAmount(self.container, self.init, bound, name, amount, source)


def with_defaults(bounds: NamespaceLimits, pod: Pod) -> Pod:
    """Return the pod with the default requests and limits of its containers."""
    return _with_records(bounds, pod, "")[0]


def with_more_defaults(bounds: NamespaceLimits, pod: Pod) -> Pod:
    """Return a pod that got defaults before and was changed since, with those that it lacks now;
    its annotation lists both."""
    return _with_records(bounds, pod, pod.metadata.annotations.get(ANNOTATION, ""))[0]


def defaulted(bounds: NamespaceLimits, pod: Pod) -> tuple[Pod, Sequence[DefaultedAmount]]:
    """Return the pod with the default requests and limits of its containers, and the list of them.

    Ephemeral containers and the pod as a whole get no defaults. A pod without any default is
    returned as the same object.
    """
    changed, records = _with_records(bounds, pod, "")
    return changed, [each for record in records for each in record.each()]


def _with_records(
    bounds: NamespaceLimits, pod: Pod, before: str
) -> tuple[Pod, Sequence[ContainerDefaulting]]:
    if not bounds.default_rules:
        return pod, ()
    records: list[ContainerDefaulting] = []
    defaults = bounds.defaults or _SelectedDefaults(bounds, pod)
    spec = pod.spec
    changes = {"containers": [_filled(each, False, defaults, records) for each in spec.containers]}
    if spec.initContainers:
        init = [_filled(each, True, defaults, records) for each in spec.initContainers]
        changes["initContainers"] = init
    if not records:
        return pod, ()
    start = f"{before}; " if before.startswith(PREFIX) else PREFIX
    text = start + "; ".join(map(str, records))
    metadata = replace(pod.metadata, annotations={**pod.metadata.annotations, ANNOTATION: text})
    return replace(pod, metadata=metadata, spec=replace(spec, **changes)), records


class _SelectedDefaults:
    """Defaults that depend on the container."""

    def __init__(self, bounds: NamespaceLimits, pod: Pod) -> None:
        self._rules = [rule for rule in bounds.default_rules if rule.covers(pod)]

    def to(self, container: str) -> ContainerDefaults:
        return ContainerDefaults(rule for rule in self._rules if rule.covers_container(container))


def _filled(
    container: Container,
    init: bool,
    source: ContainerDefaults | _SelectedDefaults,
    records: list[ContainerDefaulting],
) -> Container:
    defaults = source.to(container.name)
    requests, limits = container.resources.requests, container.resources.limits
    if missing := [name for name in defaults.requests if name not in requests]:
        records.append(ContainerDefaulting(container.name, init, "request", missing, defaults))
        requests = {**defaults.requests, **requests}
    if missing_limits := [name for name in defaults.limits if name not in limits]:
        records.append(ContainerDefaulting(container.name, init, "limit", missing_limits, defaults))
        limits = {**defaults.limits, **limits}
    if not missing and not missing_limits:
        return container
    resources = replace(container.resources, requests=requests, limits=limits)
    return replace(container, resources=resources)
