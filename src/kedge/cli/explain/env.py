"""`kedge explain env`: shows the variables of a container and where they come from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kedge.api.core_v1 import node, service
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod import pod
from kedge.api.core_v1.pod.container import Container, EnvFromSource, EnvVar
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.service_types import Service
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.output import printers
from kedge.machinery.clock import SystemClock
from kedge.machinery.errors import StatusError
from kedge.node.pod.dependencies import ConfigFailure
from kedge.node.pod.environment import downward
from kedge.node.pod.environment.environment import EnvironmentBuilder, service_variables
from kedge.node.pod.referenced_objects import ReferencedObjects

HEAD: Final = ("NAME", "VALUE", "FROM")
SECRET: Final = "<secret>"
IN_A_FILE: Final = "<in a file>"


class EnvExplanation(NamedTuple):
    """The variables of one container."""

    rows: Sequence[tuple[str, str, str]]
    failures: Sequence[str]
    """Why the container could not start."""


async def explain(connection: ApiSession, name: str, container: str) -> int:
    """Explain the variables of a pod's container; 1 if it could not start."""
    client, namespace = connection.client, connection.namespace
    subject = await client.get(pod.RESOURCE, name.removeprefix("pod/"), namespace)
    own = _container(subject, container)
    here = subject.spec.nodeName
    placed = await client.get(node.RESOURCE, here) if here else Node()
    services = (await client.list(service.RESOURCE, "")).items
    found = await explained(
        ReferencedObjects(client, SystemClock()), subject, own, placed, services
    )
    print(f'Pod "{name}", namespace {namespace}, container {own.name}\n')
    print(printers.table([HEAD, *found.rows]) if found.rows else "It has no variables.")
    print("\nThe image and its devices may bring more.", flush=True)
    for failure in found.failures:
        print(f"It could not start: {failure}", flush=True)
    return 1 if found.failures else 0


def _container(subject: Pod, name: str) -> Container:
    spec = subject.spec
    everybody = (*spec.containers, *spec.initContainers, *spec.ephemeralContainers)
    for each in everybody:
        if name in ("", each.name):
            return each
    names = ", ".join(each.name for each in everybody)
    raise Failure(f'pod "{subject.metadata.name}" has no container "{name}"; it has {names}')


async def explained(
    sources: ReferencedObjects,
    subject: Pod,
    own: Container,
    placed: Node,
    services: Sequence[Service],
) -> EnvExplanation:
    """Return the container's variables and their origins, on the node where the pod is placed."""
    addresses = [each.ip for each in subject.status.podIPs]
    # Only the node knows which labels it exposes; the caller may read all of them anyway.
    around = downward.downward_context(placed, ["*"], addresses)
    found = EnvironmentBuilder(sources, subject, own, around, _nowhere)
    links = service_variables(subject, services)
    origins: dict[str, str] = {}
    failures: list[str] = []
    for source in own.envFrom:
        try:
            names = await found.add_all(source)
            origins |= {each: _of_all(source, each) for each in names}
            if source.secretRef is not None:
                found.values |= dict.fromkeys(names, SECRET)
        except (ConfigFailure, StatusError) as error:
            failures.append(_words(error))
    for variable in own.env:
        try:
            if await _add(found, variable, links):
                origins[variable.name] = origin(variable)
        except (ConfigFailure, StatusError, downward.UnresolvableField) as error:
            failures.append(f"{variable.name}: {_words(error)}")
    rows = [(each, text, origins[each]) for each, text in found.values.items()]
    rows += [(each, text, "services") for each, text in links.items() if each not in found.values]
    return EnvExplanation(
        [(each, _one_line(text), whence) for each, text, whence in rows], failures
    )


async def _add(found: EnvironmentBuilder, variable: EnvVar, links: dict[str, str]) -> bool:
    source = variable.valueFrom
    if source is not None and source.fileKeyRef is not None:
        # Only the node can read it.
        found.values[variable.name] = IN_A_FILE
        return True
    added = await found.add(variable, links)
    if added and source is not None and source.secretKeyRef is not None:
        found.values[variable.name] = SECRET
    return added


def _nowhere(subject: Pod, volume: str) -> Path:
    raise ConfigFailure(f'volume "{volume}" is on the node')


def _words(error: Exception) -> str:
    return error.message if isinstance(error, StatusError) else str(error)


def _one_line(text: str) -> str:
    return text if text.isprintable() else downward.quoted(text)


def _of_all(source: EnvFromSource, name: str) -> str:
    key = name.removeprefix(source.prefix)
    if source.configMapRef is not None:
        return f"ConfigMap {source.configMapRef.name}, key {key}"
    assert source.secretRef is not None
    return f"Secret {source.secretRef.name}, key {key}"


def origin(variable: EnvVar) -> str:
    """Where the value of a variable comes from, in words."""
    source = variable.valueFrom
    if source is None:
        return f"manifest: {variable.value}" if "$" in variable.value else "manifest"
    if source.fieldRef is not None:
        return f"field {source.fieldRef.fieldPath}"
    if source.containerFieldRef is not None:
        return f"{source.containerFieldRef.fieldPath} of the container"
    if (amount := source.resourceFieldRef) is not None:
        whose = f"container {amount.containerName}" if amount.containerName else "the container"
        unit = f", in {amount.divisor}" if amount.divisor else ""
        return f"{amount.resource} of {whose}{unit}"
    if source.configMapKeyRef is not None:
        return f"ConfigMap {source.configMapKeyRef.name}, key {source.configMapKeyRef.key}"
    if source.secretKeyRef is not None:
        return f"Secret {source.secretKeyRef.name}, key {source.secretKeyRef.key}"
    if (file := source.fileKeyRef) is not None:
        return f"volume {file.volumeName}, file {file.path}, key {file.key}"
    return "nothing"
