"""The store: images kept, named, used and removed, by several processes, some of them killed."""

import gzip
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from kedge.machinery.clock import SystemClock
from kedge.node.images import archive
from kedge.node.images.archive import PackedImage
from kedge.node.images.garbage import DiskSpace, GarbageThresholds
from kedge.node.images.oci import InvalidImage
from kedge.node.images.reference import ImageReference
from kedge.node.images.store import ImageInUse, ImageStore, NoSuchImage
from kedge.node.images.unpack import ImageLimits
from kedge.testing.clock import FakeClock
from kedge.testing.images import BuiltImage, build, layout_files, write_files

BASE = {"etc/os": b"base", "bin/sh": b"#!"}
APP = build(BASE, {"app": b"1"}, config={"Cmd": ["/app"], "User": "7", "Labels": {"a": "b"}})
OTHER = build(BASE, {"app": b"22"})
NAME = ImageReference.parse("app:1")
FULL = DiskSpace(1000, 10)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> ImageStore:
    return ImageStore(tmp_path / "images", clock)


def packed(store: ImageStore, image: BuiltImage) -> PackedImage:
    path = store.directory.parent / image.id.partition(":")[2]
    if not path.exists():
        write_files(path, layout_files((image, [])))
    return archive.read(archive.DirectoryArchive(path), ImageLimits())[0]


def add(store: ImageStore, image: BuiltImage, *names: str, loaded: bool = True) -> str:
    given = [ImageReference.parse(name) for name in names]
    return store.add(packed(store, image), given, loaded=loaded).id


def layers(store: ImageStore) -> int:
    return len(list((store.directory / "layers").iterdir()))


def leftovers(store: ImageStore) -> list[Path]:
    return list((store.directory / "incoming").iterdir())


def test_an_image_is_found_by_its_names_and_digests(store: ImageStore) -> None:
    add(store, APP, "app:1", "quay.io/me/app")
    image = store.find(NAME)
    assert image is not None
    assert image.id == APP.id
    assert image.name == "docker.io/library/app:1"
    assert image.names == ("docker.io/library/app:1", "quay.io/me/app:latest")
    assert image.reference == f"docker.io/library/app@{APP.digest}"
    assert (image.config.cmd, image.user, image.config.labels) == (("/app",), "7", {"a": "b"})
    assert [sorted(os.listdir(layer)) for layer in image.layers] == [["app"], ["bin", "etc"]]
    assert image.size == len(b"base" + b"#!" + b"1")
    by_digest = store.find(ImageReference.parse(f"app@{APP.digest}"))
    assert by_digest is not None
    assert by_digest.id == APP.id
    assert store.find(ImageReference.parse("app:2")) is None
    assert store.get(APP.id) is not None
    assert store.get("sha256:" + "0" * 64) is None


def test_what_images_share_is_unpacked_once(store: ImageStore) -> None:
    add(store, APP, "app:1")
    inode = store.find(NAME).layers[-1].resolve().stat().st_ino  # type: ignore[union-attr]
    add(store, OTHER, "other")
    assert layers(store) == 3
    assert store.find(ImageReference.parse("other")).layers[-1].resolve().stat().st_ino == inode  # type: ignore[union-attr]


def test_the_same_layer_over_others_is_another(store: ImageStore) -> None:
    add(store, build({"bin": b"a file"}, {"new/x": b"1"}), "a")
    add(store, build({"lib": b"a file"}, {"new/x": b"1"}), "b")
    assert layers(store) == 4


def test_a_name_moves_to_the_image_that_got_it_last(store: ImageStore) -> None:
    add(store, APP, "app:1")
    add(store, OTHER, "app:1")
    assert store.find(NAME).id == OTHER.id  # type: ignore[union-attr]
    assert [(each.record.id, each.names) for each in store.listed()] == [
        (OTHER.id, ("docker.io/library/app:1",)),
        (APP.id, ()),
    ]


def damaged(store: ImageStore, image: BuiltImage, victim: bytes) -> PackedImage:
    """An image one of whose layers is not what it says."""
    found = packed(store, image)
    blob = found.blobs[-1]
    path = store.directory.parent / "damaged"
    path.write_bytes(victim)
    crooked = archive.LayerBlob(blob.diff_id, blob.digest, lambda: path.open("rb"))
    return PackedImage(found.id, found.document, (*found.blobs[:-1], crooked))


@pytest.mark.parametrize(
    "victim",
    [
        pytest.param(gzip.compress(OTHER.tars[-1]), id="another layer"),
        pytest.param(gzip.compress(APP.tars[-1], 9), id="compressed otherwise"),
        pytest.param(gzip.compress(APP.tars[-1])[:60], id="cut off"),
        pytest.param(b"nonsense" * 200, id="nonsense"),
    ],
)
def test_a_damaged_layer_leaves_nothing_behind(store: ImageStore, victim: bytes) -> None:
    with pytest.raises(InvalidImage):
        store.add(damaged(store, APP, victim), [NAME], loaded=True)
    assert store.find(NAME) is None
    assert store.listed() == []
    assert leftovers(store) == []
    assert layers(store) == 1
    store.sweep()
    assert layers(store) == 0


def test_a_bomb_is_refused(store: ImageStore, tmp_path: Path) -> None:
    small = ImageStore(tmp_path / "images", FakeClock(), ImageLimits(layer_bytes=1 << 20))
    with pytest.raises(InvalidImage, match="1048576 bytes"):
        add(small, build({"zeros": bytes(4 << 20)}), "bomb")
    assert leftovers(store) == []


def test_an_image_in_use_is_removed_by_force_only_and_its_layers_stay(store: ImageStore) -> None:
    add(store, APP, "app:1")
    store.hold(APP.id, "container-1")
    stack = store.find(NAME).layers  # type: ignore[union-attr]
    with pytest.raises(ImageInUse, match="container-1"):
        store.remove(APP.id)
    assert store.remove(APP.id, force=True) == 0
    assert store.find(NAME) is None
    assert all(layer.is_dir() for layer in stack)
    store.release("container-1")
    store.sweep()
    assert layers(store) == 0
    assert list((store.directory / "l").iterdir()) == []


def test_removing_frees_what_no_other_image_has(store: ImageStore) -> None:
    add(store, APP, "app:1")
    add(store, OTHER, "other")
    assert store.remove(APP.id) == 1
    assert store.find(ImageReference.parse("other")) is not None
    assert store.remove(OTHER.id) == len(b"base#!22")
    assert leftovers(store) == []
    with pytest.raises(NoSuchImage):
        store.remove(OTHER.id)


def test_people_name_images_by_name_or_by_the_beginning_of_an_id(store: ImageStore) -> None:
    add(store, APP, "app:1")
    assert store.lookup("app:1") == (APP.id, NAME)
    assert store.lookup(APP.id) == (APP.id, None)
    assert store.lookup(APP.id.partition(":")[2][:12]) == (APP.id, None)
    with pytest.raises(NoSuchImage, match='there is no image "app"'):
        store.lookup("app")


async def test_the_disk_is_emptied_of_what_was_pulled_and_is_not_used(
    store: ImageStore, clock: FakeClock
) -> None:
    add(store, APP, "app:1", loaded=False)
    await clock.advance(1000)
    add(store, OTHER, "other", loaded=False)
    add(store, build({"x": b"1"}), "loaded")
    await clock.advance(1000)
    store.touch(APP.id)
    assert store.collect(GarbageThresholds(), disk=DiskSpace(1000, 500)).images == ()
    assert store.collect(GarbageThresholds(), keep=[OTHER.id], disk=FULL).images == ()
    assert store.collect(GarbageThresholds(), disk=FULL).images == (OTHER.id,)
    await clock.advance(1000)
    store.hold(APP.id, "c")
    assert store.collect(GarbageThresholds(), disk=FULL).images == ()
    store.release("c")
    await clock.advance(1000)
    assert store.collect(GarbageThresholds(), disk=FULL).images == (APP.id,)
    assert [each.names for each in store.listed()] == [("docker.io/library/loaded:latest",)]


async def test_an_image_that_lost_its_name_is_collected(
    store: ImageStore, clock: FakeClock
) -> None:
    add(store, APP, "app:1")
    add(store, OTHER, "app:1")
    await clock.advance(1000)
    assert store.collect(GarbageThresholds(), disk=DiskSpace(1000, 900)).images == (APP.id,)
    assert store.find(NAME) is not None


def test_last_use_is_remembered_by_the_disk(
    tmp_path: Path, store: ImageStore, clock: FakeClock
) -> None:
    add(store, APP, "app:1")
    (listed,) = ImageStore(tmp_path / "images", FakeClock(clock.now() + timedelta(1))).listed()
    assert listed.last_used == clock.now().timestamp()


def test_many_at_once_add_the_same_image(store: ImageStore, tmp_path: Path) -> None:
    stores = [store, ImageStore(tmp_path / "images", FakeClock())]
    image = packed(store, APP)
    start = threading.Barrier(8)

    def load(number: int) -> str:
        start.wait()
        name = ImageReference.parse(f"app:{number}")
        return stores[number % 2].add(image, [name], loaded=True).id

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(load, range(8))) == {APP.id}
    assert len(store.listed()[0].names) == 8
    assert layers(store) == 2
    assert leftovers(store) == []


def test_a_layer_that_is_removed_while_an_image_is_added_is_unpacked_again(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, APP, "app:1")
    other = ImageStore(store.directory, FakeClock())
    unpacked = other._unpacked
    rounds: list[object] = []

    def raced(image: PackedImage) -> object:
        record = unpacked(image)
        if not rounds:
            store.remove(APP.id)
        rounds.append(record)
        return record

    monkeypatch.setattr(other, "_unpacked", raced)
    add(other, OTHER, "other")
    assert len(rounds) == 2
    assert all(layer.is_dir() for layer in store.find(ImageReference.parse("other")).layers)  # type: ignore[union-attr]


def test_nothing_is_swept_that_is_still_being_added(store: ImageStore) -> None:
    with store.scratch() as scratch, store._adding():
        store._unpacked(packed(store, APP))
        ImageStore(store.directory, FakeClock()).sweep()
        assert scratch.is_dir()
        assert layers(store) == 2
    store.sweep()
    assert layers(store) == 0


KILLED = """
import sys
from pathlib import Path
from kedge.machinery.clock import SystemClock
from kedge.node.images import archive
from kedge.node.images.reference import ImageReference
from kedge.node.images.store import ImageStore
from kedge.node.images.unpack import ImageLimits

store = ImageStore(Path(sys.argv[1]), SystemClock())
(image,) = archive.read(archive.DirectoryArchive(Path(sys.argv[2])), ImageLimits())
print("ready", flush=True)
while True:
    store.add(image, [ImageReference.parse("big")], loaded=True)
    store.remove(image.id)
"""


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.08, 0.13])
def test_a_killed_process_leaves_a_store_that_works(tmp_path: Path, delay: float) -> None:
    big = build({f"d{n % 20}/f{n}": b"x" * n for n in range(800)})
    path = write_files(tmp_path / "big", layout_files((big, [])))
    directory = tmp_path / "images"
    arguments = [sys.executable, "-c", KILLED, str(directory), str(path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(delay)
        process.send_signal(signal.SIGKILL)
    store = ImageStore(directory, SystemClock())
    for listed in store.listed():
        image = store.get(listed.record.id)
        assert image is not None
        assert sum(len(files) for _, _, files in os.walk(f"{image.layers[0]}/")) == 800
    add(store, big, "big")
    store.remove(big.id)
    store.sweep()
    assert (layers(store), leftovers(store), store.listed()) == (0, [], [])
