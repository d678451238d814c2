"""Ports that the gateway is published at."""

import argparse

import pytest

from kedge.settings.published_port import PublishedPort, parse_published_port


@pytest.mark.parametrize(
    ("text", "port", "shown", "url"),
    [
        ("8080:80", ("127.0.0.1", 8080, 80), "127.0.0.1:8080:80", "http://127.0.0.1:8080"),
        ("0.0.0.0:443:443", ("0.0.0.0", 443, 443), "0.0.0.0:443:443", "https://0.0.0.0:443"),
        ("[::1]:8443:443", ("::1", 8443, 443), "[::1]:8443:443", "https://[::1]:8443"),
    ],
)
def test_a_port_is_read_and_written(
    text: str, port: tuple[str, int, int], shown: str, url: str
) -> None:
    parsed = parse_published_port(text)
    assert (tuple(parsed), str(parsed), parsed.url) == (port, shown, url)
    assert parse_published_port(shown) == parsed == PublishedPort(*port)


@pytest.mark.parametrize("text", ["", "80", "8080:81", ":80", "x:80", "70000:80", "8080:http"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_published_port(text)
