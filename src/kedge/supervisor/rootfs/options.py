"""The supervisor's decisions about a root file system besides the container's spec."""

from collections.abc import Callable

Note = Callable[[str], None]
"""Reports a shortfall: something the container does not get on this machine."""


class RootfsOptions:
    """Paths, descriptors and limits for one root; numbers and strings only, since they are sent
    to another process."""

    def __init__(
        self,
        *,
        home: str,
        mount_point: str,
        rootless: bool,
        cgroup_views: list[tuple[str, str]],
        shm: int,
        any_device: bool,
        proc: tuple[int, str],
        userns: int = -1,
        first_id: int = 0,
    ) -> None:
        self.home = home
        """The container's directory on the machine."""
        self.mount_point = mount_point
        """Where the root is mounted. Only the container's mount namespace has that mount, so
        containers can share the directory."""
        self.rootless = rootless
        """Whether the supervisor itself is in a user namespace, where less is allowed."""
        self.cgroup_views = cgroup_views
        """Cgroup hierarchies to mount: names and mount options."""
        self.shm = shm
        """A mount namespace whose root is the pod's /dev/shm; -1 for the machine's /dev/shm."""
        self.any_device = any_device
        """Whether device nodes work everywhere: only the control group, if any, limits which of
        them the container may open."""
        self.proc = proc
        """A mount namespace, and the path in it of the /proc of the pid namespace that the
        container shares; -1 if the container has a pid namespace of its own."""
        self.userns = userns
        """The pod's user namespace, not yet entered; -1 for the machine's."""
        self.first_id = first_id
        """The machine's id of that namespace's id 0."""
