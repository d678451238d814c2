"""The admission plugins that have an effect, in the order in which they run."""

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from kedge.api.catalog import Catalog
from kedge.api.core_v1 import limit_range, namespace, node, service_account
from kedge.api.core_v1.pod import pod
from kedge.api.scheduling_v1 import priority_class
from kedge.api.storage_v1.storage_class import CLASSES
from kedge.apiserver.admission.certificate_approval import CertificateApproval
from kedge.apiserver.admission.certificate_signing import CertificateSigning
from kedge.apiserver.admission.certificate_subject_restriction import CertificateSubjectRestriction
from kedge.apiserver.admission.chain import AdmissionPlugin
from kedge.apiserver.admission.claim_resize import PersistentVolumeClaimResize
from kedge.apiserver.admission.configuration import UNCONFIGURED, AdmissionConfiguration
from kedge.apiserver.admission.default_ingress_class import DefaultIngressClass
from kedge.apiserver.admission.default_storage_class import DefaultStorageClass
from kedge.apiserver.admission.default_toleration_seconds import DefaultTolerationSeconds
from kedge.apiserver.admission.deny_service_external_ips import DenyServiceExternalIPs
from kedge.apiserver.admission.first_binding import FirstBinding
from kedge.apiserver.admission.limit_ranger import LimitRanger
from kedge.apiserver.admission.mutating_policy import MutatingAdmissionPolicy
from kedge.apiserver.admission.mutating_webhook import MutatingAdmissionWebhook
from kedge.apiserver.admission.namespace_lifecycle import NamespaceLifecycle
from kedge.apiserver.admission.node_declared_feature_validator import (
    NodeDeclaredFeatureValidator,
)
from kedge.apiserver.admission.node_restriction import NodeRestriction
from kedge.apiserver.admission.pod_resize_validator import PodResizeValidator
from kedge.apiserver.admission.pod_security import PodSecurity
from kedge.apiserver.admission.pod_topology_labels import PodTopologyLabels
from kedge.apiserver.admission.priority import Priority
from kedge.apiserver.admission.resource_quota import ResourceQuotaPlugin
from kedge.apiserver.admission.runtime_class import RuntimeClass
from kedge.apiserver.admission.service_account import ServiceAccountPlugin
from kedge.apiserver.admission.storage_object_in_use_protection import (
    StorageObjectInUseProtection,
)
from kedge.apiserver.admission.taint_nodes_by_condition import TaintNodesByCondition
from kedge.apiserver.admission.validating_policy import ValidatingAdmissionPolicy
from kedge.apiserver.admission.validating_webhook import ValidatingAdmissionWebhook
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.quota.first_quota import FirstQuota
from kedge.apiserver.request import Request
from kedge.apiserver.watchcache import ResourceCache, WatchCache
from kedge.apiserver.webhooks.caller import Caller
from kedge.apiserver.webhooks.configuration import GROUP
from kedge.apiserver.webhooks.dispatch import Webhooks, webhooks_of
from kedge.machinery.clock import Clock

if TYPE_CHECKING:
    from kedge.apiserver.policies.mutating_policies import MutatingPolicies
    from kedge.apiserver.policies.validating_policies import ValidatingPolicies


class Surroundings(msgspec.Struct, frozen=True):
    """The dependencies of plugins."""

    cache: WatchCache
    catalog: Catalog
    caller: Caller
    authorizer: Authorizer
    clock: Clock
    quota: FirstQuota
    configuration: AdmissionConfiguration = UNCONFIGURED
    earlier: tuple[AdmissionPlugin, ...] = ()
    """The plugins before this one."""

    def webhooks(self, plural: str) -> Webhooks:
        return webhooks_of(
            plural, self.catalog, self.cache, self.caller, _annotate, self.authorizer
        )

    def of(self, plural: str) -> ResourceCache:
        """The objects of a kind of admission."""
        found = self.catalog.find(GROUP, "v1", plural)
        assert found is not None
        return self.cache.of(found)

    def validating_policies(self) -> "ValidatingPolicies":
        from kedge.apiserver.policies.policy_request import PolicySurroundings
        from kedge.apiserver.policies.policy_set import PolicySet
        from kedge.apiserver.policies.validating_policies import ValidatingPolicies
        from kedge.apiserver.policies.validation import validating_parts

        policies = self.of("validatingadmissionpolicies")
        bindings = self.of("validatingadmissionpolicybindings")
        around = PolicySurroundings(
            self.cache, self.catalog, self.authorizer, self.clock, self.caller.metrics
        )
        return ValidatingPolicies(PolicySet(policies, bindings, validating_parts), around)

    def mutating_policies(self) -> "MutatingPolicies":
        from kedge.apiserver.policies.mutating_policies import MutatingPolicies
        from kedge.apiserver.policies.mutation import mutating_parts
        from kedge.apiserver.policies.policy_request import PolicySurroundings
        from kedge.apiserver.policies.policy_set import PolicySet

        policies = self.of("mutatingadmissionpolicies")
        bindings = self.of("mutatingadmissionpolicybindings")
        around = PolicySurroundings(
            self.cache, self.catalog, self.authorizer, self.clock, self.caller.metrics
        )
        policy_set = PolicySet(policies, bindings, mutating_parts)
        return MutatingPolicies(policy_set, around, self.earlier)


def _annotate(request: Request, key: str, value: str) -> None:
    request.annotations[key] = value


def _namespace_lifecycle(given: Surroundings) -> AdmissionPlugin:
    namespaces = given.cache.of(namespace.RESOURCE)
    return NamespaceLifecycle(lambda name: namespaces.get(namespace.RESOURCE.key("", name)))


def _mutating_webhook(given: Surroundings) -> AdmissionPlugin:
    webhooks = given.webhooks("mutatingwebhookconfigurations")
    return MutatingAdmissionWebhook(webhooks, given.earlier)


def _mutating_policy(given: Surroundings) -> AdmissionPlugin:
    bindings = given.of("mutatingadmissionpolicybindings")
    return MutatingAdmissionPolicy(FirstBinding(bindings, given.mutating_policies))


def _validating_policy(given: Surroundings) -> AdmissionPlugin:
    bindings = given.of("validatingadmissionpolicybindings")
    return ValidatingAdmissionPolicy(FirstBinding(bindings, given.validating_policies))


def _validating_webhook(given: Surroundings) -> AdmissionPlugin:
    return ValidatingAdmissionWebhook(given.webhooks("validatingwebhookconfigurations"))


def _limit_ranger(given: Surroundings) -> AdmissionPlugin:
    return LimitRanger(given.cache.of(limit_range.RESOURCE), given.cache.of(pod.RESOURCE))


def _service_account(given: Surroundings) -> AdmissionPlugin:
    accounts = given.cache.of(service_account.RESOURCE)
    return ServiceAccountPlugin(accounts, given.clock, Random())


def _node_restriction(given: Surroundings) -> AdmissionPlugin:
    authorizer = given.authorizer
    return NodeRestriction(
        given.cache, given.catalog, lambda asked: authorizer.decide(asked).allowed
    )


def _pod_security(given: Surroundings) -> AdmissionPlugin:
    return PodSecurity(
        given.cache.of(namespace.RESOURCE),
        given.cache.of(pod.RESOURCE),
        given.clock,
        given.configuration.pod_security,
    )


def _priority(given: Surroundings) -> AdmissionPlugin:
    return Priority(given.cache.of(priority_class.RESOURCE))


def _default_toleration_seconds(given: Surroundings) -> AdmissionPlugin:
    return DefaultTolerationSeconds()


def _pod_resize_validator(given: Surroundings) -> AdmissionPlugin:
    return PodResizeValidator(given.cache.of(node.RESOURCE))


def _node_declared_feature_validator(given: Surroundings) -> AdmissionPlugin:
    return NodeDeclaredFeatureValidator(given.cache.of(node.RESOURCE))


def _pod_topology_labels(given: Surroundings) -> AdmissionPlugin:
    return PodTopologyLabels(given.cache.of(node.RESOURCE))


def _runtime_class(given: Surroundings) -> AdmissionPlugin:
    classes = given.catalog.find("node.k8s.io", "v1", "runtimeclasses")
    assert classes is not None
    return RuntimeClass(given.cache.of(classes))


def _certificate_approval(given: Surroundings) -> AdmissionPlugin:
    return CertificateApproval(given.authorizer)


def _certificate_signing(given: Surroundings) -> AdmissionPlugin:
    return CertificateSigning(given.authorizer)


def _certificate_subject_restriction(given: Surroundings) -> AdmissionPlugin:
    return CertificateSubjectRestriction()


def _default_storage_class(given: Surroundings) -> AdmissionPlugin:
    return DefaultStorageClass(given.cache.of(CLASSES))


def _claim_resize(given: Surroundings) -> AdmissionPlugin:
    return PersistentVolumeClaimResize(given.cache.of(CLASSES))


def _default_ingress_class(given: Surroundings) -> AdmissionPlugin:
    classes = given.catalog.find("networking.k8s.io", "v1", "ingressclasses")
    assert classes is not None
    return DefaultIngressClass(given.cache.of(classes))


def _deny_service_external_ips(given: Surroundings) -> AdmissionPlugin:
    return DenyServiceExternalIPs()


def _resource_quota(given: Surroundings) -> AdmissionPlugin:
    return ResourceQuotaPlugin(given.quota)


PLUGINS: dict[str, Callable[[Surroundings], AdmissionPlugin]] = {
    "NamespaceLifecycle": _namespace_lifecycle,
    "LimitRanger": _limit_ranger,
    "ServiceAccount": _service_account,
    "NodeRestriction": _node_restriction,
    "TaintNodesByCondition": lambda given: TaintNodesByCondition(),
    "PodSecurity": _pod_security,
    "Priority": _priority,
    "DefaultTolerationSeconds": _default_toleration_seconds,
    "DefaultStorageClass": _default_storage_class,
    "StorageObjectInUseProtection": lambda given: StorageObjectInUseProtection(),
    "PersistentVolumeClaimResize": _claim_resize,
    "RuntimeClass": _runtime_class,
    "CertificateApproval": _certificate_approval,
    "CertificateSigning": _certificate_signing,
    "CertificateSubjectRestriction": _certificate_subject_restriction,
    "DefaultIngressClass": _default_ingress_class,
    "DenyServiceExternalIPs": _deny_service_external_ips,
    "PodTopologyLabels": _pod_topology_labels,
    "NodeDeclaredFeatureValidator": _node_declared_feature_validator,
    "PodResizeValidator": _pod_resize_validator,
    "MutatingAdmissionPolicy": _mutating_policy,
    "MutatingAdmissionWebhook": _mutating_webhook,
    "ValidatingAdmissionPolicy": _validating_policy,
    "ValidatingAdmissionWebhook": _validating_webhook,
    "ResourceQuota": _resource_quota,
}


def enabled(names: Sequence[str], given: Surroundings) -> list[AdmissionPlugin]:
    """The plugins that are asked for; in which order they are named does not matter."""
    made: list[AdmissionPlugin] = []
    for name, make in PLUGINS.items():
        if name in names:
            made.append(make(replace(given, earlier=tuple(made))))
    return made
