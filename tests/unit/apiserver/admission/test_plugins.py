from kedge.apiserver.admission.plugins import PLUGINS
from kedge.apiserver.config import ADMISSION_PLUGINS, INACTIVE_ADMISSION, UPSTREAM_ADMISSION
from kedge.testing.local_server import LocalServer


async def running(*names: str) -> list[str]:
    """The plugins of a server that is asked for these, besides those that it always has."""
    async with LocalServer.running(admission=names) as server:
        made = [plugin.name for plugin in server.app.api.admission.plugins]
    return [name for name in made if name in PLUGINS]


async def test_plugins_run_in_the_order_of_the_table_whatever_the_order_of_their_names() -> None:
    assert await running(*reversed(PLUGINS)) == [*PLUGINS]


async def test_only_the_plugins_that_are_named_run() -> None:
    assert await running("LimitRanger", "NamespaceLifecycle") == [
        "NamespaceLifecycle",
        "LimitRanger",
    ]


def test_every_plugin_of_a_usual_cluster_exists() -> None:
    assert {*UPSTREAM_ADMISSION} <= {*PLUGINS, *INACTIVE_ADMISSION}


def test_quotas_are_counted_after_all_that_may_change_or_refuse() -> None:
    assert next(reversed(PLUGINS)) == "ResourceQuota"
    assert next(iter(PLUGINS)) == "NamespaceLifecycle"


KUBERNETES = [
    "NamespaceLifecycle",
    "LimitRanger",
    "ServiceAccount",
    "TaintNodesByCondition",
    "PodSecurity",
    "Priority",
    "DefaultTolerationSeconds",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PodGroupProtection",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "ClusterTrustBundleAttest",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "PodTopologyLabels",
    "PodGroupWorkloadExists",
    "NodeDeclaredFeatureValidator",
    "JobValidation",
    "PodResizeValidator",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
]
"""The default plugins of kube-apiserver 1.36, in its order."""


def test_the_default_plugins_are_those_of_kubernetes_in_its_order() -> None:
    assert [name for name in UPSTREAM_ADMISSION if name != "NodeRestriction"] == KUBERNETES
    active = [name for name in ADMISSION_PLUGINS if name not in INACTIVE_ADMISSION]
    assert [*PLUGINS] == active
