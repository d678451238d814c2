"""An image on this machine."""

from pathlib import Path
from typing import Final

import msgspec

from kedge.node.images.mapping import HOST
from kedge.node.images.oci import ImageConfig
from kedge.node.images.reference import without_version

_NO_CONFIG: Final = ImageConfig()


class LocalImage(msgspec.Struct, frozen=True):
    """An image on this machine: layers, or the machine's own files."""

    id: str
    """The digest of its configuration; `host` for the machine's files."""
    name: str
    """The `image` of a container's status: the requested name in full."""
    names: tuple[str, ...] = ()
    """All its full names."""
    digests: tuple[str, ...] = ()
    """`repository@digest`, by which registries know it."""
    config: ImageConfig = _NO_CONFIG
    layers: tuple[Path, ...] = ()
    """Directories of the unpacked layers, uppermost first; none for the machine's files."""
    size: int = 0
    """Bytes of the unpacked layers."""

    @property
    def is_host(self) -> bool:
        return self.id == HOST

    @property
    def reference(self) -> str:
        """The `imageID` of a container's status."""
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
