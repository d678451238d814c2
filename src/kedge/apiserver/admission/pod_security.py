"""PodSecurity: pods obey the Pod Security Standard that the labels of their namespace name."""

from collections.abc import Mapping
from typing import Final

from kedge.api.core_v1.namespace import RESOURCE as NAMESPACES
from kedge.api.core_v1.namespace import Namespace
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.core_v1.pod_template import PodTemplate
from kedge.api.limits.workloads import template_of
from kedge.api.model import Object
from kedge.api.pod_security.configuration import PodSecurityConfiguration
from kedge.api.pod_security.levels import (
    PREFIX,
    PRIVILEGED,
    LevelVersion,
    PodSecurityPolicy,
    PolicyReading,
    policy_of,
    stricter,
)
from kedge.api.pod_security.standards import details, violations
from kedge.apiserver.admission.chain import Attempt, ValidatingPlugin
from kedge.apiserver.admission.pod_security_survey import ExistingPods
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.watchcache import ResourceCache
from kedge.machinery.clock import Clock
from kedge.machinery.errors import internal, invalid

_IGNORED: Final = frozenset(
    ("exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status")
)
"""Subresources of pods that do not change the spec."""


class PodSecurity(ValidatingPlugin):
    """Enforces the Pod Security Standard of a namespace on pods, warns about workloads whose pods
    would be refused, and about pods of a namespace whose level is raised."""

    name = "PodSecurity"

    def __init__(
        self,
        namespaces: ResourceCache,
        pods: ResourceCache,
        clock: Clock,
        configuration: PodSecurityConfiguration,
    ) -> None:
        self._namespaces = namespaces
        self._configuration = configuration
        self._existing = ExistingPods(pods, clock, configuration.runtime_classes)

    async def validate(self, attempt: Attempt) -> None:
        if attempt.operation not in ("CREATE", "UPDATE"):
            return
        obj, subresource = attempt.object, attempt.request.subresource
        if isinstance(obj, Pod):
            if subresource not in _IGNORED:
                self._check_pod(attempt, obj)
        elif isinstance(obj, Namespace):
            if not subresource:
                await self._check_namespace(attempt, obj)
        elif obj is not None and not subresource:
            template = _template(obj)
            if template is not None:
                self._check_template(attempt, template)

    def _check_pod(self, attempt: Attempt, pod: Pod) -> None:
        if self._is_exempt(attempt):
            return
        reading = self._policy(attempt)
        if not reading.errors and reading.policy.is_privileged:
            _annotate(attempt, {"enforce-policy": str(LevelVersion(PRIVILEGED))})
            return
        if isinstance(attempt.old, Pod) and not is_significant(pod, attempt.old):
            return
        template = PodTemplateSpec(metadata=pod.metadata, spec=pod.spec)
        self._evaluate(attempt, reading, template, is_enforced=True)

    def _check_template(self, attempt: Attempt, template: PodTemplateSpec) -> None:
        if self._is_exempt(attempt):
            return
        reading = self._policy(attempt)
        levels = {reading.policy.warn.level, reading.policy.audit.level}
        if not reading.errors and levels == {PRIVILEGED}:
            return
        self._evaluate(attempt, reading, template, is_enforced=False)

    def _evaluate(
        self,
        attempt: Attempt,
        reading: PolicyReading,
        template: PodTemplateSpec,
        *,
        is_enforced: bool,
    ) -> None:
        """Refuse, warn and annotate, as the policy of the namespace says."""
        if (template.spec.runtimeClassName or "") in self._configuration.runtime_classes:
            _annotate(attempt, {"exempt": "runtimeClass"})
            return
        policy = reading.policy
        notes = {}
        if reading.errors:
            errors = ", ".join(map(str, reading.errors))
            notes["error"] = f"Failed to parse policy: {_aggregate(errors, len(reading.errors))}"
        if is_enforced:
            notes["enforce-policy"] = str(policy.enforce)
        found = _Results(template)
        if text := found.of(policy.audit):
            notes["audit-violations"] = f'would violate PodSecurity "{policy.audit}": {text}'
        _annotate(attempt, notes)
        if is_enforced and (text := found.of(policy.enforce)):
            raise refused(attempt, f'violates PodSecurity "{policy.enforce}": {text}')
        if text := found.of(policy.warn):
            attempt.request.warnings.append(f'would violate PodSecurity "{policy.warn}": {text}')

    async def _check_namespace(self, attempt: Attempt, written: Namespace) -> None:
        """Refuse labels that cannot be read, and warn if they would refuse pods that run."""
        name, labels = written.metadata.name, written.metadata.labels
        new = policy_of(labels, self._configuration.defaults)
        old = policy_of(
            attempt.old.metadata.labels if attempt.old is not None else {},
            self._configuration.defaults,
        )
        if new.errors and (attempt.operation == "CREATE" or new.errors != old.errors):
            raise invalid("", "Namespace", name, new.errors)
        if attempt.operation == "UPDATE" and not is_raised(new.policy.enforce, old.policy.enforce):
            return
        if name in self._configuration.namespaces:
            attempt.request.warnings += self._unused(name, new.policy, labels)
        elif attempt.operation == "UPDATE":
            attempt.request.warnings += await self._existing.warnings(name, new.policy.enforce)

    def _unused(self, name: str, policy: PodSecurityPolicy, labels: Mapping[str, str]) -> list[str]:
        """Return a warning if an exempt namespace has a policy."""
        if policy.is_privileged or policy.is_like(self._configuration.defaults):
            return []
        given = ", ".join(
            f"{mode}={level}"
            for mode, level in zip(policy._fields, policy, strict=True)
            if level.level != PRIVILEGED
            and (f"{PREFIX}{mode}" in labels or f"{PREFIX}{mode}-version" in labels)
        )
        return [
            f'namespace "{name}" is exempt from Pod Security,'
            f" and the policy ({given}) will be ignored"
        ]

    def _is_exempt(self, attempt: Attempt) -> bool:
        request, configuration = attempt.request, self._configuration
        if request.namespace in configuration.namespaces:
            _annotate(attempt, {"exempt": "namespace"})
        elif request.user.name in configuration.usernames:
            _annotate(attempt, {"exempt": "user"})
        else:
            return False
        return True

    def _policy(self, attempt: Attempt) -> PolicyReading:
        name = attempt.request.namespace
        item = self._namespaces.get(NAMESPACES.key("", name))
        if item is None:
            raise internal(f'failed to lookup namespace "{name}"')
        return policy_of(item.labels, self._configuration.defaults)


class _Results:
    """The violations of one pod, by level; each level is evaluated once."""

    def __init__(self, template: PodTemplateSpec) -> None:
        self._template = template
        self._known: dict[LevelVersion, str] = {}

    def of(self, level: LevelVersion) -> str:
        if level not in self._known:
            metadata, spec = self._template.metadata, self._template.spec
            self._known[level] = details(violations(level, metadata.annotations, spec))
        return self._known[level]


def _annotate(attempt: Attempt, notes: Mapping[str, str]) -> None:
    for key, value in notes.items():
        attempt.request.annotations[f"{PREFIX}{key}"] = value


def _aggregate(errors: str, count: int) -> str:
    return f"[{errors}]" if count > 1 else errors


def _template(obj: Object) -> PodTemplateSpec | None:
    if isinstance(obj, PodTemplate):
        return obj.template
    found = template_of(obj)
    return None if found is None else found.spec


def is_raised(new: LevelVersion, old: LevelVersion) -> bool:
    """Whether pods that passed before may be refused now."""
    if new == old or new.level == PRIVILEGED:
        return False
    return new.minor != old.minor or stricter(new.level, old.level)


def is_significant(new: Pod, old: Pod) -> bool:
    """Whether an update changes something that the standards look at."""
    for field in ("containers", "initContainers"):
        images = [[each.image for each in getattr(pod.spec, field)] for pod in (new, old)]
        if images[0] != images[1]:
            return True
    known = {each.name: each.image for each in old.spec.ephemeralContainers}
    return any(known.get(each.name) != each.image for each in new.spec.ephemeralContainers)
