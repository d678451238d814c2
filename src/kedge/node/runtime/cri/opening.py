"""Opens the container runtime of a node: its connection, its containers and its images."""

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Final

from kedge.machinery.clock import Clock
from kedge.node.config import CRI_SCHEME, NodeConfig
from kedge.node.images.credentials import CredentialSource
from kedge.node.images.mapping import ImageMapping
from kedge.node.runtime.cri.connection import CriConnection
from kedge.node.runtime.cri.cri_runtime import CriRuntime
from kedge.node.runtime.cri.image_service import CriImageService
from kedge.node.runtime.embedded import PodNetwork
from kedge.node.runtime.runtime import NotFoundError, RuntimeFailure
from kedge.node.runtime.spawn import SupervisorStart
from kedge.settings.setting import declared

_OWN_FIELDS: Final = ("registry_mirrors", "insecure_registries", "registry_authorities")
"""Settings for pulls by kedge itself."""
_REMOVAL_SECONDS: Final = 60.0


def node_identity(state: os.PathLike[str]) -> str:
    """Return the label of a node's sandboxes: several nodes may share a runtime."""
    return hashlib.sha256(os.fsencode(os.path.realpath(state))).hexdigest()[:16]


async def open_runtime(
    config: NodeConfig,
    network: PodNetwork | None,
    own_credentials: CredentialSource | None,
    clock: Clock,
    begun: SupervisorStart | None,
) -> tuple[CriRuntime, CriImageService]:
    """Connect to the runtime that the configuration names. Raises SystemExit with the reason if it
    cannot work for this node."""
    socket = config.cri_socket
    assert socket is not None
    if refusal := lack(config):
        raise SystemExit(refusal)
    connection = CriConnection(socket)
    images = CriImageService(
        connection,
        ImageMapping.parse(config.image_map),
        config.state / "pulls",
        clock,
        own_credentials=own_credentials,
    )
    try:
        runtime = await CriRuntime.connect(
            config.runtime,
            connection,
            node_identity(config.state),
            network=network,
            clock=clock,
            begun=begun,
        )
        await images.refresh()
    except (RuntimeFailure, NotFoundError, TimeoutError, OSError) as error:
        await connection.close()
        await asyncio.to_thread(lambda: begun.failure() if begun is not None else "")
        text = f"cannot use the container runtime {CRI_SCHEME}{socket}: {error}"
        raise SystemExit(text) from error
    return runtime, images


async def remove_pods(runtime: str, state: Path) -> str:
    """Remove the sandboxes of a node whose agent has ended; return the problem, if any."""
    connection = CriConnection(Path(runtime.removeprefix(CRI_SCHEME)))
    try:
        async with asyncio.timeout(_REMOVAL_SECONDS):
            await CriRuntime(state / "runtime", connection, node_identity(state)).remove_all()
    except (RuntimeFailure, NotFoundError, TimeoutError, OSError) as error:
        return f"pods of {runtime} may still run: {error}"
    finally:
        await connection.close()
    return ""


def lack(config: NodeConfig) -> str:
    """Return why the node cannot have a container runtime of CRI; empty if it can."""
    if os.geteuid() != 0:
        return "--runtime cri://... needs root: start kedge as root, or without the flag"
    for name in _OWN_FIELDS:
        if getattr(config, name):
            flag = declared(NodeConfig, name).flag
            return (
                f"{flag} is for kedge's own runtime: configure registries in the container runtime"
                " (containerd: config_path, CRI-O: registries.conf), and leave the flag away"
            )
    return ""
