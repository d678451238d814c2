"""Image: one that is on this machine, ready for containers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kedge.node.images.mapping import HOST
from kedge.node.images.oci import ImageConfig
from kedge.node.images.reference import without_version

_NO_CONFIG: Final = ImageConfig()


@dataclass(frozen=True, slots=True)
class LocalImage:
    """What containers are made of: layers, or the machine itself."""

    id: str
    """The digest of its configuration; `host` for the machine."""
    name: str
    """What `image` in a container's status shows: the name it was asked for by, in full."""
    names: tuple[str, ...] = ()
    """All its names, in full."""
    digests: tuple[str, ...] = ()
    """`repository@digest` under which registries know it."""
    config: ImageConfig = _NO_CONFIG
    layers: tuple[Path, ...] = ()
    """Unpacked, the uppermost first; none for the machine."""
    size: int = 0
    """Bytes of the layers, unpacked."""

    @property
    def is_host(self) -> bool:
        return self.id == HOST

    @property
    def reference(self) -> str:
        """What `imageID` in a container's status shows."""
        repository = without_version(self.name)
        own = [each for each in self.digests if each.startswith(f"{repository}@")]
        return next(iter((*own, *self.digests)), self.id)

    @property
    def user(self) -> str:
        return self.config.user

    @property
    def stop_signal(self) -> str:
        return self.config.stop_signal


HOST_IMAGE: Final = LocalImage(
    HOST,
    HOST,
    names=(HOST,),
    config=ImageConfig(
        env=("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",),
        cmd=("/bin/sh",),
    ),
)
