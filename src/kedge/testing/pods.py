"""Builders of pods for tests."""

from collections.abc import Mapping
from typing import Any

from kedge.api.core_v1.pod.pod import RESOURCE, Pod


def pod_document(
    *,
    metadata: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    container: Mapping[str, Any] | None = None,
    volume: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A pod `pod` with one container `ctr`; `volume`, if given, is its one volume `vol`."""
    whole: dict[str, Any] = {"containers": [{"name": "ctr", "image": "image"}]} | dict(spec or {})
    if container is not None:
        first, *others = whole["containers"]
        whole["containers"] = [first | container, *others]
    if volume is not None:
        whole["volumes"] = [{"name": "vol"} | dict(volume)]
    named = {"name": "pod", "namespace": "default"} | dict(metadata or {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": whole}


def new_pod(**parts: Mapping[str, Any] | None) -> Pod:
    """The same, as the server would first store it."""
    document = without_nothing(pod_document(**parts))
    return RESOURCE.strategy.prepare_for_create(
        RESOURCE.strategy.default(RESOURCE.from_document(document))
    )


def without_nothing(value: Any) -> Any:
    """A document as the server fits it: nulls and empty lists are as good as left out."""
    if isinstance(value, dict):
        fitted = {key: without_nothing(item) for key, item in value.items()}
        return {key: item for key, item in fitted.items() if item is not None and item != []}
    if isinstance(value, list):
        return [without_nothing(item) for item in value]
    return value
