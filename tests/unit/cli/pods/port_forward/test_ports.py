"""Which ports are forwarded."""

from typing import Any

import pytest

from kedge.cli.failure import Failure
from kedge.cli.pods.port_forward.ports import PortPair, parse

POD: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {"name": "web-1"},
    "spec": {"containers": [{"ports": [{"name": "http", "containerPort": 8000}]}]},
}
SERVICE: dict[str, Any] = {
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {
        "ports": [
            {"name": "web", "port": 80, "targetPort": "http"},
            {"name": "admin", "port": 81, "targetPort": 9000},
        ]
    },
}
HEADLESS = {**SERVICE, "spec": {**SERVICE["spec"], "clusterIP": "None"}}


@pytest.mark.parametrize(
    ("word", "document", "expected"),
    [
        ("80", POD, PortPair(80, 80)),
        ("8080:80", POD, PortPair(8080, 80)),
        (":80", POD, PortPair(0, 80)),
        ("8080:http", POD, PortPair(8080, 8000)),
        ("http", POD, PortPair(8000, 8000)),
        ("80", SERVICE, PortPair(80, 8000)),
        ("8080:web", SERVICE, PortPair(8080, 8000)),
        (":81", SERVICE, PortPair(0, 9000)),
        (":81", HEADLESS, PortPair(0, 81)),
    ],
)
def test_words_name_ports(word: str, document: dict[str, Any], expected: PortPair) -> None:
    assert parse(word, document, POD) == expected


@pytest.mark.parametrize(
    ("word", "document", "message"),
    [
        ("0", POD, '"0" is not a port'),
        ("70000:80", POD, '"70000" is not a port'),
        ("x:80", POD, '"x" is not a port'),
        ("8080:ftp", POD, "does not have a named port 'ftp'"),
        ("82", SERVICE, "Service web does not have a service port 82"),
        ("", POD, "does not have a named port"),
    ],
)
def test_what_is_no_port_is_refused(word: str, document: dict[str, Any], message: str) -> None:
    with pytest.raises(Failure, match=message):
        parse(word, document, POD)
