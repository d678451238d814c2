"""The actions that a pod plan consists of."""

from enum import StrEnum

import msgspec

from kedge.node.pod.backoff import BackoffDelay


class ContainerKind(StrEnum):
    """The list of the pod spec that holds a container."""

    INIT = "initContainers"
    MAIN = "containers"
    EPHEMERAL = "ephemeralContainers"


class RunSandbox(msgspec.Struct, frozen=True):
    """Create the pod's sandbox."""

    attempt: int


class StopSandbox(msgspec.Struct, frozen=True):
    """Stop a sandbox; the runtime continues to list its containers."""

    sandbox: str


class RemoveSandbox(msgspec.Struct, frozen=True):
    """Remove a stopped sandbox with its containers."""

    sandbox: str


class StartContainer(msgspec.Struct, frozen=True):
    """Start a container, from its image to its postStart hook."""

    kind: ContainerKind
    name: str
    attempt: int
    delay: BackoffDelay | None = None
    """The crash loop delay if the container fails again; None for its first start."""


class StopContainer(msgspec.Struct, frozen=True):
    """Stop one container."""

    container: str
    name: str
    grace: float
    message: str
    after: frozenset[str] = frozenset()
    """Names of the containers that must end before this one is signalled."""
    hook: bool = True
    """Whether the preStop hook runs."""


class StopContainers(msgspec.Struct, frozen=True):
    """Stop containers in parallel, in the order that their `after` fields prescribe."""

    stops: tuple[StopContainer, ...]


class RemoveContainer(msgspec.Struct, frozen=True):
    """Remove a container that does not run."""

    container: str


class ResizeContainers(msgspec.Struct, frozen=True):
    """Apply the allocated resources to running containers."""

    names: tuple[str, ...]


Action = (
    RunSandbox
    | StopSandbox
    | RemoveSandbox
    | StartContainer
    | StopContainer
    | StopContainers
    | RemoveContainer
    | ResizeContainers
)
