"""`kedge image`: loading, listing and removing, as people see it."""

import argparse
import io
import json
import sys
from pathlib import Path

import pytest

from kedge.cli import image
from kedge.cli.cluster import state
from kedge.cli.cluster.registry import ClusterLocation
from kedge.cli.failure import Failure
from kedge.machinery.clock import SystemClock
from kedge.node.host import node_record
from kedge.node.host.node_record import NodeRecord
from kedge.node.images.reference import ImageReference
from kedge.node.images.store import ImageStore
from kedge.testing.images import build, docker_archive, layer, oci_archive, saved_files, write_files

APP = build({"app": b"x" * 2048}, config={"Cmd": ["/app"]})


@pytest.fixture
def where(tmp_path: Path) -> ClusterLocation:
    state.prepare(tmp_path / "default", "default")
    return ClusterLocation(tmp_path, "default", None)


def store(where: ClusterLocation) -> ImageStore:
    return ImageStore(where.root / "default" / "images", SystemClock())


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    image.add_flags(parser)
    return parser.parse_args(arguments)


def load(where: ClusterLocation, *arguments: str) -> None:
    flags = parsed("load", *arguments)
    image.load(where, flags.paths, flags.names)


def shown(where: ClusterLocation, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    image.list_images(where, None)
    return capsys.readouterr().out


def test_what_was_loaded_is_listed(
    where: ClusterLocation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = docker_archive(tmp_path / "app.tar", APP, "app:1", "quay.io/me/app:latest")
    load(where, str(path), "--as", "further")
    assert capsys.readouterr().out == (
        'image "app:1" loaded (2.0 KiB)\n'
        'image "quay.io/me/app:latest" loaded (2.0 KiB)\n'
        'image "further:latest" loaded (2.0 KiB)\n'
    )
    id_ = APP.id[7:19]
    assert shown(where, capsys).splitlines() == [
        "IMAGE                   ID               SIZE      IN USE BY",
        "host                    <this machine>   -         -",
        f"app:1                   {id_}     2.0 KiB   -",
        f"further:latest          {id_}     2.0 KiB   -",
        f"quay.io/me/app:latest   {id_}     2.0 KiB   -",
    ]


def test_programs_get_the_list_as_json(
    where: ClusterLocation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(where, str(oci_archive(tmp_path / "app.tar", APP, "app:1")))
    store(where).hold(APP.id, "c1")
    capsys.readouterr()
    image.list_images(where, "json")
    host, app = json.loads(capsys.readouterr().out)["items"]
    assert host["names"] == ["host"]
    assert app["id"] == APP.id
    assert app["names"] == ["docker.io/library/app:1"]
    assert app["digests"] == [f"docker.io/library/app@{APP.digest}"]
    assert (app["size"], app["usedBy"]) == (2048, ["c1"])


def test_a_root_file_system_needs_a_name(
    where: ClusterLocation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_files(tmp_path / "root", {"bin/sh": b"#!"})
    with pytest.raises(Failure, match="name it with --as"):
        load(where, str(root))
    load(where, str(root), "--as", "box:1")
    assert "box:1" in shown(where, capsys)


def test_an_archive_may_come_from_standard_input(
    where: ClusterLocation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tar = layer(saved_files((APP, ["app:1"])))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(tar)))
    load(where, "-")
    assert capsys.readouterr().out == 'image "app:1" loaded (2.0 KiB)\n'
    assert list((store(where).directory / "incoming").iterdir()) == []


def test_an_image_loses_its_names_one_by_one_and_then_itself(
    where: ClusterLocation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(where, str(docker_archive(tmp_path / "app.tar", APP, "app:1", "app:2")))
    capsys.readouterr()
    image.remove(where, ["app:1", "app:2"], force=False)
    assert capsys.readouterr().out == (
        'tag "app:1" removed\nimage "app:2" removed (2.0 KiB freed)\n'
    )
    assert store(where).listed() == []


def test_by_its_id_an_image_goes_with_all_its_names(where: ClusterLocation, tmp_path: Path) -> None:
    load(where, str(docker_archive(tmp_path / "app.tar", APP, "app:1", "app:2")))
    image.remove(where, [APP.id[7:19]], force=False)
    assert store(where).listed() == []


def test_what_is_in_use_is_removed_by_force_only(where: ClusterLocation, tmp_path: Path) -> None:
    load(where, str(docker_archive(tmp_path / "app.tar", APP, "app:1")))
    store(where).hold(APP.id, "c1")
    with pytest.raises(Failure, match=r"used by containers \(c1\): delete their pods, or"):
        image.remove(where, ["app:1"], force=False)
    image.remove(where, ["app:1"], force=True)
    assert store(where).find(ImageReference.parse("app:1")) is None


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("missing.tar",), "missing.tar cannot be loaded: No such file or directory"),
        (("a.tar", "b.tar", "--as", "x"), "with --as, load one file at a time"),
    ],
)
def test_what_cannot_be_loaded_is_said(
    where: ClusterLocation, arguments: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(Failure) as failed:
        load(where, *arguments)
    assert str(failed.value) == complaint


def test_what_is_no_archive_is_said(where: ClusterLocation, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not an image " * 100)
    with pytest.raises(Failure, match=r"notes\.txt cannot be loaded: it is not a tar file"):
        load(where, str(path))


def test_several_images_cannot_share_one_name(where: ClusterLocation, tmp_path: Path) -> None:
    path = tmp_path / "two.tar"
    path.write_bytes(layer(saved_files((APP, ["app:1"]), (build({"b": b""}), ["b:1"]))))
    with pytest.raises(Failure, match="it holds 2 images, and --as can name only one"):
        load(where, str(path), "--as", "x")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("No Name", "is no name for an image"),
        ("host", "it means the machine itself"),
        ("a@sha256:" + "0" * 64, "a digest cannot be chosen"),
    ],
)
def test_names_that_cannot_be_given_are_refused(
    name: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed("load", "a.tar", "--as", name)
    assert complaint in capsys.readouterr().err


def test_what_is_not_there_cannot_be_removed(where: ClusterLocation) -> None:
    with pytest.raises(Failure, match=r'there is no image "app:1": .kedge image list. shows'):
        image.remove(where, ["app:1"], force=False)
    with pytest.raises(Failure, match="the machine itself"):
        image.remove(where, ["host"], force=False)


def test_a_cluster_that_is_not_here_has_no_images(tmp_path: Path) -> None:
    with pytest.raises(Failure, match='there is no cluster "default" here'):
        image.list_images(ClusterLocation(tmp_path, "default", None), None)


def test_images_of_a_container_runtime_are_left_to_it(where: ClusterLocation) -> None:
    directory = where.root / "default" / "nodes" / "node-1"
    directory.mkdir(parents=True)
    record = NodeRecord(name="node-1", cluster="default", level="full", runtime="cri:///run/c.sock")
    node_record.write(directory, record)
    with pytest.raises(
        Failure, match=r"ctr --address /run/c\.sock --namespace k8s\.io images import"
    ):
        image.list_images(where, None)
