"""The inputs of a container's start besides the container's spec."""

from typing import Any, Self


class LaunchOptions:
    """Descriptors, namespaces and control groups; numbers and strings only, since they are sent
    to another process."""

    def __init__(self, status: int, stdio: tuple[int, int, int]) -> None:
        self.status = status
        """A socket, for progress and errors."""
        self.stdio = stdio
        """Standard streams; not used with a terminal."""
        self.terminal = -1
        """The controlling side of a terminal that is open already."""
        self.cgroup_files: list[str] = []
        """The cgroup.procs files to write 0 to, which moves the process to its control group."""
        self.namespaces: list[int] = []
        """Namespaces of the pod to enter."""
        self.new_namespaces = 0
        """Flags of the namespaces to create."""
        self.target = (-1, 0)
        """A process (as a pidfd) and the flags of its namespaces to enter."""
        self.target_pidns = -1
        """A pid namespace to enter last."""
        self.target_userns = -1
        """The user namespace of the target process, for a rootless supervisor."""
        self.userns = -1
        """The pod's user namespace, entered when the setup outside is done; -1 for the machine's
        own."""
        self.first_id = 0
        """The machine's id of that namespace's id 0."""
        self.links: dict[str, int] = {}
        """Without mounts: the numbers of descriptors of volumes, by mount path."""

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Self:
        """Return the options that another process sent as `vars(options)`."""
        options = cls(fields["status"], fields["stdio"])
        vars(options).update(fields)
        return options

    def descriptors(self) -> set[int]:
        """Return the descriptors that a child needs. They include the supervisor's standard
        streams, so that no other descriptor gets their numbers before the child replaces them."""
        entered = {self.target[0], self.target_pidns, self.target_userns, self.userns}
        return {0, 1, 2, self.status, *self.stdio, self.terminal, *self.namespaces, *entered}
