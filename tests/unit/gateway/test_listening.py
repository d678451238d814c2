"""The ports of the gateway and their record."""

import errno
from pathlib import Path

import pytest

from kedge.gateway.listening import (
    GatewayRecord,
    PortUnavailable,
    forget,
    read,
    wanted_ports,
    write,
)
from kedge.settings.published_port import PublishedPort

LOCAL = PublishedPort("127.0.0.1", 39000, 80)
SECURE = PublishedPort("0.0.0.0", 443, 443)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    record = GatewayRecord((LOCAL, SECURE))
    write(tmp_path, record)
    write(tmp_path, record)
    assert read(tmp_path) == record
    (tmp_path / "gateway.json").write_text("{")
    assert read(tmp_path) is None
    forget(tmp_path)
    forget(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("port", "before", "first"),
    [
        (0, None, 0),
        (0, GatewayRecord((LOCAL,)), 39000),
        (0, GatewayRecord(()), 0),
        (8000, GatewayRecord((LOCAL,)), 8000),
    ],
)
def test_the_port_for_services_stays_the_same(
    port: int, before: GatewayRecord | None, first: int
) -> None:
    wanted = wanted_ports(port, [SECURE, SECURE], before)
    assert wanted == [LOCAL._replace(port=first), SECURE]


@pytest.mark.parametrize(
    ("ports", "url"),
    [
        ((LOCAL,), "http://web.n.localhost:39000/"),
        ((LOCAL, PublishedPort("127.0.0.1", 80, 80)), "http://web.n.localhost/"),
        ((LOCAL, SECURE), "http://web.n.localhost:39000/"),
    ],
)
def test_the_shortest_address_is_shown(ports: tuple[PublishedPort, ...], url: str) -> None:
    assert GatewayRecord(ports).url("web.n.localhost") == url


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EADDRINUSE, "0.0.0.0 port 443 is in use by another program"),
        (errno.EACCES, "this user may not listen on 0.0.0.0 port 443"),
        (errno.EADDRNOTAVAIL, "0.0.0.0 port 443: x: publish another port"),
    ],
)
def test_an_error_says_which_port_and_what_to_do(number: int, words: str) -> None:
    said = str(PortUnavailable(SECURE, OSError(number, "x")))
    assert said.startswith(f"the gateway cannot offer HTTPS: {words}")
    assert said.endswith("with --publish PORT:443")
