"""Files made of API objects: what config maps, secrets, tokens and the pod itself put into them."""

import asyncio
import base64
import logging
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kedge.api.core_v1.config_map import ConfigMap
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.secret import Secret
from kedge.api.core_v1.volume.projection import (
    ConfigMapProjection,
    ConfigMapVolumeSource,
    DownwardAPIVolumeFile,
    KeyToPath,
    ProjectedVolumeSource,
    SecretProjection,
    ServiceAccountTokenProjection,
    VolumeProjection,
)
from kedge.api.core_v1.volume.volume import Volume
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.node import downward
from kedge.node.downward import Surroundings, Unresolvable
from kedge.node.parts import VolumeFailure
from kedge.node.sources import Following, Reference, Source, Sources, Token
from kedge.node.volumes.layout import File

log = logging.getLogger(__name__)
T = TypeVar("T")

MODE: Final = 0o644
MOST_BYTES: Final = 64 << 20
"""Bytes of all files of one volume. Objects are small, but items may name the same one many
times."""
MOST_DOWNWARD: Final = 4 << 20
"""Bytes of one downward API source: each item may be all annotations, up to 256 KiB, and each is
a copy."""
_AT_ONCE: Final = 64
"""Sources of one volume that are read at the same time."""
_TOKEN_MODE: Final = 0o600


class Payload(NamedTuple):
    """What a volume is to hold, or a part of it."""

    files: dict[str, File]
    tokens: Sequence[Token] = ()
    """Those among the files, which are to be renewed in time."""
    versions: Mapping[Reference, str] = {}
    """Of what the files are made of; empty for what is not there."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(len(file.content) for file in self.files.values())


def of(volume: Volume) -> bool:
    """Whether the volume's files are made of API objects."""
    kinds = (volume.configMap, volume.secret, volume.projected, volume.downwardAPI)
    return any(kind is not None for kind in kinds)


def references(pod: Pod) -> set[Reference]:
    """Everything that files of the pod's volumes are made of."""
    namespace = pod.metadata.namespace
    return {
        Reference(plural, namespace, name)
        for volume in pod.spec.volumes
        for plural, name in _references(volume)
    }


def _references(volume: Volume) -> Iterator[tuple[str, str]]:
    if volume.configMap is not None:
        yield "configmaps", volume.configMap.name
    if volume.secret is not None:
        yield "secrets", volume.secret.secretName
    for source in volume.projected.sources if volume.projected is not None else ():
        if source.configMap is not None:
            yield "configmaps", source.configMap.name
        if source.secret is not None:
            yield "secrets", source.secret.name


class Payloads:
    """Collects what volumes are to hold."""

    def __init__(self, sources: Sources, following: Following, clock: Clock) -> None:
        self._sources = sources
        self._following = following
        self._clock = clock

    async def collect(
        self, pod: Pod, volume: Volume, around: Surroundings, known: Sequence[Token]
    ) -> Payload:
        """The files of one volume, with those of its known tokens that have not grown old. Raises
        VolumeFailure where something is missing."""
        try:
            return await self._collect(pod, volume, around, known)
        except Unresolvable as error:
            raise VolumeFailure("FailedMount", str(error)) from error

    async def _collect(
        self, pod: Pod, volume: Volume, around: Surroundings, known: Sequence[Token]
    ) -> Payload:
        if volume.configMap is not None:
            return await self._config_map(
                pod, volume.configMap, _mode(volume.configMap.defaultMode)
            )
        if volume.secret is not None:
            secret = volume.secret
            projection = SecretProjection(
                name=secret.secretName, items=secret.items, optional=secret.optional
            )
            return await self._secret(pod, projection, _mode(secret.defaultMode))
        if volume.downwardAPI is not None:
            mode = _mode(volume.downwardAPI.defaultMode)
            items = volume.downwardAPI.items
            return Payload(await asyncio.to_thread(_downward, pod, items, mode, around))
        assert volume.projected is not None
        return await self._projected(pod, volume.projected, around, known)

    async def _projected(
        self,
        pod: Pod,
        volume: ProjectedVolumeSource,
        around: Surroundings,
        known: Sequence[Token],
    ) -> Payload:
        """Read several sources at once, since each may be a request to the server."""
        mode, before = _mode(volume.defaultMode), iter(known)
        files: dict[str, File] = {}
        tokens: list[Token] = []
        versions: dict[Reference, str] = {}
        size = 0
        for sources in _slices(volume.sources):
            parts = await together(
                self._projection(
                    pod,
                    source,
                    mode,
                    around,
                    next(before, None) if source.serviceAccountToken is not None else None,
                )
                for source in sources
            )
            for part in parts:
                files |= part.files
                tokens += part.tokens
                versions |= part.versions
                size += part.size
            _check_size(size)
        return Payload(files, tokens, versions)

    async def _projection(
        self,
        pod: Pod,
        source: VolumeProjection,
        mode: int,
        around: Surroundings,
        before: Token | None,
    ) -> Payload:
        if source.configMap is not None:
            return await self._config_map(pod, source.configMap, mode)
        if source.secret is not None:
            return await self._secret(pod, source.secret, mode)
        if source.downwardAPI is not None:
            items = source.downwardAPI.items
            return Payload(await asyncio.to_thread(_downward, pod, items, mode, around))
        if source.serviceAccountToken is not None:
            token = await self._token(pod, source.serviceAccountToken, before)
            file = _token_file(pod, token, mode)
            return Payload({source.serviceAccountToken.path: file}, [token])
        raise VolumeFailure(
            "FailedMount",
            "kedge has no projections but of config maps, secrets, service account tokens and"
            " fields of the pod",
        )

    async def _config_map(
        self, pod: Pod, source: ConfigMapVolumeSource | ConfigMapProjection, mode: int
    ) -> Payload:
        reference = Reference("configmaps", pod.metadata.namespace, source.name)
        found = await self._find(reference)
        if found is None:
            return _missing(reference, "configmap", optional=source.optional)
        assert isinstance(found, ConfigMap)
        what = "configmap references non-existent config key: "
        files = await asyncio.to_thread(
            lambda: _picked(_bytes(found), source.items, mode, what, optional=bool(source.optional))
        )
        return Payload(files, versions={reference: found.metadata.resourceVersion})

    async def _secret(self, pod: Pod, source: SecretProjection, mode: int) -> Payload:
        reference = Reference("secrets", pod.metadata.namespace, source.name)
        found = await self._find(reference)
        if found is None:
            return _missing(reference, "secret", optional=source.optional)
        assert isinstance(found, Secret)
        what = "references non-existent secret key: "
        files = await asyncio.to_thread(
            lambda: _picked(_raw(found), source.items, mode, what, optional=bool(source.optional))
        )
        return Payload(files, versions={reference: found.metadata.resourceVersion})

    async def _find(self, reference: Reference) -> Source | None:
        """By the watch if it has begun, else by asking."""
        known = self._following.known(reference)
        return await self._sources.find(reference) if known is None else known.object

    async def _token(
        self, pod: Pod, source: ServiceAccountTokenProjection, before: Token | None
    ) -> Token:
        now = self._clock.now()
        if before is not None and not before.is_old(now):
            return before
        try:
            return await self._sources.token(pod, source.audience, source.expirationSeconds)
        except (StatusError, OSError) as error:
            if before is not None and now < before.expires:
                # It is renewed well before its end so that a server may be away for a while.
                log.info("token not renewed pod=%s error=%r", pod.metadata.uid, str(error))
                return before
            raise VolumeFailure("FailedMount", f"failed to fetch token: {error}") from error


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All of it at once; if some fails, one VolumeFailure that tells of everything that did."""
    results = await asyncio.gather(*work, return_exceptions=True)
    failures = [each for each in results if isinstance(each, BaseException)]
    for failure in failures:
        if not isinstance(failure, VolumeFailure):
            raise failure
    if failures:
        messages = [str(each) for each in failures]
        text = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
        raise VolumeFailure("FailedMount", text)
    return [each for each in results if not isinstance(each, BaseException)]


def _missing(reference: Reference, kind: str, *, optional: bool | None) -> Payload:
    if not optional:
        raise VolumeFailure("FailedMount", f'{kind} "{reference.name}" not found')
    return Payload({}, versions={reference: ""})


def _mode(given: int | None) -> int:
    return MODE if given is None else given


def _bytes(found: ConfigMap) -> dict[str, bytes]:
    text = {key: value.encode() for key, value in found.data.items()}
    return text | {key: base64.b64decode(value) for key, value in found.binaryData.items()}


def _raw(found: Secret) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in found.data.items()}


def _picked(
    data: Mapping[str, bytes], items: Sequence[KeyToPath], mode: int, what: str, *, optional: bool
) -> dict[str, File]:
    """All keys under their own names, or those that are listed where they are listed."""
    if not items:
        return {key: File(content, mode) for key, content in data.items()}
    files = {}
    size = 0
    for item in items:
        if item.key in data:
            own = mode if item.mode is None else item.mode
            files[item.path] = File(data[item.key], own)
            size += len(data[item.key])
            _check_size(size)
        elif not optional:
            raise VolumeFailure("FailedMount", f"{what}{item.key}")
    return files


def _downward(
    pod: Pod, items: Sequence[DownwardAPIVolumeFile], mode: int, around: Surroundings
) -> dict[str, File]:
    files = {}
    size = 0
    for item in items:
        text = downward.file(pod, item, around)
        if text is not None:
            own = mode if item.mode is None else item.mode
            files[item.path] = File(text.encode(errors="surrogateescape"), own)
            size += len(text)
            _check_size(size, MOST_DOWNWARD)
    return files


def _check_size(size: int, most: int = MOST_BYTES) -> None:
    if size > most:
        raise VolumeFailure("FailedMount", f"its files are larger than {most} bytes together")


def _slices(sources: Sequence[VolumeProjection]) -> Iterator[Sequence[VolumeProjection]]:
    for start in range(0, len(sources), _AT_ONCE):
        yield sources[start : start + _AT_ONCE]


def _token_file(pod: Pod, token: Token, mode: int) -> File:
    """A token is for whoever the containers run as, if that is one user, and for no other."""
    security = pod.spec.securityContext
    owner = _only_user(pod)
    if owner >= 0 or (security is not None and security.fsGroup is not None):
        mode = _TOKEN_MODE
    return File(token.text.encode(), mode, owner)


def _only_user(pod: Pod) -> int:
    """The user that all containers run as; -1 if they do not say, or differ."""
    whole = pod.spec.securityContext
    everywhere = None if whole is None else whole.runAsUser
    users = set()
    everybody = (*pod.spec.initContainers, *pod.spec.containers, *pod.spec.ephemeralContainers)
    for container in everybody:
        own = container.securityContext
        users.add(everywhere if own is None or own.runAsUser is None else own.runAsUser)
    only = users.pop() if len(users) == 1 else None
    return -1 if only is None else only
