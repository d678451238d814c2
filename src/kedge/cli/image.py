"""`kedge image`: the images on this machine, from which the containers of a cluster are made."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kedge.cli import flags
from kedge.cli.failure import Failure

if TYPE_CHECKING:
    from kedge.cli.cluster.registry import ClusterLocation
    from kedge.node.images.archive import PackedImage
    from kedge.node.images.host import HostImage
    from kedge.node.images.reference import ImageReference
    from kedge.node.images.store import ImageListing, ImageStore
    from kedge.settings.setting import Setting

DESCRIPTION: Final = """\
Load, pull, list and remove the images of a cluster. They are stored in the cluster's directory,
which all nodes of the machine share; the cluster does not have to run.

'kedge image pull' uses the credentials of docker's configuration ($DOCKER_CONFIG/config.json, else
~/.docker/config.json), credential helpers included, the proxies of the environment (HTTPS_PROXY,
NO_PROXY), and the mirrors of the cluster. All pods may use what it has pulled.

The image "host" shows the machine's own files. A container can write to its copy of them.
Credentials and home directories are empty in it: 'kedge image list host' lists them."""
EXAMPLES: Final = """\
  # The output of 'docker save' or 'skopeo copy ... oci-archive:'
  kedge image load busybox.tar
  docker save myapp:1 | kedge image load -

  # A directory with a root file system, and the name of the image
  kedge image load ./rootfs --as myapp:1

  # From a registry, with progress; from one on the network that speaks plain HTTP
  kedge image pull busybox:1.36
  kedge image pull --insecure-registry registry.lan:5000 registry.lan:5000/app:1

  kedge image list
  kedge image list host     # paths of this machine that the image "host" hides
  kedge image rm myapp:1"""

_DIGITS: Final = 12
_NAMELESS: Final = "<none>"
_PULL_DEFAULTS: Final = {
    "registry-credentials": "$DOCKER_CONFIG/config.json, else ~/.docker/config.json",
}


def add_flags(parser: ArgumentParser) -> None:
    below = parser.add_subparsers(dest="deed", metavar="load|pull|list|rm", required=True)
    load = below.add_parser(
        "load", help="load images from archives or directories", allow_abbrev=False
    )
    flags.add_which(load)
    load.add_argument(
        "--as",
        dest="names",
        action="append",
        type=image_name,
        default=[],
        metavar="IMAGE",
        help="a further name for the image; may be given several times",
    )
    load.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="OCI or docker archive, directory of one, root file system, or - for standard input",
    )
    pull = below.add_parser("pull", help="pull images from registries", allow_abbrev=False)
    flags.add_which(pull)
    for each in _registry_settings():
        flags.add_setting(pull, each, _PULL_DEFAULTS.get(each.name, "as the nodes of the cluster"))
    pull.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    pull.add_argument(
        "images", nargs="+", type=pulled_name, metavar="IMAGE", help="name, with a tag or a digest"
    )
    listing = below.add_parser("list", help="list the images", allow_abbrev=False)
    flags.add_which(listing)
    listing.add_argument(
        "image",
        nargs="?",
        choices=["host"],
        metavar="host",
        help='list the files and directories that the image "host" hides instead',
    )
    flags.add_output(listing)
    remove = below.add_parser("rm", help="remove images", allow_abbrev=False)
    flags.add_which(remove)
    remove.add_argument(
        "--force", action="store_true", help="also remove images that containers use"
    )
    remove.add_argument("images", nargs="+", metavar="IMAGE", help="name, or ID as the list shows")


def _registry_settings() -> "list[Setting[Any]]":
    from kedge.node.config import REGISTRY_FIELDS, NodeConfig
    from kedge.settings.setting import declared

    return [declared(NodeConfig, each) for each in REGISTRY_FIELDS]


def pulled_name(value: str) -> "ImageReference":
    from kedge.node.images.mapping import is_host
    from kedge.node.images.reference import ImageReference, InvalidImageName

    try:
        name = ImageReference.parse(value)
    except InvalidImageName as error:
        raise ArgumentTypeError(f'"{value}" is no name of an image: {error}') from error
    if is_host(name):
        raise ArgumentTypeError('"host" means the machine itself: it is always there')
    return name


def image_name(value: str) -> "ImageReference":
    from kedge.node.images.mapping import is_host
    from kedge.node.images.reference import ImageReference, InvalidImageName

    try:
        name = ImageReference.parse(value)
    except InvalidImageName as error:
        raise ArgumentTypeError(f'"{value}" is no name for an image: {error}') from error
    if is_host(name) or name.digest:
        raise ArgumentTypeError(
            f'"{value}" is no name that can be given: '
            + ("a digest cannot be chosen" if name.digest else "it means the machine itself")
        )
    return name


def run(flags: Namespace) -> int:
    from kedge.cli.config.cluster import where
    from kedge.cli.config.settings import Settings

    cluster = where(Settings(flags))
    if flags.deed == "load":
        return load(cluster, flags.paths, flags.names)
    if flags.deed == "pull":
        from kedge.cli.image_pull import pull

        return pull(flags, _directory(cluster), _store(cluster))
    if flags.deed == "list":
        if flags.image:
            return list_hidden(cluster, flags.output)
        return list_images(cluster, flags.output)
    return remove(cluster, flags.images, force=flags.force)


def load(where: "ClusterLocation", paths: Sequence[str], names: Sequence["ImageReference"]) -> int:
    """Load all images that the files hold."""
    from kedge.node.images.oci import InvalidImage

    if names and len(paths) > 1:
        raise Failure("with --as, load one file at a time")
    store = _store(where)
    for path in paths:
        try:
            with store.scratch() as scratch:
                _load(store, _file(path, scratch, store), scratch, names)
        except InvalidImage as error:
            raise Failure(f"{path} cannot be loaded: {error}") from error
        except OSError as error:
            raise Failure(f"{path} cannot be loaded: {error.strerror or error}") from error
    store.sweep()
    return 0


def _file(path: str, scratch: Path, store: "ImageStore") -> Path:
    import sys

    from kedge.node.images.archive import copy_to_file

    return copy_to_file(sys.stdin.buffer, scratch, store.limits) if path == "-" else Path(path)


def _load(
    store: "ImageStore", path: Path, scratch: Path, names: Sequence["ImageReference"]
) -> None:
    import sys

    from kedge.cli.image_progress import counted
    from kedge.cli.output.printers import size
    from kedge.cli.output.progress import ProgressLine
    from kedge.machinery.clock import SystemClock
    from kedge.node.images.archive import open_images
    from kedge.node.images.oci import InvalidImage

    with open_images(path, scratch, store.limits) as images:
        if names and len(images) > 1:
            raise InvalidImage(f"it holds {len(images)} images, and --as can name only one")
        line = ProgressLine(sys.stderr, SystemClock())
        for image in images:
            named = _names(image, names)
            try:
                record = store.add(counted(image, named[0], line), named, loaded=True)
            finally:
                line.end()
            for name in named:
                print(f'image "{name.familiar}" loaded ({size(record.size)})')


def _names(image: "PackedImage", given: Sequence["ImageReference"]) -> list["ImageReference"]:
    from kedge.node.images.mapping import is_host
    from kedge.node.images.oci import InvalidImage

    names = [name for name in dict.fromkeys((*image.names, *given)) if not is_host(name)]
    if not names:
        raise InvalidImage("it does not name the image: name it with --as")
    return names


def list_images(where: "ClusterLocation", output: str | None) -> int:
    """Print all images."""
    from kedge.cli.output import printers

    found = _store(where).listed()
    if output:
        print(printers.document({"items": [_host(), *map(facts, found)]}, output))
        return 0
    rows = sorted(
        (row for image in found for row in _rows(image)), key=lambda row: (row[0] == _NAMELESS, row)
    )
    heads = ("IMAGE", "ID", "SIZE", "IN USE BY")
    print(printers.table([heads, ("host", "<this machine>", "-", "-"), *rows]))
    return 0


def list_hidden(where: "ClusterLocation", output: str | None) -> int:
    """Print the paths that the image `host` hides, for each node of the cluster."""
    from kedge.cli.output import printers

    nodes = _host_images(where)
    if output:
        import msgspec

        items = [{"node": name, "hostImage": msgspec.to_builtins(image)} for name, image in nodes]
        print(printers.document({"items": items}, output))
        return 0
    if not any(image.is_enabled for _, image in nodes):
        print('The image "host" is switched off: pods that use it are refused.')
        return 0
    rows = {
        (each.path, each.reason) for _, image in nodes if image.is_enabled for each in image.hidden
    }
    shown = {
        (path, "shown by --host-image-show")
        for _, image in nodes
        if image.is_enabled
        for path in image.shown
    }
    print(printers.table([("PATH", "WHY IT IS HIDDEN"), *sorted(rows | shown)]))
    return 0


def _host_images(where: "ClusterLocation") -> "list[tuple[str, HostImage]]":
    """Return the image `host` as each node of the cluster recorded it at its last start."""
    from kedge.cli.cluster import registry
    from kedge.node.host import node_record

    found = registry.find(where)
    if found is None:
        raise registry.absent(where)
    places = sorted((found.directory / "nodes").glob("*"))
    records = [known for place in places if (known := node_record.read(place))]
    if not records:
        raise Failure(f"cluster {where} has no node on this machine: start one with 'kedge up'")
    return [(each.name, each.host_image) for each in records]


def facts(image: "ImageListing") -> dict[str, object]:
    """Return an image as JSON and YAML output show it."""
    from datetime import UTC, datetime

    from kedge.machinery.durations import format_time

    return {
        "id": image.record.id,
        "names": list(image.names),
        "digests": list(image.digests),
        "size": image.record.size,
        "created": image.record.created,
        "lastUsed": format_time(datetime.fromtimestamp(image.last_used, UTC)),
        "usedBy": list(image.holders),
    }


def _host() -> dict[str, object]:
    return {"id": "host", "names": ["host"]}


def _rows(image: "ImageListing") -> Iterator[tuple[str, str, str, str]]:
    from kedge.cli.output.printers import size
    from kedge.node.images.reference import ImageReference

    id_ = image.record.id.partition(":")[2][:_DIGITS]
    used = str(len(image.holders)) if image.holders else "-"
    names = [ImageReference.parse(name).familiar for name in image.names]
    for name in names or [_NAMELESS]:
        yield name, id_, size(image.record.size), used


def remove(where: "ClusterLocation", images: Sequence[str], *, force: bool) -> int:
    """Remove images by their names or ids."""
    from kedge.cli.output.printers import size
    from kedge.node.images.store import ImageInUse, NoSuchImage

    store = _store(where)
    for text in images:
        if text == "host":
            raise Failure('"host" is the machine itself, which cannot be removed')
        try:
            id_, name = store.lookup(text)
            if name and store.has_other_names(id_, name):
                store.unname(name)
                print(f'tag "{name.familiar}" removed')
            else:
                freed = store.remove(id_, force=force)
                print(f'image "{text}" removed ({size(freed)} freed)')
        except NoSuchImage as error:
            raise Failure(f"{error}: 'kedge image list' shows those that are") from error
        except ImageInUse as error:
            raise Failure(
                f'image "{text}" is used by containers ({error}): delete their pods, or use --force'
            ) from error
    store.sweep()
    return 0


def _directory(where: "ClusterLocation") -> Path:
    """Return the directory of a cluster, or of nodes here that have joined one elsewhere."""
    from kedge.cli.cluster import registry

    if found := registry.find(where):
        return found.directory
    directory = where.directory or registry.resolve(where.root, where.name)
    if not registry.holds_nodes(directory):
        raise registry.absent(where)
    return directory


def _check_runtime(directory: Path) -> None:
    """Refuse clusters whose nodes have images of their container runtime only."""
    from kedge.node.config import CRI_SCHEME
    from kedge.node.host import node_record

    places = sorted((directory / "nodes").glob("*"))
    records = [known for place in places if (known := node_record.read(place))]
    if records and all(each.runtime.startswith(CRI_SCHEME) for each in records):
        socket = records[0].runtime.removeprefix(CRI_SCHEME)
        raise Failure(
            f"the nodes use the images of the container runtime at {socket}: see and load them with"
            f" its own command, such as 'ctr --address {socket} --namespace k8s.io images import"
            " FILE' for containerd, or 'skopeo copy docker-archive:FILE containers-storage:NAME'"
            " for CRI-O"
        )


def _store(where: "ClusterLocation") -> "ImageStore":
    from kedge.machinery.clock import SystemClock
    from kedge.node.images.store import ImageStore

    directory = _directory(where)
    _check_runtime(directory)
    try:
        return ImageStore(directory / "images", SystemClock())
    except OSError as error:
        raise Failure(
            f"{error.filename}: {error.strerror}. Run kedge as the user whose cluster it is"
        ) from error
