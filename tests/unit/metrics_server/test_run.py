"""Who the metrics server is to the kubelets of the cluster."""

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
from kedge.client.cluster_login import ClusterCredentials
from kedge.client.login import Login
from kedge.metrics_server.config import MetricsServerConfig
from kedge.metrics_server.run import KubeletAccess
from kedge.testing.clock import FakeClock


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
