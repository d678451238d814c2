"""Images from memory and a protocol, for all container runtimes of tests."""

import subprocess
from pathlib import Path
from typing import Final, Protocol

from kedge.testing import images

PAUSE: Final = "registry.example/pause:1"
BOX: Final = "registry.example/box:1"
BUSYBOX: Final = Path("/bin/busybox")
"""A static one: it takes no libraries into the image."""
_COMMANDS: Final = (
    "cat echo env false head id ls mkdir nc printf ps sh sleep stty sync tail touch true tty wget"
)


class RuntimeDaemon(Protocol):
    """A running container runtime; it can be killed and started again."""

    name: str
    """The name by which it introduces itself."""
    place: Path
    socket: Path

    def start(self) -> None:
        """Start it, and return when it answers."""

    def load(self, image: images.BuiltImage, *names: str) -> None:
        """Give it an image under these names."""

    def containers(self) -> list[str]:
        """The ids of all containers and sandboxes."""

    def kill(self) -> None:
        """Kill it; its containers go on."""

    def stop(self) -> None:
        """End it."""


def box(mark: bytes = b"") -> images.BuiltImage:
    """An image with a shell and a few commands; each mark makes another image."""
    links = {f"bin/{name}": images.symlink("/bin/busybox") for name in _COMMANDS.split()}
    files: dict[str, bytes | images.LayerMember] = {
        "bin": images.directory(),
        "etc": images.directory(),
        "proc": images.directory(),
        "tmp": images.directory(0o1777),
        "bin/busybox": images.program(BUSYBOX.read_bytes()),
        "etc/passwd": b"root:x:0:0::/:/bin/sh\nweb:x:1000:1000::/:/bin/sh\n"
        b"many:x:1001:0::/:/bin/sh\n",
        "etc/mark": mark,
        "etc/group": b"root:x:0:\nweb:x:1000:\nfew:x:5000:many\n",
        **links,
    }
    return images.build(files, config={"Cmd": ["/bin/sleep", "1000000"]})


def pause() -> images.BuiltImage:
    """An image for the first container of sandboxes, which ends as soon as it shall."""
    files = {"bin/busybox": images.program(BUSYBOX.read_bytes())}
    wait = "trap 'exit 0' TERM; while true; do /bin/busybox sleep 1000000 & wait; done"
    return images.build(files, config={"Cmd": ["/bin/busybox", "sh", "-c", wait]})


def unmount_below(place: Path) -> None:
    """Unmount all that is mounted below a directory."""
    for mount in reversed(_mounts_below(place)):
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)


def _mounts_below(place: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [each for line in lines if (each := line.split()[4]).startswith(f"{place}/")]
