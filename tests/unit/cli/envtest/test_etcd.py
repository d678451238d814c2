"""The etcd of `kedge envtest`."""

import contextlib
import json
import socket
import threading
from pathlib import Path

import pytest

from kedge.cli.envtest import etcd


def test_flags_are_read_with_and_without_equals_signs() -> None:
    given = ["--data-dir=/d", "--listen-client-urls", "http://localhost:1", "--unsafe-no-fsync"]
    assert etcd.read_flags(given) == {
        "data-dir": "/d",
        "listen-client-urls": "http://localhost:1",
        "unsafe-no-fsync": "true",
    }
    assert etcd.read_flags(
        ["--a=1", "--b", "2", "--b", "--a=3", "--c=4", "--c", "5"], {"a", "c"}
    ) == {
        "a": "1,3",
        "b": "true",
        "c": "4,5",
    }
    with pytest.raises(etcd.FlagError, match="unexpected argument: word"):
        etcd.read_flags(["word"])


def test_the_address_is_that_of_the_first_url() -> None:
    assert etcd.address_of("http://[::1]:23,http://b:24") == ("::1", 23)
    for wrong in ("https://a:1", "http://a", "unix:///x"):
        with pytest.raises(etcd.FlagError, match="only http://HOST:PORT"):
            etcd.address_of(wrong)


def test_it_is_healthy_and_tells_where_data_belong() -> None:
    head, _, body = etcd.answer("/health?x", "/d").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert json.loads(body)["health"] == "true"
    assert etcd.answer("/kedge", "/d").endswith(b'{"dataDir": "/d"}')
    assert etcd.answer("/v3/kv", "/d").startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(
    ("asked", "status"), [(b"GET /health HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK"), (b"GET ", b"")]
)
def test_a_client_is_answered(asked: bytes, status: bytes) -> None:
    client, server = socket.socketpair()
    with client:
        client.sendall(asked)
        client.shutdown(socket.SHUT_WR)
        with server:
            etcd.serve(server, "/d")
        assert client.recv(4096).partition(b"\r\n")[0] == status


def test_a_silent_client_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd, "SECONDS", 300.0)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve_until_shut() -> None:
        with listener, contextlib.suppress(OSError):
            etcd.serve_all(listener, "/d")

    server = threading.Thread(target=serve_until_shut)
    server.start()
    address = listener.getsockname()
    with socket.create_connection(address) as silent, socket.create_connection(address) as client:
        silent.sendall(b"GET ")
        client.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        client.settimeout(30)
        assert client.recv(4096).startswith(b"HTTP/1.1 200 OK")
    listener.shutdown(socket.SHUT_RDWR)
    server.join()


def test_mistakes_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert etcd.main(["--help"]) == 0
    assert "--unsafe-no-fsync" in capsys.readouterr().out
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        given = [f"--data-dir={tmp_path}", f"--listen-client-urls={url}"]
        assert etcd.main(given) == 1
    assert "Address already in use" in capsys.readouterr().err
    assert etcd.main(["--listen-client-urls=x"]) == 1
