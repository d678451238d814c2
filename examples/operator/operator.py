"""Create a Deployment for every Site, and report its ready servers in the status of the Site."""

from typing import Any

import kopf
from kubernetes import client, config

config.load_kube_config()
SITE = {"group": "example.com", "version": "v1", "plural": "sites"}
SERVE = (
    'mkdir /tmp/site && cd /tmp/site && echo "$TEXT" > index.html && exec python3 -m http.server'
)


def deployment(name: str, spec: kopf.Spec) -> dict[str, Any]:
    labels = {"site": name}
    container = {
        "name": "server",
        "image": "host",
        "command": ["sh", "-c", SERVE],
        "env": [{"name": "TEXT", "value": spec["text"]}],
        "readinessProbe": {"httpGet": {"port": 8000}, "periodSeconds": 1},
    }
    pod = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": spec["servers"],
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.persistence.finalizer = "example.com/operator"
    settings.scanning.disabled = True


@kopf.on.create("example.com", "v1", "sites")
def create(name: str, namespace: str, spec: kopf.Spec, **_: Any) -> None:
    wanted = deployment(name, spec)
    kopf.adopt(wanted)
    client.AppsV1Api().create_namespaced_deployment(namespace, wanted)


@kopf.on.update("example.com", "v1", "sites", field="spec")
def update(name: str, namespace: str, spec: kopf.Spec, **_: Any) -> None:
    client.AppsV1Api().patch_namespaced_deployment(name, namespace, deployment(name, spec))


@kopf.on.event("apps", "v1", "deployments", labels={"site": kopf.PRESENT})
def observe(name: str, namespace: str, status: kopf.Status, type: str, **_: Any) -> None:
    if type == "DELETED":
        return
    ready = {"status": {"ready": status.get("readyReplicas", 0)}}
    try:
        client.CustomObjectsApi().patch_namespaced_custom_object_status(
            namespace=namespace, name=name, body=ready, **SITE
        )
    except client.ApiException as error:
        # The Site is deleted before its Deployment.
        if error.status != 404:
            raise
