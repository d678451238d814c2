"""The environment variables of a container, from all sources."""

import asyncio
import base64
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from kedge.api.core_v1.pod.container import Container, EnvFromSource, EnvVar, EnvVarSource
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.references import FileKeySelector
from kedge.api.core_v1.secret import Secret
from kedge.api.core_v1.service_types import Service
from kedge.machinery.errors import StatusError
from kedge.node.pod.dependencies import ConfigFailure, ContainerEnvironment, ThisNode
from kedge.node.pod.environment import downward, env_files
from kedge.node.pod.environment.downward import DownwardContext, UnresolvableField
from kedge.node.pod.environment.expansion import TOTAL_BYTES, expand
from kedge.node.pod.referenced_objects import ReferencedObjects

API_SERVER: Final = ("default", "kubernetes")


class EnvironmentVariables:
    """Resolves the environment variables of containers. Fulfils
    dependencies.EnvironmentResolver."""

    def __init__(
        self,
        sources: ReferencedObjects,
        this: ThisNode,
        files: env_files.Find,
        service_address: Callable[[str], str] = str,
        resolver_variables: Callable[[Pod], Mapping[str, str]] = lambda _: {},
    ) -> None:
        """`service_address` returns the address at which pods find a cluster IP,
        `resolver_variables` the variables that replace a resolv.conf of the pod's own."""
        self._service_address = service_address
        self._resolver_variables = resolver_variables
        self._sources = sources
        self._this = this
        self._files = files

    async def environment(
        self, pod: Pod, container: Container, pod_ips: Sequence[str]
    ) -> ContainerEnvironment:
        found = EnvironmentBuilder(
            self._sources, pod, container, self._context(pod_ips), self._files
        )
        try:
            services = service_variables(pod, await self._sources.services(), self._service_address)
            services |= self._resolver_variables(pod)
            for source in container.envFrom:
                await found.add_all(source)
            for variable in container.env:
                await found.add(variable, services)
        except UnresolvableField as error:
            raise ConfigFailure(str(error)) from error
        except StatusError as error:
            raise ConfigFailure(error.message) from error
        unset = {name: text for name, text in services.items() if name not in found.values}
        return ContainerEnvironment(found.values, unset)

    def _context(self, pod_ips: Sequence[str]) -> DownwardContext:
        return downward.downward_context(self._this.node, self._this.exposed, pod_ips)


class EnvironmentBuilder:
    """Collects the environment variables of one container."""

    def __init__(
        self,
        sources: ReferencedObjects,
        pod: Pod,
        container: Container,
        context: DownwardContext,
        files: env_files.Find,
    ) -> None:
        self.values: dict[str, str] = {}
        self._sources = sources
        self._pod = pod
        self._container = container
        self._context = context
        self._files = files
        self._config_maps: dict[str, Mapping[str, str] | None] = {}
        self._secrets: dict[str, Mapping[str, str] | None] = {}
        self._texts: dict[tuple[str, str], Mapping[str, str] | None] = {}
        """The variables of files, by volume and path."""
        self._size = 0

    async def add_all(self, source: EnvFromSource) -> Iterable[str]:
        """Add all keys of a config map or a secret; return the names of the variables."""
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
        """Add a variable; return whether it has a value, since an optional source may be
        missing."""
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
        """Set a variable. Raises ConfigFailure if the variables exceed the kernel's limit."""
        self.values[name] = value
        self._size += len(name) + len(value)
        if self._size > TOTAL_BYTES:
            raise ConfigFailure(
                f"environment variables are longer than {TOTAL_BYTES} bytes together"
            )

    async def _from(self, source: EnvVarSource) -> str | None:
        pod = self._pod
        value = downward.variable(pod, self._container, source, self._context)
        if value is not None:
            return value
        if source.configMapKeyRef is not None:
            return await self._of_config_map(source)
        if source.secretKeyRef is not None:
            return await self._of_secret(source)
        if source.fileKeyRef is not None:
            return await self._of_file(source.fileKeyRef)
        return None

    async def _config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """Return the data of a config map, read once for all variables."""
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
            # The file is small, but reading it blocks on the disk.
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
    """Return the data of a secret as text; bytes that are not UTF-8 are preserved."""
    return {
        key: base64.b64decode(value).decode(errors="surrogateescape")
        for key, value in secret.data.items()
    }


def service_variables(
    pod: Pod, services: Iterable[Service], address: Callable[[str], str] = str
) -> dict[str, str]:
    """Return the variables with the addresses of services; that of the API server is always
    included."""
    links = pod.spec.enableServiceLinks is not False
    found: dict[str, str] = {}
    elsewhere: dict[str, str] = {}
    for service in services:
        place = (service.metadata.namespace, service.metadata.name)
        near = links and service.metadata.namespace == pod.metadata.namespace
        if (near or place == API_SERVER) and service.spec.clusterIP not in ("", "None"):
            # A service of the pod's own namespace overrides the API server's of the same name.
            (elsewhere if place == API_SERVER else found).update(
                _variables_of(service, address(service.spec.clusterIP))
            )
    return dict(sorted((elsewhere | found).items()))


def _variables_of(service: Service, host: str) -> dict[str, str]:
    name = _variable_name(service.metadata.name)
    ports = service.spec.ports
    shown = f"[{host}]" if ":" in host else host
    found = {f"{name}_SERVICE_HOST": host}
    for i, port in enumerate(ports):
        protocol = port.protocol or "TCP"
        url = f"{protocol.lower()}://{shown}:{port.port}"
        if i == 0:
            found[f"{name}_SERVICE_PORT"] = str(port.port)
            found[f"{name}_PORT"] = url
        if port.name:
            found[f"{name}_SERVICE_PORT_{_variable_name(port.name)}"] = str(port.port)
        prefix = f"{name}_PORT_{port.port}_{protocol}"
        found[prefix] = url
        found[f"{prefix}_PROTO"] = protocol.lower()
        found[f"{prefix}_PORT"] = str(port.port)
        found[f"{prefix}_ADDR"] = host
    return found


def _variable_name(name: str) -> str:
    return name.upper().replace("-", "_")
