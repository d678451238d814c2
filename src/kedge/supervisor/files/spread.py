"""Directories whose subdirectories have nothing to do with each other, which the disk is told."""

import contextlib

from kedge.supervisor.kernel import inode_flags


def spread(directory: str) -> None:
    """Let the file system put each subdirectory somewhere else, as `chattr +T` does for ext4.

    It would put all of them in one place, where those that were just deleted are in the way of
    new ones: without a journal, ext4 looks at each of them before it makes another, which is dear
    where pods come and go. Other file systems have no such flag, and no such trouble.
    """
    with contextlib.suppress(OSError):
        inode_flags.open_and_change(directory, None, on=inode_flags.TOP_OF_HIERARCHY)
