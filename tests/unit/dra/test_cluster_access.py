"""A driver finds its cluster by its pod or by a kubeconfig."""

from pathlib import Path

import pytest

from kedge.client.kubeconfig import ClusterAccess, KubeconfigError, merge
from kedge.client.transport import Call, Unreachable
from kedge.dra.cluster_access import cluster_client


def test_a_kubeconfig_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config"
    merge(file, ClusterAccess("c", "http://127.0.0.1:1", b"", "t"))
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert cluster_client("x", tmp_path)._transport._authority == "127.0.0.1:1"  # type: ignore[attr-defined]


def test_a_pod_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("t\n")
    (tmp_path / "ca.crt").write_bytes(b"")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    monkeypatch.setattr("kedge.client.http.trusting", lambda pem: None)
    transport = cluster_client("x", tmp_path)._transport
    assert transport._authority == "[fd00::1]:6443"  # type: ignore[attr-defined]
    assert b"Bearer t\r\n" in transport._encoded(Call("GET", "/"))  # type: ignore[attr-defined]


def test_a_token_that_was_renewed_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("old")
    (tmp_path / "ca.crt").write_bytes(b"")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setattr("kedge.client.http.trusting", lambda pem: None)
    transport = cluster_client("x", tmp_path)._transport
    (tmp_path / "token").write_text("new")
    assert b"Bearer new\r\n" in transport._encoded(Call("GET", "/"))  # type: ignore[attr-defined]
    (tmp_path / "token").unlink()
    with pytest.raises(Unreachable, match="cannot read the token"):
        transport._encoded(Call("GET", "/"))  # type: ignore[attr-defined]


def test_without_either_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(KubeconfigError, match="there is no kubeconfig"):
        cluster_client("x", tmp_path)
