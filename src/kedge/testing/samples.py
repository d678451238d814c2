"""A valid object of each common kind, for tests that mutate them."""

from typing import Any, Final, NamedTuple

_HERE: Final = "namespaces/default"
_POD: Final[dict[str, Any]] = {
    "containers": [
        {
            "name": "c",
            "image": "i",
            "ports": [{"containerPort": 80}],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        }
    ],
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "nodeSelector": {"kedge.dev/fuzz": "none"},
}
_TEMPLATE: Final = {"metadata": {"labels": {"app": "x"}}, "spec": _POD}
_SELECTOR: Final = {"matchLabels": {"app": "x"}}
_SCHEMA: Final = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {
        "spec": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {
                "size": {"type": "integer", "minimum": 0, "default": 1},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 20},
                "list": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"k": {"type": "string"}},
                        "required": ["k"],
                    },
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                },
            },
        }
    },
}


class ObjectSample(NamedTuple):
    """The path of a kind, and the fields of a valid object besides its metadata."""

    path: str
    fields: dict[str, Any]
    name: str = "x"

    @property
    def document(self) -> dict[str, Any]:
        return {"metadata": {"name": self.name, "labels": {"a": "b"}}, **self.fields}


SAMPLES: Final = {
    "Namespace": ObjectSample("/api/v1/namespaces", {}),
    "Node": ObjectSample(
        "/api/v1/nodes", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    ),
    "ConfigMap": ObjectSample(f"/api/v1/{_HERE}/configmaps", {"data": {"a": "b"}}),
    "Secret": ObjectSample(f"/api/v1/{_HERE}/secrets", {"data": {"a": "eA=="}, "type": "Opaque"}),
    "Pod": ObjectSample(f"/api/v1/{_HERE}/pods", {"spec": _POD}),
    "LimitRange": ObjectSample(
        f"/api/v1/{_HERE}/limitranges",
        {"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}},
    ),
    "ResourceQuota": ObjectSample(
        f"/api/v1/{_HERE}/resourcequotas", {"spec": {"hard": {"pods": "9"}}}
    ),
    "Service": ObjectSample(
        f"/api/v1/{_HERE}/services",
        {"spec": {"ports": [{"port": 80, "name": "a"}], "selector": {"app": "x"}}},
    ),
    "ReplicationController": ObjectSample(
        f"/api/v1/{_HERE}/replicationcontrollers",
        {"spec": {"replicas": 1, "selector": {"app": "x"}, "template": _TEMPLATE}},
    ),
    "Event": ObjectSample(
        f"/api/v1/{_HERE}/events",
        {"involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "r"},
    ),
    "Deployment": ObjectSample(
        f"/apis/apps/v1/{_HERE}/deployments",
        {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
    ),
    "DaemonSet": ObjectSample(
        f"/apis/apps/v1/{_HERE}/daemonsets",
        {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
    ),
    "StatefulSet": ObjectSample(
        f"/apis/apps/v1/{_HERE}/statefulsets",
        {"spec": {"serviceName": "s", "selector": _SELECTOR, "template": _TEMPLATE}},
    ),
    "Job": ObjectSample(
        f"/apis/batch/v1/{_HERE}/jobs",
        {"spec": {"template": {"spec": {**_POD, "restartPolicy": "Never"}}}},
    ),
    "CronJob": ObjectSample(
        f"/apis/batch/v1/{_HERE}/cronjobs",
        {
            "spec": {
                "schedule": "* * * * *",
                "jobTemplate": {"spec": {"template": {"spec": {**_POD, "restartPolicy": "Never"}}}},
            }
        },
    ),
    "HorizontalPodAutoscaler": ObjectSample(
        f"/apis/autoscaling/v2/{_HERE}/horizontalpodautoscalers",
        {
            "spec": {
                "maxReplicas": 3,
                "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
            }
        },
    ),
    "Lease": ObjectSample(
        f"/apis/coordination.k8s.io/v1/{_HERE}/leases",
        {"spec": {"holderIdentity": "me", "renewTime": "2030-01-01T00:00:00.000000Z"}},
    ),
    "Role": ObjectSample(
        f"/apis/rbac.authorization.k8s.io/v1/{_HERE}/roles",
        {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    ),
    "PodDisruptionBudget": ObjectSample(
        f"/apis/policy/v1/{_HERE}/poddisruptionbudgets",
        {"spec": {"minAvailable": "50%", "selector": _SELECTOR}},
    ),
    "Ingress": ObjectSample(
        f"/apis/networking.k8s.io/v1/{_HERE}/ingresses",
        {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},
    ),
    "StorageClass": ObjectSample("/apis/storage.k8s.io/v1/storageclasses", {"provisioner": "x"}),
    "CustomResourceDefinition": ObjectSample(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "xs", "kind": "X"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "subresources": {"status": {}},
                        "schema": {"openAPIV3Schema": _SCHEMA},
                    }
                ],
            }
        },
        "xs.example.com",
    ),
    "X": ObjectSample(
        f"/apis/example.com/v1/{_HERE}/xs",
        {"apiVersion": "example.com/v1", "kind": "X", "spec": {"a": [1, {"b": None}]}},
    ),
}
"""By kind; the last is a custom resource, whose definition is the sample before it."""
