"""Builds the root file system of a container, in the container's own mount namespace.

The order of `build` is the safety argument:

1. Everything of the machine or of other namespaces is opened first, as descriptors of detached
   mounts: the pod's /dev/shm and /proc, volumes, devices, the null device. Nothing that an image
   or a volume contains has been mounted yet, so no name can lead to a file that a container
   controls.
2. The mounts of the new namespace become private, so that no mount reaches the machine. This
   comes after opening volumes: a volume with mount propagation needs the machine's shared mount.
3. The root is mounted, then /proc, /sys and /dev, the terminal and the masks. Their targets are
   plain directories at the top of the root; an image with a link there is refused.
4. Volumes and devices outside /dev come last. They may cover anything in the image, but the masks
   are mounted already and a volume over /proc is refused. runc mounts in the order of the spec
   and masks at the end, and needed a fix for each weakness that follows from it
   (CVE-2019-16884, CVE-2023-27561, CVE-2025-31133, CVE-2025-52565).
5. pivot_root replaces the machine's root, and the old one is detached. chroot would leave the old
   mounts in the namespace, where CAP_SYS_CHROOT is enough to reach them.
"""

import os

from kedge.supervisor.kernel import devices, libc
from kedge.supervisor.rootfs import dev, inside, machine_view, mounts, overlay, proc_sys, volumes
from kedge.supervisor.rootfs.options import Note, RootfsOptions
from kedge.supervisor.spec import ContainerSpec


def build(spec: ContainerSpec, options: RootfsOptions, note: Note) -> int:
    """Build the root and enter it, irreversibly. Returns the controlling side of the container's
    terminal, -1 if it has none."""
    shm = dev.open_shared_memory(options)
    proc_tree = proc_sys.open_shared_proc(options)
    libc.unshare(libc.NEW_MOUNT)
    null = devices.null()
    no_devices = not options.any_device and not spec["privileged"]
    binds = [
        (bind, volumes.open_tree(bind, options.userns, no_devices=no_devices))
        # A volume below another one has to be mounted after it.
        for bind in sorted(spec["binds"], key=lambda each: each["target"])
    ]
    nodes = [
        (node, mounts.node_tree(node["source"]))
        for node in spec["devices"]
        if not options.any_device or not dev.is_below_dev(node)
    ]
    libc.mount("", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
    _mount_root(spec, options, note)
    mounts.own_new_files(options.userns, options.first_id)
    root = os.open(options.mount_point, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for path in spec["hidden"]:
        mounts.hide(root, path, null)
    proc_sys.mount(root, options, proc_tree, privileged=spec["privileged"])
    dev.mount(root, spec, options, shm)
    terminal = dev.open_terminal(root) if spec["terminal"] else -1
    if spec["masked"] and not spec["privileged"]:
        proc_sys.mask(root, null)
    proc = inside.plain_directory(root, "proc")
    for node, tree in nodes:
        libc.move_mount(tree, inside.file(root, node["target"]))
    for bind, tree in binds:
        volumes.attach(root, bind, tree, proc)
    inside.directory(root, spec["directory"])
    os.fchdir(root)
    _enter()
    if spec["read_only"]:
        libc.set_mount(mounts.CURRENT_DIRECTORY, "/", on=libc.ATTR_RDONLY)
    return terminal


def _mount_root(spec: ContainerSpec, options: RootfsOptions, note: Note) -> None:
    if spec["lowers"]:
        overlay.mount_layers(spec["lowers"], options, note)
    else:
        machine_view.mount(spec, options, note)


def _enter() -> None:
    """Make the current directory the root, and detach the old root. Both arguments of pivot_root
    may be the same directory: the old root is then stacked on the new one (pivot_root(2))."""
    libc.pivot_root(".", ".")
    libc.unmount(".")
    os.chdir("/")
