"""Pulls images from registries with the OCI distribution protocol over HTTPS."""

import asyncio
import contextlib
import hashlib
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import BinaryIO, Final, TypeVar
from urllib.parse import quote, urlencode, urljoin, urlsplit

import msgspec

from kedge.client.http import HttpTransport
from kedge.client.transport import Call, Stream, Unreachable
from kedge.machinery.proxies import InvalidProxy
from kedge.machinery.tls_trust import trusting
from kedge.node.images import oci, pull_failures
from kedge.node.images.archive import LayerBlob, PackedImage, check
from kedge.node.images.credentials import CredentialSource, RegistryCredential
from kedge.node.images.oci import (
    INDEXES,
    MANIFESTS,
    ContentDescriptor,
    ImageDocument,
    ImageIndex,
    ImageManifest,
    InvalidImage,
)
from kedge.node.images.pull_failures import PullFailure, PullUnauthorized, RegistryUnreachable
from kedge.node.images.reference import ImageReference
from kedge.node.images.registry_hosts import RegistryHost, RegistrySettings
from kedge.node.images.store import chain_id
from kedge.node.images.unpack import ImageLimits

_HEAD_SECONDS: Final = 30.0
_PIECE_SECONDS: Final = 60.0
_MOST_REDIRECTS: Final = 5
_AT_ONCE: Final = 3
_SHOWN: Final = 1000
"""Characters of a registry's own words in a message."""
_SHOWN_DIGEST: Final = 200
_ACCEPT: Final = ", ".join((*INDEXES, *MANIFESTS))
_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""Called with the digest of a layer, and its received and whole number of bytes."""


def _silent(digest: str, done: int, size: int) -> None:
    """Ignore the progress."""


class ImagePull(msgspec.Struct, frozen=True):
    """A pull: the image, and what the machine already has."""

    name: ImageReference
    scratch: Path
    """The directory for packed layers."""
    has_layer: Callable[[str], bool]
    """Returns whether the layer with a chain id is in the store."""
    limits: ImageLimits
    progress: Progress = _silent


class RegistryClient:
    """A client of all registries."""

    def __init__(self, settings: RegistrySettings | None = None) -> None:
        self._settings = settings or RegistrySettings()

    def repositories(self, name: ImageReference) -> list[str]:
        """Return the repositories that an image may be pulled from, as credentials name them."""
        return [each.repository for each in self._settings.hosts(name)]

    async def digest(
        self, name: ImageReference, credentials: CredentialSource
    ) -> "tuple[str, RegistryCredential | None]":
        """Return the current digest of the name, and the credential that the registry accepted."""

        async def ask(session: _RepositorySession) -> str:
            return (await session.manifest(name.digest or name.tag)).digest

        return await self._from_each(name, credentials, ask)

    async def pull(
        self, wanted: ImagePull, credentials: CredentialSource
    ) -> "tuple[PackedImage, RegistryCredential | None]":
        """Pull an image with the first credential that the registry accepts; return both."""

        async def fetch(session: _RepositorySession) -> PackedImage:
            return await _pull(session, wanted)

        return await self._from_each(wanted.name, credentials, fetch)

    async def _from_each(
        self,
        name: ImageReference,
        credentials: CredentialSource,
        deed: "Callable[[_RepositorySession], Awaitable[T]]",
    ) -> "tuple[T, RegistryCredential | None]":
        """Do it with the first host that can: a mirror, or the registry itself."""
        *mirrors, own = self._settings.hosts(name)
        failures = []
        for host in mirrors:
            try:
                return await self._from_host(host, credentials, deed)
            except (PullFailure, InvalidImage) as error:
                failures.append(f"the mirror {host} failed too: {error}")
        try:
            return await self._from_host(own, credentials, deed)
        except PullFailure as error:
            if not failures:
                raise
            raise type(error)("; ".join([str(error), *failures]), error.advice) from error

    async def _from_host(
        self,
        host: RegistryHost,
        credentials: CredentialSource,
        deed: "Callable[[_RepositorySession], Awaitable[T]]",
    ) -> "tuple[T, RegistryCredential | None]":
        *secure, last = host.urls
        for url in secure:
            # Credentials go over plain HTTP only if nothing speaks TLS there.
            with contextlib.suppress(RegistryUnreachable):
                return await self._as_each(host, url, credentials, deed)
        return await self._as_each(host, last, credentials, deed)

    async def _as_each(
        self,
        host: RegistryHost,
        url: str,
        credentials: CredentialSource,
        deed: "Callable[[_RepositorySession], Awaitable[T]]",
    ) -> "tuple[T, RegistryCredential | None]":
        refusal = PullUnauthorized("no credential was tried")
        for credential in credentials.find(host.repository) or (None,):
            session = _RepositorySession(self._settings, host, url, credential)
            try:
                return await deed(session), session.used
            except PullUnauthorized as error:
                refusal = error
            except Unreachable as error:
                failure = pull_failures.unreachable(session.asked, error)
                if session.has_answered:
                    raise PullFailure(str(failure), failure.advice) from error
                raise failure from error
            except TimeoutError as error:
                raise pull_failures.silent(
                    session.asked, has_answered=session.has_answered
                ) from error
            finally:
                await session.close()
        raise refusal


async def _pull(session: "_RepositorySession", wanted: ImagePull) -> PackedImage:
    digests, manifest = await _manifest(session, wanted.name)
    content = await session.small(manifest.config, wanted.limits.document_bytes)
    document = oci.decode(content, ImageDocument, "its configuration")
    layers = manifest.layers or ()
    diff_ids = oci.check_layers(document, len(layers))
    missing = _missing(diff_ids, layers, wanted)
    await _download(session, list(missing.values()), wanted)
    blobs = tuple(
        LayerBlob(diff_id, layer.digest, _opener(wanted.scratch, layer.digest))
        for diff_id, layer in zip(diff_ids, layers, strict=True)
    )
    return PackedImage(manifest.config.digest, document, blobs, digests=digests)


async def _manifest(
    session: "_RepositorySession", name: ImageReference
) -> tuple[tuple[str, ...], ImageManifest]:
    """Return the manifest for this machine, and the digests that led to it."""
    found = await session.manifest(name.digest or name.tag)
    digests = [found.digest]
    if found.kind in INDEXES:
        listed = oci.decode(found.content, ImageIndex, "its index").manifests or ()
        picked = oci.pick(listed, oci.this_machine())
        found = await session.manifest(picked.digest)
        digests.append(found.digest)
    if found.kind not in MANIFESTS:
        raise InvalidImage(
            f'{found.digest} is of the type "{found.kind[:_SHOWN]}", which is no image\'s'
        )
    return tuple(digests), oci.decode(found.content, ImageManifest, "its manifest")


def _missing(
    diff_ids: Sequence[str], layers: Sequence[ContentDescriptor], wanted: ImagePull
) -> dict[str, ContentDescriptor]:
    """Return the missing layers, each once."""
    missing: dict[str, ContentDescriptor] = {}
    chain = ""
    for diff_id, layer in zip(diff_ids, layers, strict=True):
        chain = chain_id(chain, diff_id)
        if layer.size > wanted.limits.layer_bytes:
            raise InvalidImage(
                f"a layer is larger than the {wanted.limits.layer_bytes} bytes allowed"
            )
        if not wanted.has_layer(chain):
            missing[layer.digest] = layer
    return missing


async def _download(
    session: "_RepositorySession", layers: Sequence[ContentDescriptor], wanted: ImagePull
) -> None:
    turns = asyncio.Semaphore(_AT_ONCE)
    for layer in layers:
        wanted.progress(layer.digest, 0, layer.size)

    async def download(layer: ContentDescriptor) -> None:
        def count(done: int) -> None:
            wanted.progress(layer.digest, done, layer.size)

        async with turns:
            with _created(_file(wanted.scratch, layer.digest)) as file:
                await session.save(layer, file, count)

    try:
        async with asyncio.TaskGroup() as group:
            for layer in layers:
                group.create_task(download(layer))
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None


def _created(path: Path) -> BinaryIO:
    # Not in a thread: a cancellation would leave the file open, and opening takes no time.
    return open(path, "wb")


def _opener(scratch: Path, digest: str) -> Callable[[], BinaryIO]:
    def open_blob() -> BinaryIO:
        try:
            return open(_file(scratch, digest), "rb")
        except FileNotFoundError:
            raise InvalidImage(
                "a layer that was here has been removed meanwhile: try again"
            ) from None

    return open_blob


def _file(scratch: Path, digest: str) -> Path:
    value = digest.partition(":")[2]
    if not value.isalnum():
        raise InvalidImage(f'"{digest[:_SHOWN_DIGEST]}" is not a digest')
    return scratch / value


class _FetchedManifest(msgspec.Struct, frozen=True):
    """A manifest or an index."""

    digest: str
    kind: str
    content: bytes


class _RepositorySession:
    """A session with one repository of one registry, with one credential."""

    def __init__(
        self,
        settings: RegistrySettings,
        host: RegistryHost,
        url: str,
        credential: RegistryCredential | None,
    ) -> None:
        self._settings = settings
        self._host = host
        self._url = url
        self._credential = credential
        self._authorization = ""
        self._transports: dict[str, HttpTransport] = {}
        self.asked = urlsplit(url).netloc
        """The host that was asked last."""
        self.has_answered = False

    @property
    def used(self) -> RegistryCredential | None:
        """The credential that the registry requested; None for a public image."""
        return self._credential if self._authorization else None

    async def close(self) -> None:
        for transport in self._transports.values():
            await transport.close()

    async def manifest(self, reference: str) -> _FetchedManifest:
        path = f"/v2/{self._host.path}/manifests/{reference}"
        async with self._get(path, {"accept": _ACCEPT}) as stream:
            content = await _whole(stream, ImageLimits().document_bytes)
            kind = stream.headers.get("content-type", "").partition(";")[0].strip()
        if ":" in reference:
            check(content, reference)
            return _FetchedManifest(reference, kind, content)
        return _FetchedManifest(f"sha256:{hashlib.sha256(content).hexdigest()}", kind, content)

    async def small(self, described: ContentDescriptor, limit: int) -> bytes:
        """Return a small blob, such as a configuration."""
        async with self._get(self._blob(described.digest)) as stream:
            content = await _whole(stream, limit)
        check(content, described.digest)
        return content

    async def save(
        self, described: ContentDescriptor, file: BinaryIO, count: Callable[[int], None]
    ) -> None:
        """Write a blob to a file; unpacking verifies its digest."""
        size = 0
        async with self._get(self._blob(described.digest)) as stream:
            async for piece in _pieces(stream):
                size += len(piece)
                if size > described.size:
                    raise InvalidImage(f"{described.digest} is larger than its manifest says")
                file.write(piece)
                count(size)
        if size != described.size:
            raise PullFailure(f"{described.digest} ended after {size} of {described.size} bytes")

    def _blob(self, digest: str) -> str:
        return f"/v2/{self._host.path}/blobs/{digest}"

    @asynccontextmanager
    async def _get(self, path: str, headers: dict[str, str] | None = None) -> AsyncIterator[Stream]:
        """Send a request; authenticate and follow redirects as the registry demands."""
        # containerd tells mirrors of several registries the same way which one is meant.
        namespace = self._host.namespace
        url = self._url + path + (f"?ns={quote(namespace)}" if namespace else "")
        asked_for_permission = False
        async with AsyncExitStack() as stack:
            for _ in range(_MOST_REDIRECTS):
                stream = await self._open(stack, url, headers or {})
                if stream.status in (301, 302, 303, 307, 308):
                    url = self._checked(url, stream.headers.get("location", ""))
                    continue
                if stream.status == 401 and _origin(url) != self._url:
                    # The challenge could name any server as the one to send credentials to.
                    raise PullFailure(
                        f"the registry redirects to {self.asked[:_SHOWN]}, which denies access"
                        " (401)"
                    )
                if stream.status == 401 and not asked_for_permission:
                    asked_for_permission = True
                    await self._ask_for_permission(stream.headers.get("www-authenticate", ""))
                    continue
                if stream.status != 200:
                    raise await _failure(stream, path)
                yield stream
                return
        raise PullFailure("too many redirects")

    async def _open(
        self, stack: AsyncExitStack, url: str, headers: dict[str, str], body: bytes = b""
    ) -> Stream:
        parts = urlsplit(url)
        origin = _origin(url)
        sent = {"user-agent": "kedge", **headers}
        # The target of a redirect must not receive the credentials.
        if self._authorization and origin == self._url:
            sent["authorization"] = self._authorization
        call = Call("POST" if body else "GET", parts.path or "/", parts.query, sent, body)
        self.asked = parts.netloc.rpartition("@")[2]
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                found = await stack.enter_async_context(self._transport(origin).stream(call))
        except InvalidProxy as error:
            raise PullFailure(str(error), "then run 'kedge up --restart'") from error
        except ValueError as error:
            # An address of a redirect or a token that no request can have.
            raise PullFailure(f"{self._url} led to a request that cannot be sent") from error
        self.has_answered = True
        return found

    def _transport(self, origin: str) -> HttpTransport:
        if origin not in self._transports:
            self._transports[origin] = HttpTransport(
                origin, tls=self._tls(origin), proxy=self._settings.proxies.find(origin)
            )
        return self._transports[origin]

    def _tls(self, origin: str) -> ssl.SSLContext | None:
        if not origin.startswith("https:"):
            return None
        is_own = origin == self._url
        host = urlsplit(origin).netloc
        file = self._host.authority if is_own else self._settings.authority(host)
        try:
            context = trusting(file.read_bytes() if file else b"")
        except (OSError, ValueError) as error:
            raise PullFailure(f"the authority in {file} cannot be read: {error}") from error
        # A registry that is verified cannot lead to one that is not.
        is_verified = self._host.is_verified or (not is_own and host not in self._settings.insecure)
        if not is_verified and file is None:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    async def _ask_for_permission(self, challenge: str) -> None:
        """Authenticate by the registry's challenge."""
        scheme = challenge.partition(" ")[0].lower()
        if scheme == "basic" and self._credential:
            self._authorization = self._credential.basic
        elif scheme == "bearer":
            self._authorization = f"Bearer {await self._token(challenge)}"
        elif scheme == "basic":
            raise PullUnauthorized("the registry requires authentication: add a pull secret")
        else:
            raise PullFailure(
                f'the registry requires authentication by "{scheme[:_SHOWN]}": not supported'
            )

    def _checked(self, base: str, target: str) -> str:
        """Return the URL of a redirect. Refuse plain HTTP, except to the registry itself.

        Services that listen on loopback without TLS often trust every client. Any registry could
        otherwise make this node send them requests. Over
        HTTPS such a service would need a certificate that this machine trusts.
        """
        try:
            url = urljoin(base, target)
            origin = _origin(url)
        except ValueError as error:
            raise PullFailure("the registry redirects to an invalid address") from error
        if origin.startswith("https:") or origin == self._url:
            return url
        raise PullFailure(f'the registry redirects to "{url[:_SHOWN]}", which is not HTTPS')

    async def _token(self, challenge: str) -> str:
        said = dict(_PARAMETER.findall(challenge))
        realm = self._checked("", said.get("realm", ""))
        scope = said.get("scope") or f"repository:{self._host.path}:pull"
        query = {"service": said.get("service", ""), "scope": scope}
        async with AsyncExitStack() as stack:
            if self._credential and self._credential.identity_token:
                stream = await self._exchange(stack, realm, query, self._credential.identity_token)
            else:
                url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}"
                sent = {"authorization": self._credential.basic} if self._credential else {}
                stream = await self._open(stack, url, sent)
            if stream.status != 200:
                raise await _failure(stream, "its token")
            content = await _whole(stream, ImageLimits().document_bytes)
        grant = oci.decode(content, _TokenResponse, "the registry's token")
        if not (token := grant.token or grant.access_token):
            raise PullFailure("the registry returned no token")
        return token

    async def _exchange(
        self, stack: AsyncExitStack, realm: str, query: Mapping[str, str], identity: str
    ) -> Stream:
        """Ask for a token with the refresh token that `docker login` keeps of some registries."""
        form = {"grant_type": "refresh_token", "client_id": "kedge", "refresh_token": identity}
        sent = {"content-type": "application/x-www-form-urlencoded"}
        return await self._open(stack, realm, sent, urlencode({**form, **query}).encode())


def _origin(url: str) -> str:
    """Return scheme, host and port of a URL. Raises ValueError."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


class _TokenResponse(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""


class _RegistryError(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


class _RegistryErrors(msgspec.Struct, frozen=True):
    errors: list[_RegistryError] = []


async def _failure(stream: Stream, what: str) -> PullFailure:
    """Return the error of a response without success, with the registry's message if it has one."""
    words = ""
    try:
        content = await _whole(stream, 1 << 16)
        said = msgspec.json.decode(content, type=_RegistryErrors).errors
        words = "; ".join(each.message or each.code for each in said)[:_SHOWN]
    except (msgspec.MsgspecError, InvalidImage):
        pass
    return pull_failures.of_status(stream.status, what, words)


async def _whole(stream: Stream, limit: int) -> bytes:
    content = bytearray()
    async for piece in _pieces(stream):
        content += piece
        if len(content) > limit:
            raise InvalidImage(f"a document is larger than the {limit} bytes that are allowed")
    return bytes(content)


async def _pieces(stream: Stream) -> AsyncIterator[bytes]:
    while True:
        async with asyncio.timeout(_PIECE_SECONDS):
            try:
                piece = await anext(stream.pieces)
            except StopAsyncIteration:
                return
        yield piece
