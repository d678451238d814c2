"""Who the metrics server is to the cluster and to its kubelets."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from kedge.apiserver import pki
from kedge.apiserver.config import KubeletTrust
from kedge.cli.config.server import metrics_server_config
from kedge.cli.config.settings import Settings
from kedge.cli.failure import Failure
from kedge.cli.main import parser
from kedge.client.kubeconfig import KubeconfigError
from kedge.client.login import Login
from kedge.metrics_server.config import MetricsServerConfig
from kedge.metrics_server.run import ClusterCredentials, KubeletAccess, in_cluster
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


@pytest.mark.parametrize("believed", [True, False])
def test_kubelets_are_believed_as_told_and_not_as_the_api_server_is(
    tmp_path: Path, believed: bool
) -> None:
    identity = pki.ensure(tmp_path / "pki", [])
    login = Login(
        context="", file=tmp_path, server="https://a", ca_pem=identity.ca_pem, insecure=True
    )
    trust = KubeletTrust(anybody=believed)
    wanted = MetricsServerConfig(state=tmp_path, kubelets=trust)
    access = KubeletAccess(wanted, ClusterCredentials(lambda: login, FakeClock()))()
    expected = ssl.CERT_NONE if believed else ssl.CERT_REQUIRED
    assert access.tls.verify_mode == expected


def configured(*flags: str, **environment: str) -> MetricsServerConfig:
    read = parser().parse_args(["metrics-server", *flags])
    return metrics_server_config(Settings(read, {"XDG_STATE_HOME": "/x", **environment}))


def test_flags_and_environment_are_read() -> None:
    made: Any = configured("--metrics-resolution=30s", KEDGE_METRICS_WINDOW="1m", KEDGE_PORT="7")
    assert (made.resolution, made.window, made.port) == (30, "1m", 7)
    assert made.state == Path("/x/kedge-metrics")
    assert configured().resolution == 15


def test_a_cluster_s_directory_is_not_taken_for_its_own() -> None:
    assert configured(KEDGE_STATE="/cluster").state == Path("/x/kedge-metrics")


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(Failure, match="belong together"):
        configured("--tls-cert-file=/a")
