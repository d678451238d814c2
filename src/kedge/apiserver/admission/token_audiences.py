"""For whom the tokens are meant that a pod's volumes are made with."""

from collections.abc import Iterator
from typing import Any

from kedge.api.catalog import Catalog
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.volume.volume import Volume
from kedge.apiserver.admission.mirror_pods import projections
from kedge.apiserver.watchcache import WatchCache


def audiences(cache: WatchCache, catalog: Catalog, pod: Pod) -> set[str]:
    """Return the token audiences that the pod's volumes name; "" stands for the API server."""
    tokens = (part.serviceAccountToken for part in projections(pod))
    found = {token.audience for token in tokens if token is not None}
    search = _Search(cache, catalog)
    for volume in pod.spec.volumes:
        found.update(search.of_driver(search.driver(pod, volume)))
    return found


class _Search:
    """Follows volumes to their drivers; what is not there leads to nothing."""

    def __init__(self, cache: WatchCache, catalog: Catalog) -> None:
        self._cache = cache
        self._catalog = catalog

    def driver(self, pod: Pod, volume: Volume) -> str:
        """The CSI driver behind a volume; empty if there is none."""
        if volume.csi is not None:
            return volume.csi.driver
        claim = _claim(pod, volume)
        if not claim:
            return ""
        bound = self._spec("", "persistentvolumeclaims", pod.metadata.namespace, claim)
        behind = self._spec("", "persistentvolumes", "", bound.get("volumeName", ""))
        driver: str = (behind.get("csi") or {}).get("driver", "")
        return driver

    def of_driver(self, name: str) -> Iterator[str]:
        """For whom a driver wants tokens."""
        for request in self._spec("storage.k8s.io", "csidrivers", "", name).get(
            "tokenRequests", ()
        ):
            yield request.get("audience", "")

    def _spec(self, group: str, plural: str, namespace: str, name: str) -> dict[str, Any]:
        resource = self._catalog.find(group, "v1", plural)
        if not name or resource is None:
            return {}
        item = self._cache.of(resource).get(resource.key(namespace, name))
        return item.document().get("spec") or {} if item is not None else {}


def _claim(pod: Pod, volume: Volume) -> str:
    if volume.persistentVolumeClaim is not None:
        return volume.persistentVolumeClaim.claimName
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else ""
