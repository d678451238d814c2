from pathlib import Path

import msgspec
import pytest

from kedge.apiserver import whereabouts
from kedge.apiserver.config import ServerConfig

CONFIG = ServerConfig(state=Path("/nowhere"))


@pytest.mark.parametrize(
    ("host", "hosts", "url"),
    [
        ("127.0.0.1", (), "https://127.0.0.1:6443"),
        ("fd00::1", (), "https://[fd00::1]:6443"),
        ("192.0.2.7", ("box.example.com",), "https://192.0.2.7:6443"),
        ("0.0.0.0", ("box.example.com",), "https://box.example.com:6443"),
    ],
)
def test_others_are_told_a_name_that_leads_here(
    host: str, hosts: tuple[str, ...], url: str
) -> None:
    config = msgspec.structs.replace(CONFIG, host=host, hosts=hosts)
    assert whereabouts.advertised(config, 6443) == url


def test_a_server_that_listens_everywhere_is_called_by_all_its_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whereabouts, "own_addresses", lambda: ["192.0.2.7", "2001:db8::7"])
    everywhere = msgspec.structs.replace(CONFIG, host="0.0.0.0", hosts=("box",))
    assert whereabouts.hosts(everywhere) == ["0.0.0.0", "box", "192.0.2.7", "2001:db8::7"]
    assert whereabouts.hosts(CONFIG) == ["127.0.0.1"]
    assert whereabouts.local(everywhere, 1) == "https://127.0.0.1:1"
