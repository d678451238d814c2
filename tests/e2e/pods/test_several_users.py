"""Pods and images with several users: as root, and with the subordinate ids of an ordinary user."""

import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]
DATABASE, APPLICATION = 999, 1000
IMAGE = "example.com/several:1"
PASSWD = f"root:x:0:0::/:/bin/sh\ndb:x:{DATABASE}:{DATABASE}::/data:/bin/sh\n"


@pytest.fixture
def many_ids(node: Json) -> None:
    """For containers with several users."""
    found = node["metadata"]["annotations"]["kedge.dev/isolation"]
    if "ids=all" not in found and "ids=subordinate" not in found:
        pytest.skip("several users take root, or newuidmap and a grant in /etc/subuid")


@pytest.fixture
def image(cluster: Any, many_ids: None, tmp_path: Path) -> str:
    """An image with programs of the machine, and a directory that only its user db may read."""
    if not (state := cluster.home / "state").exists():
        pytest.skip("the cluster runs elsewhere (KEDGE_E2E_KUBECONFIG): images cannot be loaded")
    archive = tmp_path / "several.tar"
    archive.write_bytes(saved_image())
    command = [sys.executable, "-m", "kedge", "image", "load", f"--state={state}", str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return IMAGE


def saved_image() -> bytes:
    layers = [_layer(), _second_layer()]
    digests = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": digests},
    }
    names = ["one.tar", "two.tar"]
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": names}]
    contents = {"config.json": json.dumps(config), "manifest.json": json.dumps(manifest)}
    with io.BytesIO() as out:
        with tarfile.open(fileobj=out, mode="w") as made:
            for name, text in contents.items():
                _add(made, name, text.encode())
            for name, layer in zip(names, layers, strict=True):
                _add(made, name, layer)
        return out.getvalue()


def _layer() -> bytes:
    with io.BytesIO() as out:
        with tarfile.open(fileobj=out, mode="w") as made:
            for program in (
                "sh",
                "id",
                "stat",
                "cat",
                "chown",
                "chmod",
                "mkdir",
                "sleep",
                "setpriv",
            ):
                for path in _with_libraries(program):
                    _add(made, path, Path(path).resolve().read_bytes(), mode=0o755)
            _add(made, "etc/passwd", PASSWD.encode())
            _add_directory(made, "data", DATABASE, 0o700)
            _add(made, "data/table", b"rows", owner=DATABASE, mode=0o600)
        return out.getvalue()


def _second_layer() -> bytes:
    """A layer that changes a directory which its unpacker may read only as its owner."""
    with io.BytesIO() as out:
        with tarfile.open(fileobj=out, mode="w") as made:
            _add(made, "data/index", b"keys", owner=DATABASE, mode=0o600)
        return out.getvalue()


def _with_libraries(program: str) -> list[str]:
    found = shutil.which(program)
    assert found is not None
    said = subprocess.run(["ldd", found], capture_output=True, text=True, check=False).stdout
    return [f"/bin/{program}", *(word for word in said.split() if word.startswith("/"))]


def _add(
    made: tarfile.TarFile, name: str, content: bytes, *, owner: int = 0, mode: int = 0o644
) -> None:
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.size, entry.mode, entry.uid, entry.gid = len(content), mode, owner, owner
    made.addfile(entry, io.BytesIO(content))


def _add_directory(made: tarfile.TarFile, name: str, owner: int, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, mode, owner, owner
    made.addfile(entry)


def test_a_database_drops_to_its_own_user(pods: Any, image: str) -> None:
    script = """
    stat -c '%u:%g %a' /data /data/table /data/index
    chown 1000:1000 /data/index && stat -c %u /data/index
    setpriv --reuid db --regid 999 --clear-groups sh -c 'id -u; cat /data/table; echo > /data/new'
    stat -c %u /data/new
    setpriv --reuid 1000 --regid 1000 --clear-groups cat /data/table 2>/dev/null || echo refused
    """
    said = pods.says("database", script, container={"image": image})
    assert said.split("\n") == [
        *("999:999 700", "999:999 600", "999:999 600"),
        *("1000", "999", "rows999", "refused"),
    ]


def test_containers_have_users_and_groups(
    any_kubectl: Any,
    api: Any,
    namespace: str,
    pods: Any,
    image: str,
    eventually: Callable[..., Any],
) -> None:
    secret = {"metadata": {"name": "s"}, "stringData": {"key": "value"}}
    api.create(f"/api/v1/namespaces/{namespace}/secrets", secret)
    mounts = [{"name": "v", "mountPath": "/v"}, {"name": "s", "mountPath": "/s"}]
    shared = {"image": image, "volumeMounts": mounts}
    first = {
        **shared,
        "name": "first",
        "command": ["sh", "-c", "umask 077; mkdir -p /v/own/deep; echo 1 > /v/own/deep/file"],
        "securityContext": {"runAsUser": DATABASE},
    }
    script = """
    id -u; id -g; id -G; stat -Lc '%u:%g %a' /v /s/key; cat /s/key; echo
    cat /v/own/deep/file 2>/dev/null || echo refused
    cat /var/run/secrets/kubernetes.io/serviceaccount/token >/dev/null && echo token
    sleep 1000
    """
    pods.create(
        "users",
        initContainers=[first],
        container={
            **shared,
            "command": ["sh", "-c", script],
            "securityContext": {"runAsUser": APPLICATION, "runAsGroup": APPLICATION},
        },
        securityContext={"fsGroup": 3000, "supplementalGroups": [4000]},
        volumes=[
            {"name": "v", "emptyDir": {}},
            {"name": "s", "secret": {"secretName": "s", "defaultMode": 0o400}},
        ],
    )
    pods.ready("users")
    eventually(lambda: "token" in any_kubectl.says("logs users -c main"))
    said = any_kubectl.says("logs users -c main").split("\n")
    assert said[:2] == ["1000", "1000"]
    assert sorted(said[2].split()) == ["1000", "3000", "4000"]
    assert said[3:8] == ["0:3000 2777", "0:3000 440", "value", "refused", "token"]
    assert any_kubectl.says("exec users -c main -- id -u").strip() == "1000"
    pods.delete("users")
    pods.gone("users")
