"""The actions that a pod plan consists of."""

from dataclasses import dataclass
from enum import StrEnum

from kedge.node.pod.backoff import BackoffDelay


class ContainerKind(StrEnum):
    """The list of the pod spec that holds a container."""

    INIT = "initContainers"
    MAIN = "containers"
    EPHEMERAL = "ephemeralContainers"


@dataclass(frozen=True, slots=True)
class RunSandbox:
    """Create the pod's sandbox."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StopSandbox:
    """Stop a sandbox; the runtime continues to list its containers."""

    sandbox: str


@dataclass(frozen=True, slots=True)
class RemoveSandbox:
    """Remove a stopped sandbox with its containers."""

    sandbox: str


@dataclass(frozen=True, slots=True)
class StartContainer:
    """Start a container, from its image to its postStart hook."""

    kind: ContainerKind
    name: str
    attempt: int
    delay: BackoffDelay | None = None
    """The crash loop delay if the container fails again; None for its first start."""


@dataclass(frozen=True, slots=True)
class StopContainer:
    """Stop one container."""

    container: str
    name: str
    grace: float
    message: str
    after: frozenset[str] = frozenset()
    """Names of the containers that must end before this one is signalled."""
    hook: bool = True
    """Whether the preStop hook runs."""


@dataclass(frozen=True, slots=True)
class StopContainers:
    """Stop containers in parallel, in the order that their `after` fields prescribe."""

    stops: tuple[StopContainer, ...]


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    """Remove a container that does not run."""

    container: str


@dataclass(frozen=True, slots=True)
class ResizeContainers:
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
