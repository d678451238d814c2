"""A NodeFoundation for tests, on a directory and without a machine's network."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from kedge.machinery.clock import Clock
from kedge.node.config import NodeConfig
from kedge.node.devices.devices import NodeDevices
from kedge.node.foundation import NodeFoundation, stored_images
from kedge.node.host.machine import MachineInfo
from kedge.node.images.host import HostImage
from kedge.node.network.network_detection import PodNetworkState
from kedge.node.runtime.runtime import RuntimeFeatures, RuntimeLevel
from kedge.supervisor.kernel import cgroups
from kedge.supervisor.machine_capabilities import of_level
from kedge.testing.clock import FakeClock
from kedge.testing.node import FakeImages
from kedge.web.watchdog import LoopPauses

MACHINE = MachineInfo(
    hostname="box",
    cpus=4,
    memory=2**30,
    disk=2**30,
    kernel="6.1.0",
    os_image="Debian",
    architecture="amd64",
)


def foundation(
    state: Path,
    *,
    bridge: object = None,
    refusal: str = "",
    level: RuntimeLevel = RuntimeLevel.FULL,
    images: Sequence[object] = (),
    clock: Clock | None = None,
) -> NodeFoundation:
    """Return the foundation of a node whose runtime, network and images are pretended."""
    config = NodeConfig(name="box", cluster="test", state=state, images=state / "images")
    capabilities = of_level(level)
    runtime = SimpleNamespace(
        name="kedge",
        version="1",
        capabilities=capabilities,
        cgroups=cgroups.here() if capabilities.has_cgroups else None,
        no_user_namespaces="",
        features=RuntimeFeatures(strict_groups=True, recursive_read_only=True, stop_signals=True),
        supervisor=1,
    )
    time = clock or FakeClock()
    return NodeFoundation(
        config,
        cast(Any, runtime),
        cast(Any, FakeImages()),
        partial(stored_images, cast(Any, SimpleNamespace(listed=lambda: images))),
        PodNetworkState(cast(Any, bridge), refusal),
        None,
        NodeDevices(state / "plugins", state / "devices", time),
        HostImage(),
        MACHINE,
        LoopPauses(),
        time,
    )
