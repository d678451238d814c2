"""The cluster as reports and scraping see it: identities and sketches out of the watch cache."""

import gc
from typing import Any

from kedge.apiserver.metrics.cluster import CachedCluster
from kedge.metrics.reports import ObjectIdentity
from kedge.testing.local_server import LocalServer


async def test_identities_are_those_of_the_cache(server: LocalServer, nodes: Any) -> None:
    await nodes.node("n1", zone="a")
    await nodes.pod("web", "n1", app="web")
    cluster = CachedCluster(server.app.api.cache)
    uids = nodes.uids
    node, pod = cluster.node_identity("n1"), cluster.pod_identity("default", "web")
    assert node == ObjectIdentity(uids["n1"], {"zone": "a"})
    assert pod == ObjectIdentity(uids["default/web"], {"app": "web"}, "n1")
    assert cluster.node_identity("n2") is None
    assert cluster.pod_identity("default", "db") is None


async def test_a_sketch_is_decoded_again_only_after_a_change(
    server: LocalServer, nodes: Any
) -> None:
    await nodes.node("n1")
    await nodes.pod("web", "n1")
    cluster = CachedCluster(server.app.api.cache)
    first = cluster.pod("default", "web")
    assert first is not None
    assert first.containers() == {"main"}
    assert cluster.pod("default", "web") is first
    path = "/api/v1/namespaces/default/pods/web"
    await server.merge(path, {"metadata": {"labels": {"a": "b"}}})
    changed = cluster.pod("default", "web")
    assert changed is not None
    assert changed.metadata.labels == {"a": "b"}
    await server.delete(f"{path}?gracePeriodSeconds=0")
    assert cluster.pod("default", "web") is None
    assert cluster.uids() >= {nodes.uids["n1"]}


async def test_a_sketch_goes_with_its_pod(server: LocalServer, nodes: Any) -> None:
    await nodes.node("n1")
    await nodes.pod("web", "n1")
    cluster = CachedCluster(server.app.api.cache)
    kept = [cluster.pod("default", "web")]
    assert [each for each in gc.get_referrers(kept[0]) if isinstance(each, tuple)]
    await server.delete("/api/v1/namespaces/default/pods/web?gracePeriodSeconds=0")
    assert not [each for each in gc.get_referrers(kept[0]) if isinstance(each, tuple)]
