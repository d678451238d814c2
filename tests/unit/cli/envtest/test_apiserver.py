"""The kube-apiserver of `kedge envtest`: from its flags to the configuration of a server."""

import json
from pathlib import Path

import pytest

from kedge.cli.envtest import apiserver
from kedge.cli.envtest.flags import translated
from kedge.cli.failure import Failure


def made(directory: Path, *names: str) -> Path:
    for name in names:
        (directory / name).write_text("")
    return directory


def test_the_configuration_is_that_of_envtest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = made(tmp_path, "apiserver.crt", "apiserver.key", "ca.crt")
    monkeypatch.setattr(apiserver, "directory", lambda flags: tmp_path / "kedge")
    monkeypatch.setenv("KEDGE_STORE", "memory")
    given = [f"--cert-dir={here}", f"--client-ca-file={here}/ca.crt", "--secure-port=7"]
    more = ["--authorization-mode=AlwaysAllow,RBAC", "--disable-admission-plugins=ServiceAccount"]
    config = apiserver.configuration(translated([*given, *more]))
    assert (config.port, config.store, config.controllers) == (7, "sqlite", ())
    assert "ServiceAccount" not in config.admission
    assert "NodeRestriction" not in config.admission
    assert "LimitRanger" in config.admission
    assert config.serving is not None
    assert config.serving.certificate == here / "apiserver.crt"
    assert config.serving.client_authority == here / "ca.crt"
    assert config.is_alone
    assert str(config.service_network) == "10.0.0.0/24"
    assert config.authorization_config is not None
    written = json.loads(config.authorization_config.read_text())
    assert [each["type"] for each in written["authorizers"]] == ["AlwaysAllow", "RBAC"]


def test_cluster_ips_are_of_the_given_network() -> None:
    def network(text: str) -> str:
        flags = translated([f"--service-cluster-ip-range={text}"])
        return str(apiserver.service_network(flags))

    assert network("172.30.0.0/16") == "172.30.0.0/16"
    for text, words in (("fd00::/108", "one IPv4 network"), ("10.0.0.0/30", "at least 8")):
        with pytest.raises(Failure, match=words):
            network(text)


def test_certificates_are_those_that_were_named(tmp_path: Path) -> None:
    assert apiserver.serving_files(translated([f"--cert-dir={tmp_path}"])).certificate is None
    here = made(tmp_path, "a.crt", "a.key")
    given = [f"--tls-cert-file={here}/a.crt", f"--tls-private-key-file={here}/a.key"]
    assert apiserver.serving_files(translated(given)).key == here / "a.key"
    with pytest.raises(Failure, match="there is no file"):
        apiserver.serving_files(translated([f"--client-ca-file={here}/none.crt"]))


def test_mistakes_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert apiserver.main(["--v=1"]) == 1
    assert capsys.readouterr().err == (
        "kube-apiserver of kedge envtest: --etcd-servers is required\n"
    )
    assert apiserver.main(["--event-ttl=1h", "--etcd-servers=http://127.0.0.1:1"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("warning: --event-ttl has no effect\n")
    assert "etcd at http://127.0.0.1:1 cannot be used" in said
    assert apiserver.main(["word"]) == 1
