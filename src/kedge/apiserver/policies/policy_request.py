"""A request as policies see it: which of them apply, and the values of their variables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple

from kedge.api.catalog import Catalog
from kedge.api.core_v1 import namespace
from kedge.api.resource import Resource
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.long_work import off_loop
from kedge.apiserver.policies.policy_params import (
    ConfigurationError,
    Param,
    PendingParam,
    param_resource,
    params_of,
)
from kedge.apiserver.policies.policy_set import BoundPolicy, Part, PolicyBinding
from kedge.apiserver.policies.policy_variables import PolicyVariables
from kedge.apiserver.watchcache import WatchCache
from kedge.apiserver.webhooks import review
from kedge.apiserver.webhooks.admission_metrics import AdmissionMetrics
from kedge.apiserver.webhooks.configuration import GROUP
from kedge.apiserver.webhooks.dispatch import requested
from kedge.machinery.cel import CelError
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError, not_found

_EXEMPT: Final = frozenset(
    (
        (GROUP, "validatingadmissionpolicies"),
        (GROUP, "validatingadmissionpolicybindings"),
        (GROUP, "mutatingadmissionpolicies"),
        (GROUP, "mutatingadmissionpolicybindings"),
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "localsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
    )
)
"""Resources that no policy is about: a policy must not keep itself from being repaired."""
_NAMESPACE_FIELDS: Final = {
    "metadata": (
        "name", "generateName", "namespace", "labels", "annotations", "UID", "creationTimestamp",
        "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "resourceVersion",
        "finalizers",
    ),
    "spec": ("finalizers",),
    "status": ("phase", "conditions"),
}  # fmt: skip


def is_exempt(attempt: Attempt) -> bool:
    """Tell whether policies are not asked about an attempt."""
    resource = attempt.request.resource
    return (resource.group, resource.plural) in _EXEMPT


class Invocation(NamedTuple, Generic[Part]):
    """A policy that applies, by which binding and with which parameter."""

    policy: BoundPolicy[Part]
    binding: PolicyBinding
    view: Resource[Any]
    param: Param


class Misconfigured(NamedTuple, Generic[Part]):
    """A policy that should apply and cannot."""

    policy: BoundPolicy[Part]
    binding: PolicyBinding | None
    why: str


@dataclass(frozen=True)
class PolicySurroundings:
    """The parts of the server that policies need."""

    cache: WatchCache
    catalog: Catalog
    authorizer: Authorizer
    clock: Clock
    metrics: AdmissionMetrics

    async def conditions_hold(
        self, policy: BoundPolicy[Any], values: Mapping[str, Any], operation: str
    ) -> bool:
        """Tell whether the match conditions of a policy hold; CelError if one has an error."""
        if policy.conditions is None:
            return True
        # Upstream's match conditions see an empty namespace object and no variables.
        known = {**values, "namespaceObject": {}, "variables": None}
        # Upstream has this label for policies of both sorts.
        labels = policy.name, "policy", "validate", operation
        begun = self.clock.monotonic()
        try:
            return await policy.conditions.hold(known)
        except CelError:
            self.metrics.condition_error(*labels)
            raise
        finally:
            self.metrics.condition(*labels, self.clock.monotonic() - begun)

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        item = self.cache.of(namespace.RESOURCE).get(namespace.RESOURCE.key("", name))
        return None if item is None else item.labels

    def namespace_object(self, about: review.ReviewSubject) -> dict[str, Any] | None:
        """Return the namespace of a request as expressions see it."""
        is_namespace = about.resource.plural == "namespaces" and not about.resource.group
        if not about.namespace or is_namespace:
            return None
        resource = namespace.RESOURCE
        item = self.cache.of(resource).get(resource.key("", about.namespace))
        if item is None:
            raise not_found("", "namespaces", about.namespace)
        document = item.document()
        return {
            part: {name: value for name, value in (document.get(part) or {}).items() if name in has}
            for part, has in _NAMESPACE_FIELDS.items()
        }


def invocations(
    policies: tuple[BoundPolicy[Part], ...],
    attempt: Attempt,
    about: review.ReviewSubject,
    around: PolicySurroundings,
) -> Iterator[Invocation[Part] | Misconfigured[Part]]:
    """Yield the policies that apply to an attempt."""
    for policy in policies:
        try:
            view = policy.constraints.view(attempt, about, around.catalog, around.namespace_labels)
            if view is None:
                continue
            if policy.fault:
                raise ConfigurationError(policy.fault)
            kind = policy.param_kind
            resource = None if kind is None else param_resource(kind, around.catalog)
        except (ConfigurationError, StatusError) as error:
            yield Misconfigured(policy, None, f"failed to configure policy: {error}")
            continue
        for binding in policy.bindings:
            try:
                if binding.fault:
                    raise ConfigurationError(binding.fault)
                if binding.constraints.view(
                    attempt, about, around.catalog, around.namespace_labels
                ):
                    params = params_of(
                        resource, binding.param_reference, about.namespace, around.cache
                    )
                    for param in params:
                        yield Invocation(policy, binding, view, param)
            except (ConfigurationError, StatusError) as error:
                yield Misconfigured(policy, binding, f"failed to configure binding: {error}")


class RequestValues:
    """The values that the expressions of policies know about an attempt.

    Most of them are the same for all policies that want the object in the same version, and are
    made once: the number of policies and parameters is not the server's choice.
    """

    def __init__(
        self, attempt: Attempt, about: review.ReviewSubject, around: PolicySurroundings
    ) -> None:
        self._attempt = attempt
        self._about = about
        self._around = around
        self._known: dict[str, dict[str, Any]] = {}
        """By apiVersion."""

    async def of(self, invocation: Invocation[Any]) -> dict[str, Any]:
        """Return the values for a policy, with variables that have not been evaluated."""
        view = invocation.view
        known = self._known.get(view.api_version)
        if known is None:
            known = self._known[view.api_version] = await self._seen_in(view)
        param = invocation.param
        if isinstance(param, PendingParam):
            param = await param.document()
        values = {**known, "params": param}
        values["variables"] = PolicyVariables(invocation.policy.variables, values)
        return values

    async def _seen_in(self, view: Resource[Any]) -> dict[str, Any]:
        attempt, about, around = self._attempt, self._about, self._around

        async def in_view(obj: Any) -> dict[str, Any] | None:
            document = await off_loop(attempt.weight, review.document_of, about.resource, obj)
            if document is None or not about.own_kind:
                return document
            return await review.seen_as(document, about.resource, view)

        return {
            "object": await in_view(attempt.object),
            "oldObject": await in_view(attempt.old),
            "request": review.description(about, view),
            "namespaceObject": around.namespace_object(about),
            **requested(around.authorizer, attempt.request, about),
        }
