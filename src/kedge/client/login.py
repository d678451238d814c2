"""Login: where a server is and who we are to it, as kubeconfig files say.

Of several files the first to name a thing decides, as with kubectl.
"""

import base64
import binascii
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from kedge.client.client import Client
from kedge.client.kubeconfig import KubeconfigError
from kedge.client.transport import Transport
from kedge.machinery import yaml_text

if TYPE_CHECKING:
    import ssl

UNKNOWN_WAYS: Final = {
    "user": ("exec", "auth-provider", "username", "as", "as-uid", "as-groups"),
    "cluster": ("proxy-url",),
}
"""Fields that this client does not support. Ignoring them would mean acting as another user."""


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """One context of a kubeconfig, with all that it refers to."""

    context: str
    file: Path
    """The file that has the context."""
    server: str
    namespace: str = ""
    """The namespace of the context; empty if it has none."""
    ca_pem: bytes = b""
    insecure: bool = False
    """Whether the server's certificate is not verified."""
    server_name: str = ""
    """The host name in the server's certificate, if it differs from the address."""
    token: str = ""
    certificate_pem: bytes = b""
    key_pem: bytes = b""

    def transport(self) -> Transport:
        """A way to the server; raises Unusable if the credentials are broken."""
        # Imported here because it loads asyncio, which takes longer than a request.
        from kedge.client.http import HttpTransport

        with self._explained():
            tls = self.tls() if self.server.startswith("https:") else None
            return HttpTransport(
                self.server, token=self.token, tls=tls, server_name=self.server_name
            )

    def blocking_transport(self) -> Transport:
        """A way to the server for a program without an event loop; raises Unusable."""
        from kedge.client.blocking import BlockingTransport

        with self._explained():
            tls = self.tls() if self.server.startswith("https:") else None
            return BlockingTransport(
                self.server, token=self.token, tls=tls, server_name=self.server_name
            )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise errors in the credentials as errors of the kubeconfig."""
        try:
            yield
        except (OSError, ValueError) as error:
            raise KubeconfigError(f'context "{self.context}" in {self.file}: {error}') from error

    def client(self, user_agent: str) -> Client:
        return Client(self.transport(), user_agent=user_agent)

    def tls(self) -> "ssl.SSLContext":
        """Return the TLS context; raises ssl.SSLError if authority or certificate is broken."""
        # Imported here because `--help` and completion need neither.
        import ssl

        from kedge.machinery.tls_trust import trusting

        context = trusting(self.ca_pem)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate_pem:
            import tempfile

            # Only files can be loaded; this one is private, and removed at once.
            with tempfile.NamedTemporaryFile() as file:
                file.write(self.certificate_pem + b"\n" + self.key_pem)
                file.flush()
                context.load_cert_chain(file.name)
        return context


def read(paths: Sequence[Path], context: str = "") -> Login:
    """The context of that name or, without one, the current one; raises Unusable."""
    documents = [(path, _document(path)) for path in paths if path.exists()]
    if not documents:
        raise KubeconfigError(
            f"there is no kubeconfig: {' and '.join(map(str, paths))} cannot be found"
        )
    chosen = context or _current(documents)
    if not chosen:
        raise KubeconfigError(
            f"no context is the current one in {documents[0][0]}: name one by --context"
        )
    described = _find(documents, "contexts", "context", chosen)
    if described is None:
        raise KubeconfigError(f'context "{chosen}" does not exist in {documents[0][0]}')
    cluster = _referred(documents, described, "cluster")
    user = _referred(documents, described, "user")
    return Login(
        context=chosen,
        file=described.file,
        namespace=described.text("namespace"),
        server=cluster.text("server"),
        ca_pem=cluster.content("certificate-authority"),
        insecure=cluster.values.get("insecure-skip-tls-verify") is True,
        server_name=cluster.text("tls-server-name"),
        token=user.text("token") or user.file_content("tokenFile").decode().strip(),
        certificate_pem=user.content("client-certificate"),
        key_pem=user.content("client-key"),
    )


class _Entry(NamedTuple):
    """A cluster, a user or a context, and the file it stands in."""

    values: Mapping[str, Any]
    file: Path
    called: str

    def text(self, key: str) -> str:
        value = self.values.get(key)
        return "" if value is None else str(value)

    def content(self, key: str) -> bytes:
        """Return the value of `key-data`, else the content of the file that `key` names."""
        if data := self.text(f"{key}-data"):
            try:
                return base64.b64decode(data)
            except binascii.Error as error:
                raise KubeconfigError(
                    f"{self.called} in {self.file}: {key}-data: {error}"
                ) from error
        return self.file_content(key)

    def file_content(self, key: str) -> bytes:
        name = self.text(key)
        if not name:
            return b""
        # Relative names are so to the kubeconfig, wherever the command was started.
        path = self.file.absolute().parent / name
        try:
            return path.read_bytes()
        except OSError as error:
            raise KubeconfigError(
                f"{self.called} in {self.file}: {path}: {error.strerror}"
            ) from error


_Documents = Iterable[tuple[Path, Mapping[str, Any]]]


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml_text.read(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KubeconfigError(f"cannot read {path}: {error.strerror}") from error
    except (yaml_text.YamlError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"{path} is not a kubeconfig file: {error}") from error
    if not isinstance(document, dict | None):
        raise KubeconfigError(f"{path} is not a kubeconfig file: it is not a mapping")
    return document or {}


def _current(documents: _Documents) -> str:
    named = (document.get("current-context") for _, document in documents)
    return next((str(name) for name in named if name), "")


def _find(documents: _Documents, key: str, inner: str, name: str) -> _Entry | None:
    for path, document in documents:
        items = document.get(key)
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict) and str(item.get("name")) == name:
                values = item.get(inner)
                return _Entry(values if isinstance(values, dict) else {}, path, f'{inner} "{name}"')
    return None


def _referred(documents: _Documents, context: _Entry, key: str) -> _Entry:
    """Return the cluster or the user of a context; a context without a user is anonymous."""
    name = context.text(key)
    if key == "user" and not name:
        return _Entry({}, context.file, context.called)
    found = _find(documents, f"{key}s", key, name)
    if found is None:
        raise KubeconfigError(
            f'{context.called} in {context.file} names the {key} "{name}", which does not exist'
        )
    if key == "cluster" and not found.text("server"):
        raise KubeconfigError(f"{found.called} in {found.file} does not say where its server is")
    if unknown := [way for way in UNKNOWN_WAYS[key] if found.values.get(way)]:
        raise KubeconfigError(
            f'{found.called} in {found.file} has "{unknown[0]}", which kedge cannot do: use'
            " kubectl, or a context that has a token or a client certificate"
        )
    return found
