from pathlib import Path

import pytest

from kedge.cluster.errors import ClusterError
from kedge.cluster.settings import flags


def test_keywords_are_the_flags_of_kedge_up() -> None:
    assert flags(
        {
            "nodes": 2,
            "store": "memory",
            "max_pods": 20,
            "upstream_only": True,
            "host_image": False,
            "gateway": False,
            "image_map": ["busybox:*=host", "nginx:*=host"],
            "node_labels": {"disk": "ssd", "zone": "a"},
            "audit_log_path": Path("/tmp/audit.log"),
        }
    ) == [
        "--nodes=2",
        "--store=memory",
        "--max-pods=20",
        "--upstream-only",
        "--no-host-image",
        "--gateway=off",
        "--image-map=busybox:*=host",
        "--image-map=nginx:*=host",
        "--node-labels=disk=ssd,zone=a",
        "--audit-log-path=/tmp/audit.log",
    ]


@pytest.mark.parametrize("keyword", ["name", "restart", "foreground", "scale_down_delay"])
def test_settings_that_a_test_does_not_have_are_refused(keyword: str) -> None:
    with pytest.raises(ClusterError, match=f"{keyword} cannot be set: a cluster in a test"):
        flags({keyword: "x"})
