"""StaticFiles: pages, scripts and styles of the dashboard, read when a browser asks for them."""

import gzip
import hashlib
import re
from pathlib import Path
from typing import Final, NamedTuple

from kedge.web.message import HttpRequest, Response
from kedge.web.response_head import takes_gzip

ROOT: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""Content types by suffix; files with other suffixes are not served."""
_NAME: Final = re.compile(r"(?:[a-z0-9][a-zA-Z0-9_.-]*/)*[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_VENDOR: Final = "vendor/"
"""Below it, the names of folders have versions: their files never change."""

SECURITY_HEADERS: Final = (
    (
        "Content-Security-Policy",
        # The hash is of the one line in index.html that loads the rest, and loads it again if the
        # browser gives up: it does so when a network interface of the machine comes or goes.
        "default-src 'none'; img-src 'self'; style-src 'self';"
        " script-src 'self' 'sha256-sccUiriqtWqUVHkQOiYyv7XqlgX8RZt+g6Y49PzxjnQ=';"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'; trusted-types lit-html",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)


class StaticFile(NamedTuple):
    """A file in memory, as it is sent."""

    content: bytes
    compressed: bytes
    content_type: str
    etag: str


class StaticFiles:
    """The files below one folder. Each is read and compressed once, when it is first asked for."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._files: dict[str, StaticFile] = {}

    def answer(self, http: HttpRequest, name: str) -> Response | None:
        """Return the file with this name below the folder; None if there is none."""
        found = self._find(name or INDEX)
        if found is None:
            return None
        tag = f'"{found.etag}"'
        caching = "max-age=31536000, immutable" if name.startswith(_VENDOR) else "no-cache"
        headers = [("ETag", tag), ("Vary", "Accept-Encoding"), ("Cache-Control", caching)]
        headers += SECURITY_HEADERS
        if tag in http.headers.get("if-none-match", ""):
            return Response(304, b"", found.content_type, headers)
        if not takes_gzip(http):
            return Response(200, found.content, found.content_type, headers)
        headers.append(("Content-Encoding", "gzip"))
        return Response(200, found.compressed, found.content_type, headers)

    def _find(self, name: str) -> StaticFile | None:
        found = self._files.get(name)
        if found is None and _NAME.fullmatch(name) and ".." not in name:
            found = self._read(self._root / name)
            if found is not None:
                # Only names of files that exist are kept.
                self._files[name] = found
        return found

    def _read(self, path: Path) -> StaticFile | None:
        content_type = TYPES.get(path.suffix)
        if content_type is None:
            return None
        try:
            content = path.read_bytes()
        except OSError:
            return None
        compressed = gzip.compress(content, 6, mtime=0)
        return StaticFile(content, compressed, content_type, hashlib.sha256(content).hexdigest())
