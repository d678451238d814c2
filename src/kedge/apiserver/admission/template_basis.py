"""TemplateBasis: what the decisions of admission plugins about a new pod rest on, besides the pod.

Pods of one template differ only in their names and in texts that no plugin looks at. If nothing
that a plugin looks at has changed since it admitted one of them, it would decide the same about the
next one, and need not be asked.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from kedge.api.catalog import Catalog
from kedge.api.core_v1 import limit_range, namespace, service_account
from kedge.api.scheduling_v1 import priority_class
from kedge.apiserver.authorization.node import node_name
from kedge.apiserver.request import Request
from kedge.apiserver.watchcache import ResourceCache, WatchCache

Basis = Callable[[Request], Hashable]
"""Returns a value that changes when the plugin may decide otherwise; None if the plugin has to be
asked about each pod."""

ADMISSION_GROUP: Final = "admissionregistration.k8s.io"
DECIDING_KINDS: Final = {
    "MutatingAdmissionPolicy": "mutatingadmissionpolicybindings",
    "MutatingAdmissionWebhook": "mutatingwebhookconfigurations",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicybindings",
    "ValidatingAdmissionWebhook": "validatingwebhookconfigurations",
}
"""The objects that let rules of users decide about writes, by the name of the plugin."""


class TemplateBasis:
    """The bases of the plugins of a server that decide about pods of one template in one way."""

    def __init__(self, names: Sequence[str], cache: WatchCache, catalog: Catalog) -> None:
        known = _bases(cache, catalog)
        self.without_basis = [name for name in names if name not in known]
        """Plugins that have to be asked about each pod: what they look at is not known here."""
        self._bases = tuple(
            known[name] for name in names if known.get(name, _nothing) is not _nothing
        )

    def of(self, request: Request) -> tuple[Hashable, ...] | None:
        """Return what the decisions about a new pod rest on; None if plugins must be asked."""
        if self.without_basis:
            return None
        found = []
        for basis in self._bases:
            value = basis(request)
            if value is None:
                return None
            found.append(value)
        return tuple(found)


def _nothing(request: Request) -> Hashable:
    """The basis of plugins that look at the pod alone, or at no new pod."""
    return True


def _bases(cache: WatchCache, catalog: Catalog) -> dict[str, Basis]:
    runtime_classes = catalog.find("node.k8s.io", "v1", "runtimeclasses")
    assert runtime_classes is not None
    of_namespace = _namespace_revision(cache.of(namespace.RESOURCE))
    return {
        "NamespaceLifecycle": of_namespace,
        "PodSecurity": of_namespace,
        "LimitRanger": _limit_ranges(cache.of(limit_range.RESOURCE)),
        "ServiceAccount": _latest_change(cache.of(service_account.RESOURCE)),
        "Priority": _latest_change(cache.of(priority_class.RESOURCE)),
        "RuntimeClass": _latest_change(cache.of(runtime_classes)),
        "NodeRestriction": _is_no_node,
        **{name: _absence(cache, catalog, plural) for name, plural in DECIDING_KINDS.items()},
    } | dict.fromkeys(_WITHOUT_BASIS, _nothing)


_WITHOUT_BASIS: Final = (
    "DefaultTolerationSeconds",
    "TaintNodesByCondition",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PersistentVolumeClaimResize",
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "DenyServiceExternalIPs",
    # Pods without a node concern neither of these two.
    "PodTopologyLabels",
    "NodeDeclaredFeatureValidator",
    "PodResizeValidator",
    # These are always on. They look at objects of other kinds, or at pods without a template.
    "SigningRequests",
    "DisabledPlugins",
    "NodeShortfalls",
    "DeviceClaims",
    "Escalation",
    "PodNetworks",
)


def _is_no_node(request: Request) -> Hashable:
    return True if node_name(request.user) is None else None


def _latest_change(cache: ResourceCache) -> Basis:
    return lambda request: cache.changed


def _namespace_revision(namespaces: ResourceCache) -> Basis:
    def basis(request: Request) -> Hashable:
        item = namespaces.get(namespace.RESOURCE.key("", request.namespace))
        return None if item is None else item.revision

    return basis


def _limit_ranges(ranges: ResourceCache) -> Basis:
    """LimitRanges that select pods by name, or by what else differs, must be asked."""
    selective: dict[int, bool] = {}

    def basis(request: Request) -> Hashable:
        changed = ranges.changed
        if changed not in selective:
            selective.clear()
            selective[changed] = any(b'"selector"' in item.body for item in ranges.values())
        return None if selective[changed] else changed

    return basis


def _absence(cache: WatchCache, catalog: Catalog, plural: str) -> Basis:
    resource: Any = catalog.find(ADMISSION_GROUP, "v1", plural)
    assert resource is not None
    found = cache.of(resource)
    return lambda request: None if len(found) else True
