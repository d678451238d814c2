"""A hint for the file system that the subdirectories of a directory are unrelated."""

import contextlib

from kedge.supervisor.kernel import inode_flags


def spread(directory: str) -> None:
    """Set the top-of-hierarchy flag (`chattr +T`), so that ext4 spreads the subdirectories over
    block groups.

    By default ext4 puts them in one block group. Without a journal it scans the recently deleted
    inodes of that group before it allocates one, which is slow where pods come and go. Other file
    systems have neither the flag nor the problem.
    """
    with contextlib.suppress(OSError):
        inode_flags.open_and_change(directory, None, on=inode_flags.TOP_OF_HIERARCHY)
