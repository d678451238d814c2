"""Documents for the tests of LimitRanger, from the short form in which cases are written."""

from collections.abc import Iterable, Mapping
from typing import Any

Document = dict[str, Any]


def limit_range(name: str, items: Iterable[Mapping[str, Any]]) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": name},
        "spec": {"limits": list(items)},
    }


def pod(short: Mapping[str, Any], name: str = "p") -> Document:
    """A pod; `containers` and `init` map names to requests, limits and restartPolicy."""
    meta = {key: short[key] for key in ("annotations", "labels") if key in short}
    spec: Document = {"containers": containers(short["containers"])}
    if short.get("init"):
        spec["initContainers"] = containers(short["init"])
    if short.get("resources"):
        spec["resources"] = short["resources"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **meta},
        "spec": spec,
    }


def containers(short: Mapping[str, Mapping[str, Any]]) -> list[Document]:
    return [container(name, each) for name, each in short.items()]


def container(name: str, short: Mapping[str, Any]) -> Document:
    made: Document = {"name": name, "image": "image"}
    if resources := {key: short[key] for key in ("requests", "limits") if key in short}:
        made["resources"] = resources
    if "restartPolicy" in short:
        made["restartPolicy"] = short["restartPolicy"]
    return made


def claim(resources: Mapping[str, Any], name: str = "v") -> Document:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": dict(resources)}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": spec,
    }


def resources(stored: Mapping[str, Any]) -> dict[str, Document]:
    """The resources of every container of a stored pod, or of a stored claim, by name."""
    if stored["kind"] == "PersistentVolumeClaim":
        return {stored["metadata"]["name"]: stored["spec"]["resources"]}
    spec = stored["spec"]
    every = [*spec["containers"], *spec.get("initContainers", [])]
    return {each["name"]: each.get("resources") or {} for each in every}
