"""The volumes of containers on a machine that allows no mounts: links, or files in their roots."""

import contextlib
import errno
from typing import Protocol

from kedge.supervisor.launch.launcher import Launcher
from kedge.supervisor.loop import EventLoop
from kedge.supervisor.plain import prepared_root, shared_directories
from kedge.supervisor.plain.followed_copies import FollowedCopies
from kedge.supervisor.plain.grants import advice
from kedge.supervisor.plain.links import MountLinks, register_directory
from kedge.supervisor.plain.sharing import Settled, Sharing
from kedge.supervisor.plain.volumes import OF_EVERY_CONTAINER, ROOT
from kedge.supervisor.spec import ContainerSpec


class PlainContainer(Protocol):
    """A container without mounts."""

    directory: str

    @property
    def spec(self) -> ContainerSpec: ...

    @property
    def alive(self) -> bool: ...

    def note(self, *shortfalls: str) -> None: ...

    def exceed(self, reason: str, message: str) -> None: ...


class PlainVolumes:
    """Prepares volumes before containers start, and clears them away afterwards."""

    def __init__(self, loop: EventLoop, launcher: Launcher, directory: str = "") -> None:
        """`directory` is that of the register of links, by default the user's."""
        self._links = MountLinks(directory or register_directory())
        self._copies = FollowedCopies(loop, launcher)
        self._sharing = Sharing(loop, launcher)

    def link(self, container: PlainContainer) -> dict[str, int]:
        """Make links at the mount paths of a container without a root of its own; returns the
        numbers of the descriptors that they lead to. Raises OSError for a volume of the pod that
        cannot have one."""
        binds = container.spec["binds"]
        if container.spec["lowers"]:
            return {}
        numbers, refused = self._links.take(container.directory, [each["target"] for each in binds])
        for path in refused.keys() - OF_EVERY_CONTAINER:
            text = f'"{path}" is not mounted: {refused[path]}; {advice("CAP_SYS_ADMIN")}'
            raise OSError(errno.EPERM, text)
        own = numbers.keys() - OF_EVERY_CONTAINER
        if any(each["read_only"] and each["target"] in own for each in binds):
            container.note("its read-only volumes can be written to: this machine allows no mounts")
        if refused:
            container.note(f"it sees the machine's own {', '.join(sorted(refused))}")
        return numbers

    def follow(self, container: PlainContainer) -> None:
        """Keep volumes up to date that are copies in the root of a running container."""
        if container.spec["lowers"]:
            binds = [each for each in container.spec["binds"] if prepared_root.follows(each)]
            self._copies.follow(container, f"{container.directory}/{ROOT}", binds)
            self._sharing.follow(container)

    def settle(self, directory: str, settled: Settled) -> None:
        """Call back when the volumes have all that a container which has ended wrote to them."""
        self._sharing.settle(directory, settled)

    def settle_left(self, containers: str) -> None:
        """Bring the volumes up to date with what containers of an earlier supervisor wrote."""
        for directory in shared_directories.pending(containers):
            # Its files stay in the container's directory, as long as that is there.
            with contextlib.suppress(OSError, ValueError):
                shared_directories.finish(directory)

    def release(self, directory: str) -> None:
        """Remove the links of the container with this directory."""
        self._links.release(directory)

    def release_below(self, directory: str) -> None:
        """Remove the links of all containers with directories below this one."""
        self._links.release_below(directory)
