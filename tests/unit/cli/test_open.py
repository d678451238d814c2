"""`kedge open`: which Service is meant, and what is done with its address."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.cli import open as command
from kedge.cli.failure import Failure
from kedge.cli.open import OpenTarget, check, show, target_of
from kedge.gateway.listening import GatewayRecord
from kedge.settings.published_port import PublishedPort


@pytest.mark.parametrize(
    ("text", "namespace", "port", "host"),
    [
        ("svc/web", "shop", "", "web.shop.localhost"),
        ("service/web", "", "", "web.default.localhost"),
        ("services/web", "", "8080", "8080.web.default.localhost"),
        ("web", "", "metrics", "metrics.web.default.localhost"),
    ],
)
def test_a_service_is_named_as_for_kubectl(text: str, namespace: str, port: str, host: str) -> None:
    assert target_of(text, namespace, port).host == host


@pytest.mark.parametrize(
    ("text", "words"),
    [("pod/web", "only Services can be opened"), ("svc/", "no name"), ("svc/a.b", "no name")],
)
def test_other_words_are_refused(text: str, words: str) -> None:
    with pytest.raises(Failure, match=words):
        target_of(text, "", "")


class Answering(http.server.BaseHTTPRequestHandler):
    """Refuses as the gateway does, unless the host is that of `web`."""

    def do_HEAD(self) -> None:
        self.send_response(405 if self.headers["Host"].startswith("web.") else 503)
        if not self.headers["Host"].startswith("web."):
            self.send_header("X-Kedge-Gateway", "no endpoints available")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def gateway() -> Iterator[PublishedPort]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield PublishedPort("127.0.0.1", server.server_port, 80)
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_address_is_printed_after_the_service_has_answered(gateway: PublishedPort) -> None:
    url = check(GatewayRecord((gateway,)), OpenTarget("web", "n"))
    assert url == f"http://web.n.localhost:{gateway.port}/"


def test_the_reason_of_the_gateway_is_shown(gateway: PublishedPort) -> None:
    with pytest.raises(Failure, match="no endpoints available: 'kedge get services -n "):
        check(GatewayRecord((gateway,)), OpenTarget("other", "n"))


def test_a_gateway_that_does_not_listen_is_reported() -> None:
    with pytest.raises(Failure, match="does not answer"):
        check(GatewayRecord((PublishedPort("127.0.0.1", 1, 80),)), OpenTarget("web", "n"))


def test_a_browser_is_started_only_on_a_desktop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "xdg-open"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    started: list[list[str]] = []
    monkeypatch.setattr("subprocess.Popen", lambda words, **_: started.append(words))
    path = {"PATH": str(tmp_path)}
    show("http://x/", path)
    show("http://x/", {"DISPLAY": ":0", "PATH": "/nowhere"})
    assert started == []
    for display in ("DISPLAY", "WAYLAND_DISPLAY"):
        show("http://x/", path | {display: ":0"})
    assert started == [[str(program), "http://x/"]] * 2


def test_the_command_describes_itself() -> None:
    assert "kedge open svc/web" in command.EXAMPLES
