from pathlib import Path

import pytest

from kedge.apiserver import config
from kedge.apiserver.config import ServerConfig


def test_servers_of_machines_with_one_host_name_have_different_identities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "gethostname", lambda: "localhost")
    found = []
    for machine in ("one", "other", "other"):
        (tmp_path / machine).write_text(f"{machine}\n")
        monkeypatch.setattr(config, "_MACHINE_ID", tmp_path / machine)
        found.append(ServerConfig(state=Path("/var/lib/kedge")).identity)
    assert len(set(found)) == 2
    assert found[1] == found[2]
    monkeypatch.setattr(config, "_MACHINE_ID", tmp_path / "none")
    assert ServerConfig(state=Path("/var/lib/kedge")).identity.startswith("localhost_")


def test_servers_of_one_directory_have_different_identities() -> None:
    found = {ServerConfig(state=Path("/x"), replica=number).identity for number in (0, 2, 3)}
    assert len(found) == 3
