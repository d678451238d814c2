"""A small operator: for every Greeting it keeps a ConfigMap, and it says good-bye at the end."""

from typing import Any

import kopf
from kubernetes import client, config

GROUP = "greetings.example.com"

config.load_kube_config()


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.persistence.finalizer = f"{GROUP}/good-bye"
    settings.scanning.disabled = True


@kopf.on.create(GROUP, "v1", "greetings")
def create(body: kopf.Body, spec: kopf.Spec, name: str, namespace: str, **_: Any) -> dict[str, str]:
    text = {"text": f"Hello {spec['to']}"}
    config_map: dict[str, Any] = {"metadata": {"name": name}, "data": text}
    kopf.adopt(config_map)
    client.CoreV1Api().create_namespaced_config_map(namespace, config_map)
    kopf.info(body, reason="Greeted", message=text["text"])
    return text


@kopf.on.update(GROUP, "v1", "greetings", field="spec.to")
def update(new: str, name: str, namespace: str, patch: kopf.Patch, **_: Any) -> None:
    body = {"data": {"text": f"Hello {new}"}}
    client.CoreV1Api().patch_namespaced_config_map(name, namespace, body)
    patch.status["greeted"] = new


@kopf.on.delete(GROUP, "v1", "greetings")
def delete(spec: kopf.Spec, name: str, namespace: str, **_: Any) -> None:
    body = {"metadata": {"name": f"{name}-gone"}, "data": {"text": f"Bye {spec['to']}"}}
    client.CoreV1Api().create_namespaced_config_map(namespace, body)
