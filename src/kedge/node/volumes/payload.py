"""Files made of API objects: what config maps, secrets, tokens and the pod itself put into them."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kedge.api.core_v1.config_map import ConfigMap
from kedge.api.core_v1.pod import Pod
from kedge.api.core_v1.projection import (
    ConfigMapProjection,
    ConfigMapVolumeSource,
    DownwardAPIVolumeFile,
    KeyToPath,
    SecretProjection,
    ServiceAccountTokenProjection,
)
from kedge.api.core_v1.secret import Secret
from kedge.api.core_v1.volume import Volume
from kedge.machinery.clock import Clock
from kedge.node import downward
from kedge.node.downward import Surroundings, Unresolvable
from kedge.node.parts import VolumeFailure
from kedge.node.sources import Sources, Token
from kedge.node.volumes.layout import File

MODE: Final = 0o644
Reference = tuple[str, str, str]
"""Plural, namespace and name of something that files are made of."""


class Payload(NamedTuple):
    """What a volume is to hold."""

    files: dict[str, File]
    tokens: list[Token]
    """Those among the files, which are to be renewed in time."""


def of(volume: Volume) -> bool:
    """Whether the volume's files are made of API objects."""
    kinds = (volume.configMap, volume.secret, volume.projected, volume.downwardAPI)
    return any(kind is not None for kind in kinds)


def references(pod: Pod) -> set[Reference]:
    """Everything that files of the pod's volumes are made of."""
    namespace = pod.metadata.namespace
    return {
        (plural, namespace, name)
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

    def __init__(self, sources: Sources, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock

    async def collect(
        self, pod: Pod, volume: Volume, around: Surroundings, known: Sequence[Token]
    ) -> Payload:
        """The files of one volume, with those of its known tokens that have not grown old; raises
        VolumeFailure where something is missing."""
        try:
            return await self._collect(pod, volume, around, list(known))
        except Unresolvable as error:
            raise VolumeFailure("FailedMount", f'volume "{volume.name}": {error}') from error

    async def _collect(
        self, pod: Pod, volume: Volume, around: Surroundings, known: list[Token]
    ) -> Payload:
        if volume.configMap is not None:
            mode = _mode(volume.configMap.defaultMode)
            return Payload(await self._config_map(pod, volume.configMap, mode), [])
        if volume.secret is not None:
            mode = _mode(volume.secret.defaultMode)
            secret = volume.secret
            projection = SecretProjection(
                name=secret.secretName, items=secret.items, optional=secret.optional
            )
            return Payload(await self._secret(pod, projection, mode), [])
        if volume.downwardAPI is not None:
            mode = _mode(volume.downwardAPI.defaultMode)
            return Payload(_downward(pod, volume.downwardAPI.items, mode, around), [])
        return await self._projected(pod, volume, around, known)

    async def _projected(
        self, pod: Pod, volume: Volume, around: Surroundings, known: list[Token]
    ) -> Payload:
        assert volume.projected is not None
        mode = _mode(volume.projected.defaultMode)
        files: dict[str, File] = {}
        tokens: list[Token] = []
        for source in volume.projected.sources:
            if source.configMap is not None:
                files |= await self._config_map(pod, source.configMap, mode)
            elif source.secret is not None:
                files |= await self._secret(pod, source.secret, mode)
            elif source.downwardAPI is not None:
                files |= _downward(pod, source.downwardAPI.items, mode, around)
            elif source.serviceAccountToken is not None:
                before = known.pop(0) if known else None
                token = await self._token(pod, source.serviceAccountToken, before)
                files[source.serviceAccountToken.path] = _token_file(pod, token, mode)
                tokens.append(token)
            else:
                raise VolumeFailure(
                    "FailedMount",
                    f'volume "{volume.name}": kedge has no projections but of config maps,'
                    " secrets, tokens and the pod itself",
                )
        return Payload(files, tokens)

    async def _config_map(
        self, pod: Pod, source: ConfigMapVolumeSource | ConfigMapProjection, mode: int
    ) -> dict[str, File]:
        namespace = pod.metadata.namespace
        found = await self._sources.config_map(namespace, source.name)
        if found is None:
            if source.optional:
                return {}
            raise VolumeFailure("FailedMount", f'configmap "{source.name}" not found')
        what = "configmap references non-existent config key: "
        return _picked(_bytes(found), source.items, mode, what, optional=bool(source.optional))

    async def _secret(self, pod: Pod, source: SecretProjection, mode: int) -> dict[str, File]:
        namespace = pod.metadata.namespace
        found = await self._sources.secret(namespace, source.name)
        if found is None:
            if source.optional:
                return {}
            raise VolumeFailure("FailedMount", f'secret "{source.name}" not found')
        what = "references non-existent secret key: "
        return _picked(_raw(found), source.items, mode, what, optional=bool(source.optional))

    async def _token(
        self, pod: Pod, source: ServiceAccountTokenProjection, before: Token | None
    ) -> Token:
        if before is not None and not before.is_old(self._clock.now()):
            return before
        return await self._sources.token(pod, source.audience, source.expirationSeconds)


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
    for item in items:
        if item.key in data:
            own = mode if item.mode is None else item.mode
            files[item.path] = File(data[item.key], own)
        elif not optional:
            raise VolumeFailure("FailedMount", f"{what}{item.key}")
    return files


def _downward(
    pod: Pod, items: Sequence[DownwardAPIVolumeFile], mode: int, around: Surroundings
) -> dict[str, File]:
    files = {}
    for item in items:
        if item.fieldRef is not None:
            text = downward.field(pod, item.fieldRef.fieldPath, around)
        elif item.resourceFieldRef is not None:
            text = downward.resource_of_file(pod, item.resourceFieldRef, around)
        else:
            continue
        own = mode if item.mode is None else item.mode
        files[item.path] = File(text.encode(errors="surrogateescape"), own)
    return files


def _token_file(pod: Pod, token: Token, mode: int) -> File:
    """A token is for whoever the containers run as, if that is one user, and for no other."""
    security = pod.spec.securityContext
    owner = _only_user(pod)
    if owner >= 0 or (security is not None and security.fsGroup is not None):
        mode = 0o600
    return File(token.text.encode(), mode, owner)


def _only_user(pod: Pod) -> int:
    """The user that all containers run as; -1 if they do not say, or differ."""
    whole = pod.spec.securityContext
    everywhere = None if whole is None else whole.runAsUser
    users = set()
    for container in (*pod.spec.initContainers, *pod.spec.containers):
        own = container.securityContext
        users.add(everywhere if own is None or own.runAsUser is None else own.runAsUser)
    only = users.pop() if len(users) == 1 else None
    return -1 if only is None else only
