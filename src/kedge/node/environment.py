"""The variables of one container, from every source."""

import asyncio
import base64
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kedge.api.core_v1.pod.container import Container, EnvFromSource, EnvVar, EnvVarSource
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.references import FileKeySelector
from kedge.api.core_v1.secret import Secret
from kedge.api.core_v1.service_types import Service
from kedge.machinery.errors import StatusError
from kedge.node import downward, env_files
from kedge.node.downward import Surroundings, Unresolvable
from kedge.node.expansion import MOST, expand
from kedge.node.parts import ConfigFailure, Environ, ThisNode
from kedge.node.sources import Sources

API_SERVER: Final = ("default", "kubernetes")


class Variables:
    """Works out the variables of containers. Fulfils parts.Environment."""

    def __init__(self, sources: Sources, this: ThisNode, files: env_files.Find) -> None:
        self._sources = sources
        self._this = this
        self._files = files

    async def environment(self, pod: Pod, container: Container, pod_ips: Sequence[str]) -> Environ:
        found = Found(self._sources, pod, container, self._around(pod_ips), self._files)
        try:
            services = service_variables(pod, await self._sources.services())
            for source in container.envFrom:
                await found.add_all(source)
            for variable in container.env:
                await found.add(variable, services)
        except Unresolvable as error:
            raise ConfigFailure(str(error)) from error
        except StatusError as error:
            raise ConfigFailure(error.message) from error
        unset = {name: text for name, text in services.items() if name not in found.values}
        return Environ(found.values, unset)

    def _around(self, pod_ips: Sequence[str]) -> Surroundings:
        return downward.surroundings(self._this.node, self._this.exposed, pod_ips)


class Found:
    """The variables of one container so far."""

    def __init__(
        self,
        sources: Sources,
        pod: Pod,
        container: Container,
        around: Surroundings,
        files: env_files.Find,
    ) -> None:
        self.values: dict[str, str] = {}
        self._sources = sources
        self._pod = pod
        self._container = container
        self._around = around
        self._files = files
        self._config_maps: dict[str, Mapping[str, str] | None] = {}
        self._secrets: dict[str, Mapping[str, str] | None] = {}
        self._texts: dict[tuple[str, str], Mapping[str, str] | None] = {}
        """The variables of files, by volume and path."""
        self._size = 0

    async def add_all(self, source: EnvFromSource) -> Iterable[str]:
        """Everything that a config map or a secret holds; returns the names."""
        namespace = self._pod.metadata.namespace
        data: Mapping[str, str] | None = {}
        if (config := source.configMapRef) is not None:
            data = await self._config_map(namespace, config.name)
            missing, optional = f'configmap "{config.name}" not found', config.optional
        elif (secret := source.secretRef) is not None:
            data = await self._secret(namespace, secret.name)
            missing, optional = f'secret "{secret.name}" not found', secret.optional
        if data is None and not optional:
            raise ConfigFailure(missing)
        added = {f"{source.prefix}{key}": text for key, text in sorted((data or {}).items())}
        for name, text in added.items():
            self._set(name, text)
        return added

    async def add(self, variable: EnvVar, services: dict[str, str]) -> bool:
        """One more; whether it has a value, for what is optional may be missing."""
        if variable.valueFrom is None:
            known = ChainMap(self.values, services)
            self._set(variable.name, expand(variable.value, known))
            return True
        value = await self._from(variable.valueFrom)
        if value is None:
            return False
        self._set(variable.name, value)
        return True

    def _set(self, name: str, value: str) -> None:
        """Raises ConfigFailure if the variables exceed the kernel's limit."""
        self.values[name] = value
        self._size += len(name) + len(value)
        if self._size > MOST:
            raise ConfigFailure(f"environment variables are longer than {MOST} bytes together")

    async def _from(self, source: EnvVarSource) -> str | None:
        pod = self._pod
        told = downward.variable(pod, self._container, source, self._around)
        if told is not None:
            return told
        if source.configMapKeyRef is not None:
            return await self._of_config_map(source)
        if source.secretKeyRef is not None:
            return await self._of_secret(source)
        if source.fileKeyRef is not None:
            return await self._of_file(source.fileKeyRef)
        return None

    async def _config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """Read once for all variables that use it."""
        if name not in self._config_maps:
            found = await self._sources.config_map(namespace, name)
            self._config_maps[name] = None if found is None else found.data
        return self._config_maps[name]

    async def _secret(self, namespace: str, name: str) -> Mapping[str, str] | None:
        if name not in self._secrets:
            found = await self._sources.secret(namespace, name)
            self._secrets[name] = None if found is None else decoded(found)
        return self._secrets[name]

    async def _of_file(self, reference: FileKeySelector) -> str | None:
        key = reference.volumeName, reference.path
        if key not in self._texts:
            # An init container wrote it: small, but reading blocks on the disk.
            place = self._files(self._pod, reference.volumeName)
            self._texts[key] = await asyncio.to_thread(env_files.variables, reference, place)
        return env_files.pick(reference, self._texts[key])

    async def _of_config_map(self, source: EnvVarSource) -> str | None:
        reference = source.configMapKeyRef
        assert reference is not None
        namespace = self._pod.metadata.namespace
        data = await self._config_map(namespace, reference.name)
        what = ("configmap", "ConfigMap", namespace, reference.name)
        return _picked(data, reference.key, what, optional=bool(reference.optional))

    async def _of_secret(self, source: EnvVarSource) -> str | None:
        reference = source.secretKeyRef
        assert reference is not None
        namespace = self._pod.metadata.namespace
        data = await self._secret(namespace, reference.name)
        what = ("secret", "Secret", namespace, reference.name)
        return _picked(data, reference.key, what, optional=bool(reference.optional))


def _picked(
    data: Mapping[str, str] | None, key: str, what: tuple[str, str, str, str], *, optional: bool
) -> str | None:
    plural, kind, namespace, name = what
    if data is not None and key in data:
        return data[key]
    if optional:
        return None
    if data is None:
        raise ConfigFailure(f'{plural} "{name}" not found')
    raise ConfigFailure(f"couldn't find key {key} in {kind} {namespace}/{name}")


def decoded(secret: Secret) -> dict[str, str]:
    """What a secret holds, as text; bytes that are none are passed through as they are."""
    return {
        key: base64.b64decode(value).decode(errors="surrogateescape")
        for key, value in secret.data.items()
    }


def service_variables(pod: Pod, services: Iterable[Service]) -> dict[str, str]:
    """Where services are, told the old way; the API server's is always among them."""
    wanted = pod.spec.enableServiceLinks is not False
    found: dict[str, str] = {}
    elsewhere: dict[str, str] = {}
    for service in services:
        place = (service.metadata.namespace, service.metadata.name)
        near = wanted and service.metadata.namespace == pod.metadata.namespace
        if (near or place == API_SERVER) and service.spec.clusterIP not in ("", "None"):
            # A service of the pod's own namespace beats the API server's of the same name.
            (elsewhere if place == API_SERVER else found).update(_of(service))
    return dict(sorted((elsewhere | found).items()))


def _of(service: Service) -> dict[str, str]:
    name = _shouted(service.metadata.name)
    host, ports = service.spec.clusterIP, service.spec.ports
    shown = f"[{host}]" if ":" in host else host
    found = {f"{name}_SERVICE_HOST": host}
    for i, port in enumerate(ports):
        protocol = port.protocol or "TCP"
        url = f"{protocol.lower()}://{shown}:{port.port}"
        if i == 0:
            found[f"{name}_SERVICE_PORT"] = str(port.port)
            found[f"{name}_PORT"] = url
        if port.name:
            found[f"{name}_SERVICE_PORT_{_shouted(port.name)}"] = str(port.port)
        prefix = f"{name}_PORT_{port.port}_{protocol}"
        found[prefix] = url
        found[f"{prefix}_PROTO"] = protocol.lower()
        found[f"{prefix}_PORT"] = str(port.port)
        found[f"{prefix}_ADDR"] = host
    return found


def _shouted(name: str) -> str:
    return name.upper().replace("-", "_")
