from pathlib import Path

import msgspec
import pytest

from kedge.apiserver import server_addresses
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
    assert server_addresses.advertised(config, 6443) == url


def test_a_server_that_listens_everywhere_is_called_by_all_its_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_addresses, "own_addresses", lambda: ["192.0.2.7", "2001:db8::7"])
    everywhere = msgspec.structs.replace(CONFIG, host="0.0.0.0", hosts=("box",))
    assert server_addresses.hosts(everywhere) == ["0.0.0.0", "box", "192.0.2.7", "2001:db8::7"]
    assert server_addresses.hosts(CONFIG) == ["127.0.0.1"]
    assert server_addresses.local(everywhere, 1) == "https://127.0.0.1:1"


def test_nodes_are_where_the_machine_is_and_not_at_a_bridge_of_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nowhere(*_: object) -> str:
        raise OSError

    monkeypatch.setattr(server_addresses, "own_addresses", lambda: ["10.244.0.1", "192.0.2.7"])
    monkeypatch.setattr(server_addresses, "address_towards", nowhere)
    everywhere = msgspec.structs.replace(CONFIG, host="0.0.0.0", hosts=("box.example.com",))
    assert server_addresses.machine_address(everywhere) == "192.0.2.7"
    assert server_addresses.machine_address(CONFIG) == "127.0.0.1"
    monkeypatch.setattr(server_addresses, "address_towards", lambda *_: "198.51.100.7")
    assert server_addresses.machine_address(everywhere) == "198.51.100.7"
