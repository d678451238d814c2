"""Images: loaded from archives, mapped to the machine's own files, or not there."""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]


def archive(path: Path, name: str, files: dict[str, bytes], config: Json) -> None:
    """What `docker save` writes of an image of one layer."""
    layer = tar({**files})
    described = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    whole = {
        "config.json": json.dumps(described).encode(),
        "layer.tar": layer,
        "manifest.json": json.dumps(manifest).encode(),
    }
    path.write_bytes(tar(whole))


def tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            made.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def libraries(program: str) -> list[str]:
    """What a program needs to run on its own."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return [word for word in said.split() if word.startswith("/")]


def with_shell() -> dict[str, bytes]:
    """A root file system with a shell and nothing else."""
    wanted = ["/bin/sh", *libraries("/bin/sh")]
    return {path.lstrip("/"): Path(path).resolve().read_bytes() for path in wanted}


@pytest.fixture
def state(cluster: Any) -> Path:
    found: Path = cluster.home / "state"
    if not found.exists():
        pytest.skip("the cluster is somebody else's: images cannot be loaded")
    return found


def kedge(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kedge", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_archive_is_loaded_and_run(pods: Any, about: Any, state: Path, tmp_path: Path) -> None:
    config = {
        "Entrypoint": ["/bin/sh", "-c"],
        "Cmd": ["echo $GREETING from $PWD > /dev/termination-log"],
        "Env": ["GREETING=hello"],
        "WorkingDir": "/work",
        "User": "1234",
    }
    archive(tmp_path / "tiny.tar", "example.com/tiny:1", with_shell(), config)
    said = kedge("image", "load", f"--state={state}", str(tmp_path / "tiny.tar"))
    assert "example.com/tiny:1" in said
    container = {"name": "main", "image": "example.com/tiny:1"}
    pods.create("tiny", restartPolicy="Never", containers=[container])
    pod = pods.over("tiny")
    ended = about.state(pod)["terminated"]
    assert (ended["exitCode"], ended.get("message")) == (0, "hello from /work\n")
    assert about.status(pod)["image"] == "example.com/tiny:1"
    assert about.status(pod)["imageID"]
    nowhere = {**container, "command": ["/usr/bin/env"]}
    pods.create("bare", restartPolicy="Never", containers=[nowhere])
    assert about.state(pods.over("bare"))["terminated"]["reason"] == "StartError"


def test_an_image_that_is_not_there_says_what_can_be_done(
    any_kubectl: Any, pods: Any, about: Any
) -> None:
    image = {"image": "registry.invalid/app:1"}
    pods.create("absent", container=image)
    pods.when("absent", lambda pod: "ErrImagePull" in str(about.state(pod)))
    told = " ".join(pods.events("absent", "Failed"))
    assert "kedge image load" in told
    assert "--image-map" in told
    pod = pods.when("absent", lambda pod: "ImagePullBackOff" in str(about.state(pod)))
    assert pod["status"]["phase"] == "Pending"
    [shown] = any_kubectl.table("get pods")
    assert shown["STATUS"] == "ImagePullBackOff"


def test_an_image_may_be_wanted_from_this_machine_only(pods: Any, about: Any) -> None:
    pods.create("never", container={"image": "absent:1", "imagePullPolicy": "Never"})
    pod = pods.when("never", lambda pod: "ErrImageNeverPull" in str(about.state(pod)))
    said = about.state(pod)["waiting"]["message"]
    assert said.startswith('Container image "absent:1" is not present with pull policy of Never')


def test_a_name_that_is_none(pods: Any, about: Any) -> None:
    pods.create("odd", container={"image": "UPPER CASE"})
    pods.when("odd", lambda pod: "InvalidImageName" in str(about.state(pod)))
    assert "InspectFailed" in " ".join(pods.events("odd"))


def image_volume(name: str, policy: str, *mounts: Json) -> Json:
    """The spec of a pod that has the files of an image as a volume."""
    volume = {"name": "v", "image": {"reference": name, "pullPolicy": policy}}
    seen = [{"name": "v", **mount} for mount in mounts]
    return {"volumes": [volume], "container": {"volumeMounts": seen}}


def test_the_files_of_an_image_are_a_volume(pods: Any, state: Path, tmp_path: Path) -> None:
    files = {"etc/release": b"one\n", "models/small/weights": b"two\n"}
    archive(tmp_path / "model.tar", "example.com/model:1", files, {})
    kedge("image", "load", f"--state={state}", str(tmp_path / "model.tar"))
    places = ({"mountPath": "/v"}, {"mountPath": "/part", "subPath": "models/small"})
    said = pods.says(
        "reader",
        "cat /v/etc/release /part/weights; touch /v/new /part/new; ls /v /part",
        **image_volume("example.com/model:1", "Never", *places),
    ).splitlines()
    assert said[:2] == ["one", "two"]
    assert sum("Read-only file system" in line for line in said) == 2
    assert "new" not in said


def test_a_volume_of_an_image_that_is_not_there_is_reported(
    pods: Any, about: Any, state: Path, tmp_path: Path
) -> None:
    pods.create("early", **image_volume("example.com/later:1", "Never", {"mountPath": "/v"}))
    pod = pods.when("early", lambda pod: "ErrImageNeverPull" in str(about.state(pod)))
    said = about.state(pod)["waiting"]["message"]
    assert '"example.com/later:1" is not present with pull policy of Never' in said
    archive(tmp_path / "later.tar", "example.com/later:1", {"f": b""}, {})
    kedge("image", "load", f"--state={state}", str(tmp_path / "later.tar"))
    pods.ready("early", within=60)
