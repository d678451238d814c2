"""The files of the dashboard, as they are sent."""

import base64
import gzip
import hashlib
import re
from pathlib import Path

import pytest

from kedge.apiserver.ui.static_files import ROOT, SECURITY_HEADERS, TYPES, StaticFiles
from kedge.web.message import HttpRequest, Response


def ask(name: str, files: StaticFiles | None = None, **headers: str) -> Response | None:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return (files or StaticFiles()).answer(HttpRequest("GET", f"/ui/{name}", headers=named), name)


def header(response: Response, name: str) -> str:
    return dict(response.headers)[name]


def test_the_index_is_the_default() -> None:
    found = ask("")
    assert found is not None
    assert found.body == (ROOT / "index.html").read_bytes()
    assert found.content_type == "text/html; charset=utf-8"


def test_files_are_compressed_for_browsers_that_accept_it() -> None:
    found = ask("main.js", accept_encoding="gzip, br")
    assert found is not None
    assert isinstance(found.body, bytes)
    assert gzip.decompress(found.body) == (ROOT / "main.js").read_bytes()
    assert header(found, "Content-Encoding") == "gzip"


def test_a_known_file_is_not_sent_again() -> None:
    files = StaticFiles()
    first = ask("style.css", files)
    assert first is not None
    again = ask("style.css", files, if_none_match=header(first, "ETag"))
    assert again is not None
    assert (again.status, again.body) == (304, b"")
    assert header(again, "Cache-Control") == "no-cache"


def test_files_of_a_version_are_kept_for_ever() -> None:
    found = ask("vendor/lit-html-3.3.3/lit-html.js")
    assert found is not None
    assert header(found, "Cache-Control") == "max-age=31536000, immutable"


@pytest.mark.parametrize(
    "name",
    [
        *("none.js", "../dashboard.py", "..%2fdashboard.py", "/etc/passwd", "pages/../../paths.py"),
        *("pages", "pages/", ".", "..", "a\0.js", "vendor//x.js", "x" * 5000 + ".js", "x.py"),
    ],
)
def test_nothing_else_is_served(name: str) -> None:
    assert ask(name) is None


def test_every_file_is_served_with_the_security_headers() -> None:
    for path in filter(Path.is_file, ROOT.rglob("*")):
        found = ask(str(path.relative_to(ROOT)))
        assert found is not None, path
        assert found.content_type == TYPES[path.suffix]
        assert set(SECURITY_HEADERS) <= set(found.headers)


def test_the_policy_allows_nothing_from_elsewhere() -> None:
    policy = dict(SECURITY_HEADERS)["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy


def test_the_policy_allows_the_one_script_in_the_page() -> None:
    policy = dict(SECURITY_HEADERS)["Content-Security-Policy"]
    (script,) = re.findall(r"<script[^>]*>([^<]+)</script>", (ROOT / "index.html").read_text())
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert re.findall("'sha256-([^']+)'", policy) == [hashed]


def test_no_file_names_another_server() -> None:
    own = [each for each in ROOT.rglob("*") if each.is_file() and "vendor" not in each.parts]
    pattern = re.compile(r"(?:(?<!xmlns=\")https?:|(?<!:))//[a-z0-9.-]+\.[a-z]{2,}", re.IGNORECASE)
    for path in own:
        assert not pattern.findall(path.read_text()), path
