"""Ask the server for a sign-in code, and lead a browser to the dashboard with it."""

import hashlib
import socket
import ssl
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.open import show
from kedge.client.login import Login
from kedge.machinery.errors import StatusError

CODES: Final = "/ui/codes"
_PATIENCE_SECONDS: Final = 10.0
_FILE: Final = "kedge-ui.html"


class SignInCode(msgspec.Struct):
    """The server's answer."""

    code: str


async def open_page(connection: ApiSession, environment: Mapping[str, str] | None) -> int:
    """Print the address of the dashboard; open it if there is an environment with a desktop."""
    login = connection.login
    if not login.server.startswith("https:"):
        raise Failure(f"{login.server} is no TLS server: browsers keep no sign-in there")
    namespace = connection.given_namespace or login.namespace
    url = address(login.server, await code(connection), namespace)
    print(url)
    if login.ca_pem:
        print(f"Certificate SHA-256 {fingerprint(login)}", flush=True)
    if environment is not None:
        show(through_file(url, environment), environment)
    return 0


async def print_authority(connection: ApiSession) -> int:
    """Print the certificate of the authority that the kubeconfig trusts."""
    if not connection.login.ca_pem:
        raise Failure("the kubeconfig names no authority: the system's authorities are trusted")
    print(connection.login.ca_pem.decode().strip())
    return 0


async def code(connection: ApiSession) -> str:
    """Return a code for one sign-in as the user of the kubeconfig."""
    try:
        reply = await connection.client.send("POST", CODES)
    except StatusError as error:
        if error.code in (404, 405):
            raise Failure(f"{connection.login.server} has no dashboard") from error
        raise
    try:
        return msgspec.json.decode(reply.body, type=SignInCode).code
    except msgspec.MsgspecError as error:
        raise Failure(f"{connection.login.server} has no dashboard: {error}") from error


def address(server: str, code: str, namespace: str) -> str:
    """Return the address of the dashboard. The code is in the fragment, which a browser does not
    send to the server, so that it appears in no log."""
    place = f"&namespace={quote(namespace, safe='')}" if namespace else ""
    return f"{server.rstrip('/')}/ui/#code={code}{place}"


def fingerprint(login: Login) -> str:
    """Return the fingerprint of the server's certificate, as browsers show it."""
    parts = urlsplit(login.server)
    host, port = parts.hostname or "", parts.port or 443
    try:
        with socket.create_connection((host, port), _PATIENCE_SECONDS) as plain:
            name = login.server_name or host
            with login.tls().wrap_socket(plain, server_hostname=name) as secure:
                certificate = secure.getpeercert(binary_form=True)
    except (OSError, ssl.SSLError) as error:
        raise Failure(f"the certificate of {login.server} cannot be read: {error}") from error
    assert certificate is not None
    return hashlib.sha256(certificate).digest().hex(":").upper()


def through_file(url: str, environment: Mapping[str, str]) -> str:
    """Return the address of a private file that leads to the URL. On the command line of a browser
    every user of this machine could read the code, and be faster than the browser."""
    folder = environment.get("XDG_RUNTIME_DIR") or environment.get("HOME")
    if not folder:
        return url
    path = Path(folder) / (_FILE if environment.get("XDG_RUNTIME_DIR") else f".{_FILE}")
    target = escape(url, quote=True)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0;url={target}">'
        f'<a href="{target}">kedge</a>\n'
    )
    return path.as_uri()
