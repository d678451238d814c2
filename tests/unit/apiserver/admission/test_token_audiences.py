from typing import Any

from kedge.api.catalog import Catalog
from kedge.api.resource import Resource
from kedge.apiserver.admission.token_audiences import audiences
from kedge.testing.admission import Stored, cache_with
from kedge.testing.pods import new_pod

CATALOG = Catalog()


def kind(group: str, plural: str) -> Resource[Any]:
    found = CATALOG.find(group, "v1", plural)
    assert found is not None
    return found


CLAIMS, VOLUMES = kind("", "persistentvolumeclaims"), kind("", "persistentvolumes")
DRIVERS = kind("storage.k8s.io", "csidrivers")


def _claim(name: str, **spec: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def found(*volumes: dict[str, Any]) -> set[str]:
    """The audiences of a pod with these volumes, where the driver `d` asks for two."""
    requests = [{"audience": "vault"}, {"audience": "bank"}]
    objects: list[Stored] = [
        (DRIVERS, {"metadata": {"name": "d"}, "spec": {"tokenRequests": requests}}),
        (VOLUMES, {"metadata": {"name": "pv"}, "spec": {"csi": {"driver": "d"}}}),
        (VOLUMES, {"metadata": {"name": "plain"}, "spec": {"hostPath": {"path": "/x"}}}),
        (CLAIMS, _claim("bound", volumeName="pv")),
        (CLAIMS, _claim("pod-scratch", volumeName="pv")),
        (CLAIMS, _claim("elsewhere", volumeName="plain")),
        (CLAIMS, _claim("pending")),
    ]
    cache = await cache_with([CLAIMS, VOLUMES, DRIVERS], objects)
    named = [{"name": f"v{i}"} | volume for i, volume in enumerate(volumes)]
    return audiences(cache, CATALOG, new_pod(spec={"volumes": named}))


async def test_projected_tokens_name_their_audience_or_mean_the_server() -> None:
    sources = [
        {"serviceAccountToken": {"path": "a"}},
        {"serviceAccountToken": {"path": "b", "audience": "vault"}},
    ]
    assert await found({"projected": {"sources": sources}}) == {"", "vault"}


async def test_a_driver_is_found_behind_inline_volumes_claims_and_scratch_volumes() -> None:
    template: dict[str, Any] = {"volumeClaimTemplate": {"spec": {}}}
    for volume in (
        {"csi": {"driver": "d"}},
        {"persistentVolumeClaim": {"claimName": "bound"}},
        {"name": "scratch", "ephemeral": template},
    ):
        assert await found(volume) == {"vault", "bank"}


async def test_volumes_that_lead_to_no_driver_add_nobody() -> None:
    missing = ("elsewhere", "pending", "none")
    claims = [{"persistentVolumeClaim": {"claimName": name}} for name in missing]
    assert await found(*claims, {"csi": {"driver": "unknown"}}, {"emptyDir": {}}) == set()
