"""`kedge image pull`: pull images into the cluster's directory, with the user's own credentials."""

import asyncio
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.config.settings import Settings
from kedge.cli.failure import Failure
from kedge.cli.output.printers import size
from kedge.cli.output.progress import ProgressLine
from kedge.cli.output.tables import harmless
from kedge.machinery import proxies
from kedge.machinery.clock import SystemClock
from kedge.node.config import REGISTRY_FIELDS, NodeConfig
from kedge.node.host import node_record
from kedge.node.images.docker_config import FILE, DockerCredentials
from kedge.node.images.images import ImageService
from kedge.node.images.mapping import ImageMapping
from kedge.node.images.oci import InvalidImage
from kedge.node.images.pull_failures import PullFailure
from kedge.node.images.registry import RegistryClient
from kedge.node.images.registry_hosts import RegistrySettings
from kedge.node.images.store import ImageStore, NoSuchImage
from kedge.settings.setting import declared

if TYPE_CHECKING:
    from kedge.node.images.reference import ImageReference

_DIGITS = 12


def pull(flags: Namespace, directory: Path, store: ImageStore) -> int:
    """Pull images for all pods of the nodes on this machine."""
    source = Settings(flags)
    service = ImageService(
        store,
        RegistryClient(registry_settings(source, directory)),
        ImageMapping(),
        own_credentials=DockerCredentials(docker_config(source), dict(source.environment)),
    )
    asyncio.run(_pull_all(service, flags.images, is_quiet=flags.quiet))
    store.sweep()
    return 0


def registry_settings(source: Settings, directory: Path) -> RegistrySettings:
    """Return how to reach registries: as the settings say, else as the nodes do. The proxies are
    those of this command."""
    weaker = {}
    for place in sorted((directory / "nodes").glob("*")):
        if known := node_record.read(place):
            weaker = _parsed(known.registry_flags)
            break
    found = source.over(weaker)
    return RegistrySettings(
        mirrors=found.field(NodeConfig, "registry_mirrors") or (),
        insecure=found.field(NodeConfig, "insecure_registries") or (),
        authorities=found.field(NodeConfig, "registry_authorities") or (),
        proxies=proxies.from_environment(source.environment),
    )


def _parsed(flags: Sequence[str]) -> dict[str, object]:
    """Return the values of recorded flags by the name of their setting."""
    found = {}
    for setting in (declared(NodeConfig, each) for each in REGISTRY_FIELDS):
        texts = [each.partition("=")[2] for each in flags if each.startswith(f"{setting.flag}=")]
        if texts:
            found[setting.name] = setting.type.parse_all(texts)
    return found


def docker_config(source: Settings) -> Path:
    """Return docker's configuration file of this user."""
    if chosen := source.get(declared(NodeConfig, "registry_credentials")):
        return Path(chosen)
    if directory := source.environment.get("DOCKER_CONFIG"):
        return Path(directory) / FILE
    return source.home() / ".docker" / FILE


async def _pull_all(
    service: ImageService, images: Sequence["ImageReference"], *, is_quiet: bool
) -> None:
    for image in images:
        shown = PullDisplay(
            image.familiar, ProgressLine(sys.stderr, SystemClock(), is_quiet=is_quiet)
        )
        try:
            pulled = await service.pull(image, shown.update)
        except (PullFailure, InvalidImage, NoSuchImage, OSError) as error:
            advice = f": {error.advice}" if isinstance(error, PullFailure) and error.advice else ""
            raise Failure(f'image "{image.familiar}" was not pulled: {error}{advice}') from error
        finally:
            shown.line.end()
        if not is_quiet:
            verb = "pulled" if shown.layers else "is up to date"
            print(f'image "{image.familiar}" {verb} ({size(pulled.size)})')


class PullDisplay:
    """The progress of one pull as people see it."""

    def __init__(self, name: str, line: ProgressLine) -> None:
        self.line = line
        self._name = name
        self.layers: dict[str, tuple[int, int]] = {}
        """Received and whole bytes of each layer, by digest."""

    def update(self, digest: str, done: int, whole: int) -> None:
        before = self.layers.get(digest, (-1, whole))[0]
        self.layers[digest] = (done, whole)
        short = harmless(digest.partition(":")[2][:_DIGITS])
        if done == whole and before != done:
            self.line.line(f"layer {short}: {size(whole)}")
        received = sum(each[0] for each in self.layers.values())
        total = sum(each[1] for each in self.layers.values())
        complete = sum(each[0] == each[1] for each in self.layers.values())
        self.line.show(
            f"{self._name}: {complete} of {len(self.layers)} layers,"
            f" {size(received)} of {size(total)}" + (", unpacking" if received == total else "")
        )
