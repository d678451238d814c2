"""The image `host` shows the machine's programs, and none of its credentials."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or "KEDGE_E2E_KUBECONFIG" in os.environ,
    reason="needs root to write to /root, and a cluster on this machine",
)


@pytest.fixture
def secret() -> Iterator[Path]:
    """A file in the home directory of root."""
    with tempfile.TemporaryDirectory(dir="/root", prefix="kedge-test-") as directory:
        path = Path(directory) / "id_rsa"
        path.write_text("a private key")
        yield path


def test_a_pod_reads_no_home_directories_and_no_password_hashes(pods: Any, secret: Path) -> None:
    script = f"cat {secret}; cat /etc/shadow; ls -A /root /home; echo done"
    said = pods.says("reader", script)
    assert "a private key" not in said
    assert Path("/etc/shadow").read_text().splitlines()[0] not in said
    assert said.endswith("done")
    assert secret.parent.name not in said.splitlines()


def test_a_container_with_sys_admin_finds_nothing_below_what_is_hidden(
    pods: Any, secret: Path
) -> None:
    script = f"umount /root; umount /etc/shadow; cat {secret} /etc/shadow; echo done"
    more = {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}
    said = pods.says("unmounter", script, container=more)
    assert "a private key" not in said
    assert Path("/etc/shadow").read_text().splitlines()[0] not in said


def test_a_home_directory_is_empty_and_can_be_written_to(pods: Any) -> None:
    assert pods.says("writer", 'echo mine > "$HOME/file"; cat /root/file') == "mine"
    assert not Path("/root/file").exists()


def test_hidden_paths_are_listed_and_can_be_shown(
    own_cluster: Any, own_pods: Callable[..., Any], secret: Path
) -> None:
    running = own_cluster.up("--nodes=1", f"--host-image-show={secret.parent}")
    listed = own_cluster.kedge("image", "list", "host", *own_cluster.which)
    assert "/etc/shadow" in listed
    assert str(secret.parent) in listed
    mine = own_pods(running.api, "default")
    assert mine.says("shown", f"cat {secret}; ls -A /root") == f"a private key{secret.parent.name}"
    assert mine.says("unchanged", f"echo other > {secret}; cat {secret}") == "other"
    assert secret.read_text() == "a private key"


def test_the_image_can_be_switched_off(own_cluster: Any, own_pods: Callable[..., Any]) -> None:
    running = own_cluster.up("--nodes=1", "--no-host-image")
    mine = own_pods(running.api, "default")
    mine.create("refused")
    mine.when("refused", lambda pod: "--no-host-image" in str(pod["status"]))
    assert "switched off" in own_cluster.kedge("image", "list", "host", *own_cluster.which)


def test_kedges_own_files_stay_hidden_below_what_is_shown(
    own_clusters: Any, own_pods: Callable[..., Any]
) -> None:
    """Also from a container that may unmount what is mounted over them."""
    with tempfile.TemporaryDirectory(dir="/root", prefix="kedge-test-") as home:
        own = own_clusters.own(Path(home))
        running = own.up("--nodes=1", f"--host-image-show={home}")
        try:
            mine = own_pods(running.api, "default")
            more = {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}
            steal = f"cat {own.state}/token 2> /dev/null | wc -c"
            script = f"while umount {own.state}; do :; done; {steal}"
            said = mine.says("unmounter", f"{script}; echo done", container=more)
            assert (own.state / "token").stat().st_size > 0
        finally:
            own.down()
    assert "0" in said.splitlines()
    assert said.endswith("done")
