"""What clients without a credential can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.e2e.conftest import OwnCluster

INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"


def test_cluster_info_is_readable_only_while_machines_may_join(
    own_cluster: OwnCluster, eventually: Callable[..., Any]
) -> None:
    stranger = own_cluster.up().api.stranger()
    assert not stranger.serves(INFO)
    token = own_cluster.kedge("token", "create", *own_cluster.which).strip()
    assert stranger.serves(INFO)
    own_cluster.kedge("token", "delete", *own_cluster.which, token)
    eventually(lambda: not stranger.serves(INFO))
    own_cluster.kedge("token", "create", *own_cluster.which, "--ttl=3s")
    assert stranger.serves(INFO)
    eventually(lambda: not stranger.serves(INFO))
