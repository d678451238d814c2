"""Who a server beside a cluster is to that cluster."""

from pathlib import Path

import pytest

from kedge.client.cluster_login import ClusterCredentials, in_cluster
from kedge.client.kubeconfig import KubeconfigError
from kedge.testing.clock import FakeClock

INSIDE = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """What a pod finds of itself."""
    (tmp_path / "ca.crt").write_text("PEM")
    (tmp_path / "token").write_text("first\n")
    return tmp_path


def test_a_pod_finds_its_cluster(home: Path) -> None:
    found = in_cluster(INSIDE, home)
    assert (found.server, found.token, found.ca_pem) == ("https://[fd00::1]:6443", "first", b"PEM")


def test_outside_of_a_cluster_a_kubeconfig_is_asked_for(home: Path, tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="--kubeconfig"):
        in_cluster({}, home)
    with pytest.raises(KubeconfigError, match=r"ca\.crt"):
        in_cluster(INSIDE, tmp_path / "nowhere")


async def test_a_token_that_was_renewed_is_taken_over(home: Path) -> None:
    clock = FakeClock()
    held = ClusterCredentials(lambda: in_cluster(INSIDE, home), clock)
    (home / "token").write_text("second")
    assert held.login.token == "first"
    await clock.advance(61)
    assert held.login.token == "second"
    (home / "token").unlink()
    await clock.advance(61)
    assert held.login.token == "second"
