"""Names of controllers, as in kube-controller-manager, and the list of those to run."""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

POLICY_STATUS: Final = "validatingadmissionpolicy-status-controller"
SCHEDULER: Final = "scheduler"
"""A separate process in Kubernetes; here --controllers can disable it like any controller."""


class ControllerName(NamedTuple):
    """The names and the task of one controller."""

    name: str
    alias: str
    """Its short name from before Kubernetes 1.28."""
    task: str


CONTROLLERS: Final = (
    ControllerName(
        "namespace-controller",
        "namespace",
        "delete the content of a namespace that is being deleted, then the namespace",
    ),
    ControllerName(
        "serviceaccount-controller",
        "serviceaccount",
        "create the ServiceAccount `default` in every namespace",
    ),
    ControllerName(
        "root-ca-certificate-publisher-controller",
        "root-ca-cert-publisher",
        "publish the CA certificate as ConfigMap `kube-root-ca.crt` in every namespace",
    ),
    ControllerName(
        "serviceaccount-token-controller",
        "serviceaccount-token",
        "fill Secrets of the type `kubernetes.io/service-account-token`",
    ),
    ControllerName(
        "certificatesigningrequest-signing-controller",
        "csrsigning",
        "approve certificates of nodes, sign approved requests, delete old ones",
    ),
    ControllerName(
        "cluster-info-controller",
        "cluster-info",
        "kedge's own: sign `cluster-info` with bootstrap tokens, and open it while one exists",
    ),
    ControllerName(
        "bootstrap-token-cleaner-controller",
        "tokencleaner",
        "delete Secrets with bootstrap tokens that have expired",
    ),
    ControllerName(
        "clusterrole-aggregation-controller",
        "clusterrole-aggregation",
        "compute the rules of ClusterRoles with an `aggregationRule`",
    ),
    ControllerName(
        "resourcequota-controller",
        "resourcequota",
        "count the usage in the status of ResourceQuotas, and lower it when objects end",
    ),
    ControllerName(
        "resourceclaim-controller",
        "resource-claim-controller",
        "make ResourceClaims from templates, and free claims that no pod uses",
    ),
    ControllerName(
        "device-taint-eviction-controller",
        "device-taint-eviction",
        "delete pods whose devices have a `NoExecute` taint",
    ),
    ControllerName(
        "persistentvolume-binder-controller",
        "persistentvolume-binder",
        "bind PersistentVolumeClaims to volumes, make volumes on nodes, reclaim released ones",
    ),
    ControllerName(
        "persistentvolumeclaim-protection-controller",
        "pvc-protection",
        "keep deleted PersistentVolumeClaims until no pod uses them",
    ),
    ControllerName(
        "persistentvolume-protection-controller",
        "pv-protection",
        "keep deleted PersistentVolumes until their claim is gone",
    ),
    ControllerName(
        "volumeattributesclass-protection-controller",
        "vac-protection",
        "keep deleted VolumeAttributesClasses until no claim or volume uses them",
    ),
    ControllerName(
        "ephemeral-volume-controller",
        "ephemeral-volume",
        "make the claims of `ephemeral` volumes of pods",
    ),
    ControllerName(
        "persistentvolume-expander-controller",
        "persistentvolume-expander",
        "let volumes grow whose claims request more",
    ),
    ControllerName(
        "persistentvolume-attach-detach-controller",
        "attachdetach",
        "keep the VolumeAttachments of CSI volumes",
    ),
    ControllerName(
        "garbage-collector-controller", "garbagecollector", "delete objects whose owners are gone"
    ),
    ControllerName("job-controller", "job", "run the pods of Jobs"),
    ControllerName("cronjob-controller", "cronjob", "create Jobs on schedule, and delete old ones"),
    ControllerName(
        "ttl-after-finished-controller",
        "ttl-after-finished",
        "delete finished Jobs after their `ttlSecondsAfterFinished`",
    ),
    ControllerName(
        "pod-garbage-collector-controller",
        "podgc",
        "delete pods of nodes that no longer exist, and too many finished ones",
    ),
    ControllerName("replicaset-controller", "replicaset", "keep the number of pods of ReplicaSets"),
    ControllerName(
        "replicationcontroller-controller",
        "replicationcontroller",
        "keep the number of pods of ReplicationControllers",
    ),
    ControllerName("deployment-controller", "deployment", "roll Deployments out over ReplicaSets"),
    ControllerName(
        "statefulset-controller", "statefulset", "keep the ordered pods of StatefulSets"
    ),
    ControllerName(
        "daemonset-controller", "daemonset", "keep one pod of a DaemonSet on every matching node"
    ),
    ControllerName(
        "horizontal-pod-autoscaler-controller",
        "horizontalpodautoscaling",
        "scale workloads to the usage that HorizontalPodAutoscalers ask for",
    ),
    ControllerName(
        "disruption-controller", "disruption", "keep the status of PodDisruptionBudgets"
    ),
    ControllerName(
        "node-lifecycle-controller",
        "nodelifecycle",
        "mark silent nodes as unreachable, and taint nodes by their conditions",
    ),
    ControllerName(
        "taint-eviction-controller",
        "taint-eviction",
        "evict pods that do not tolerate a NoExecute taint of their node",
    ),
    ControllerName(
        "endpointslice-controller",
        "endpointslice",
        "keep the EndpointSlices of Services that select pods",
    ),
    ControllerName(
        "endpoints-controller", "endpoint", "keep the Endpoints of Services that select pods"
    ),
    ControllerName(
        "endpointslice-mirroring-controller",
        "endpointslicemirroring",
        "mirror hand-written Endpoints to EndpointSlices",
    ),
    ControllerName(
        "service-cidr-controller",
        "service-cidr",
        "keep the condition of ServiceCIDRs, and those that Services need",
    ),
    ControllerName(
        "ipallocator-repair-controller",
        "ipallocator-repair",
        "repair IPAddresses of Services, report node ports that two have; in kube-apiserver in"
        " Kubernetes",
    ),
    ControllerName(
        "service-lb-controller",
        "service",
        "give Services of type LoadBalancer an address; part of a cloud provider in Kubernetes",
    ),
    ControllerName(
        POLICY_STATUS,
        "validatingadmissionpolicy-status",
        "check the types of expressions of ValidatingAdmissionPolicies; runs in the API server",
    ),
    ControllerName(
        "limitrange-controller",
        "limitrange",
        "kedge's own: report workloads whose pods LimitRanger will refuse, if it is on",
    ),
    ControllerName(
        SCHEDULER, "kube-scheduler", "assign pods to nodes; a process of its own in Kubernetes"
    ),
)

ALIASES: Final = {each.name: each.alias for each in CONTROLLERS}
ALL: Final = tuple(ALIASES)

_NAMES: Final = {alias: name for name, alias in ALIASES.items()} | {name: name for name in ALL}


class UnknownController(LookupError):
    """A list names a controller that does not exist."""


def enabled(asked: Sequence[str]) -> tuple[str, ...]:
    """Return the controllers of a list in upstream's syntax, such as `*,-statefulset`.

    `*` enables all, `NAME` one; `-NAME` disables one. The first entry for a controller applies.
    """
    said: dict[str, bool] = {}
    for each in asked:
        if each != "*":
            said.setdefault(_resolved(each.removeprefix("-")), not each.startswith("-"))
    return tuple(name for name in ALL if said.get(name, "*" in asked))


def disabled(names: Collection[str]) -> tuple[str, ...]:
    """Return the controllers that are not in the list."""
    return tuple(name for name in ALL if name not in names)


def _resolved(name: str) -> str:
    try:
        return _NAMES[name]
    except KeyError:
        raise UnknownController(name) from None
