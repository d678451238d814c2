"""The objects that a cluster needs for the webhook, as `--print-manifests` prints them."""

import base64
from typing import Any, Final

import msgspec

from kedge.admission_webhook.limit_ranges import GROUP, PLURAL, VERSION
from kedge.api.core_v1.limit_range import LimitRangeItem, LimitRangeSelector
from kedge.api.limits import workloads

NAME: Final = "kedge-admission-webhook"
NAMESPACE: Final = "kube-system"
PORT: Final = 9443
_REPLICAS: Final = 2
_POD_SECONDS: Final = 5
_WARNING_SECONDS: Final = 2
_RBAC: Final = "rbac.authorization.k8s.io"
_QUANTITY: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,18})?$"
_LABELS: Final = {"app.kubernetes.io/name": NAME}

Document = dict[str, Any]


class ClusterPlacement(msgspec.Struct, frozen=True):
    """The webhook runs as a Deployment of the cluster, from this image."""

    image: str
    certificate: bytes
    key: bytes


def outside(url: str, ca_pem: bytes) -> list[Document]:
    """Return the objects for a webhook that the API server reaches by URL."""
    return [*_shared(), *_configurations({"url": url.rstrip("/")}, ca_pem)]


def inside(placement: ClusterPlacement, ca_pem: bytes) -> list[Document]:
    """Return the objects for a webhook in the cluster."""
    service = {"name": NAME, "namespace": NAMESPACE, "port": 443}
    return [
        *_shared(),
        _secret(placement),
        _deployment(placement.image),
        _disruption_budget(),
        _service(),
        *_configurations({"service": service}, ca_pem),
    ]


def _shared() -> list[Document]:
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    return [
        definition(),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _placed(NAME)},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": NAME},
            "rules": [_reading()],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": NAME},
            "subjects": [account],
        },
        # Users read LimitRanges, and only administrators of the cluster write them: so it is with
        # those of Kubernetes.
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {
                "name": f"{NAME}:reader",
                "labels": {
                    f"{_RBAC}/aggregate-to-{role}": "true" for role in ("view", "edit", "admin")
                },
            },
            "rules": [_reading()],
        },
    ]


def _reading() -> Document:
    return {"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["get", "list", "watch"]}


def _placed(name: str) -> Document:
    return {"name": name, "namespace": NAMESPACE, "labels": _LABELS}


def definition() -> Document:
    """Return the CustomResourceDefinition of kedge's LimitRanges."""
    spec = {
        "type": "object",
        "required": ["limits"],
        "properties": {"limits": {"type": "array", "maxItems": 256, "items": _item()}},
    }
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": spec}}
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "plural": PLURAL,
                "singular": "limitrange",
                "kind": "LimitRange",
                "listKind": "LimitRangeList",
                "shortNames": ["klimits"],
            },
            "versions": [version],
        },
    }


def _item() -> Document:
    amounts = {
        "type": "object",
        "additionalProperties": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            # Stricter than Kubernetes' own: the webhook cannot read, and so not enforce, a stored
            # 1.2.3.
            "pattern": _QUANTITY,
        },
    }
    own: Document = {
        "type": {"type": "string"},
        "impliedDefaults": {"type": "boolean"},
        "selector": _selector(),
    }
    fields = LimitRangeItem.__struct_fields__
    properties = {name: own.get(name, amounts) for name in fields}
    return {"type": "object", "required": ["type"], "properties": properties}


def _selector() -> Document:
    text: Document = {"type": "string"}
    texts: Document = {"type": "array", "items": text}
    requirement: Document = {
        "type": "object",
        "required": ["key", "operator"],
        "properties": {"key": text, "operator": text, "values": texts},
    }
    own: Document = {
        "matchLabels": {"type": "object", "additionalProperties": text},
        "matchExpressions": {"type": "array", "items": requirement},
    }
    fields = LimitRangeSelector.__struct_fields__
    return {"type": "object", "properties": {name: own.get(name, text) for name in fields}}


def _configurations(target: Document, ca_pem: bytes) -> list[Document]:
    pods = [_rule("", "pods", "CREATE"), _rule("", "pods/resize", "UPDATE")]
    claims = [_rule("", "persistentvolumeclaims", "CREATE", "UPDATE")]
    ranges = [_rule(GROUP, PLURAL, "CREATE", "UPDATE")]
    groups = dict.fromkeys(each.group for each in workloads.RESOURCES)
    templates = [
        _rule(group, [each.plural for each in workloads.RESOURCES if each.group == group])
        for group in groups
    ]
    trust = {"caBundle": base64.b64encode(ca_pem).decode()} if ca_pem else {}

    def webhook(name: str, path: str, rules: list[Document], **more: Any) -> Document:
        if "url" in target:
            client: Document = {"url": f"{target['url']}{path}"}
        else:
            client = {"service": {**target["service"], "path": path}}
        return {
            "name": f"{name}.webhook.{GROUP}",
            "clientConfig": {**client, **trust},
            "rules": rules,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "matchPolicy": "Equivalent",
            "timeoutSeconds": _POD_SECONDS,
            "failurePolicy": "Fail",
            **more,
        }

    # Without this, a cluster whose webhook is down could not start the pods that bring it back.
    elsewhere = {
        "namespaceSelector": {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": [NAMESPACE],
                }
            ]
        }
    }
    again = {"reinvocationPolicy": "IfNeeded"}
    # A template that is not translated is refused by the API server itself, so nothing is lost.
    lenient = {"failurePolicy": "Ignore", "timeoutSeconds": _WARNING_SECONDS}
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": NAME},
            "webhooks": [
                webhook("pods", "/mutate", pods, **elsewhere, **again),
                webhook("templates", "/mutate", templates, **elsewhere, **again, **lenient),
            ],
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": NAME},
            "webhooks": [
                webhook("limits", "/validate", pods + claims, **elsewhere),
                webhook("limitranges", "/validate", ranges),
                webhook("warnings", "/validate", templates, **elsewhere, **lenient),
            ],
        },
    ]


def _rule(group: str, resources: str | list[str], *operations: str) -> Document:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": list(operations or ("CREATE", "UPDATE")),
        "resources": [resources] if isinstance(resources, str) else resources,
        "scope": "Namespaced",
    }


def _secret(placement: ClusterPlacement) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _placed(NAME),
        "type": "kubernetes.io/tls",
        "data": {
            "tls.crt": base64.b64encode(placement.certificate).decode(),
            "tls.key": base64.b64encode(placement.key).decode(),
        },
    }


def _deployment(image: str) -> Document:
    def probe(path: str) -> Document:
        return {"httpGet": {"scheme": "HTTPS", "path": path, "port": PORT}, "periodSeconds": 5}

    container = {
        "name": "webhook",
        "image": image,
        "command": ["kedge", "admission-webhook"],
        "args": [
            "--host=0.0.0.0",
            f"--port={PORT}",
            "--state=/state",
            "--tls-cert-file=/certificate/tls.crt",
            "--tls-private-key-file=/certificate/tls.key",
        ],
        "ports": [{"name": "https", "containerPort": PORT}],
        "readinessProbe": probe("/readyz"),
        "livenessProbe": probe("/livez"),
        "resources": {
            "requests": {"cpu": "20m", "memory": "80Mi"},
            "limits": {"memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "certificate", "mountPath": "/certificate", "readOnly": True},
            {"name": "state", "mountPath": "/state"},
        ],
    }
    elsewhere = {
        "weight": 100,
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": _LABELS},
        },
    }
    pod = {
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "runAsGroup": 65534,
            "fsGroup": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [elsewhere]}
        },
        "containers": [container],
        "volumes": [
            {"name": "certificate", "secret": {"secretName": NAME, "defaultMode": 0o440}},
            {"name": "state", "emptyDir": {}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _placed(NAME),
        "spec": {
            "replicas": _REPLICAS,
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": pod},
        },
    }


def _disruption_budget() -> Document:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _placed(NAME),
        "spec": {"minAvailable": 1, "selector": {"matchLabels": _LABELS}},
    }


def _service() -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _placed(NAME),
        "spec": {
            "selector": _LABELS,
            "ports": [{"name": "https", "port": 443, "targetPort": PORT}],
        },
    }
