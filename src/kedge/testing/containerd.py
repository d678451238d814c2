"""A containerd for tests, with a directory and a socket of its own, and images from memory."""

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kedge.testing import images
from kedge.testing.container_daemon import BOX, BUSYBOX, PAUSE, box, pause, unmount_below

_CONFIG: Final = """\
version = 2
root = "{place}/root"
state = "{place}/state"
[grpc]
  address = "{place}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{place}/cni/bin"
    conf_dir = "{place}/cni/net.d"
"""
_ATTEMPTS: Final = 300


def lacks() -> str:
    """Return what the machine lacks for containerd; empty if nothing."""
    missing = [name for name in ("containerd", "runc", "ctr") if shutil.which(name) is None]
    if not BUSYBOX.exists():
        missing.append("a static busybox")
    return f"no {', '.join(missing)}: run 'tools/setup containerd'" if missing else ""


class TestContainerd:
    """A running containerd; it can be killed and started again. Fulfils
    kedge.testing.container_daemon.RuntimeDaemon."""

    __test__ = False
    name = "containerd"

    def __init__(self, place: Path) -> None:
        self.place = place
        self.socket = place / "containerd.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it answers."""
        self._spawn()
        for _ in range(_ATTEMPTS):
            # Each attempt takes a while, in a process of its own.
            if not (complaint := self._ctr("version")):
                return
        raise AssertionError(complaint)

    def _spawn(self) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        config = self.place / "config.toml"
        config.write_text(_CONFIG.format(place=self.place, pause=PAUSE))
        with open(self.place / "log", "ab") as log:
            run = ["containerd", "--config", str(config)]
            self._process = subprocess.Popen(run, stdout=log, stderr=log)

    def load(self, image: images.BuiltImage, *names: str) -> None:
        """Import an image under these names."""
        archive = self.place / "image.tar"
        archive.write_bytes(images.layer(images.layout_files((image, names))))
        failed = self._ctr("--namespace", "k8s.io", "images", "import", str(archive))
        assert not failed, failed

    def containers(self) -> list[str]:
        """The ids of all containers, those of sandboxes included."""
        run = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io"]
        run += ["containers", "list", "--quiet"]
        return subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()

    def _ctr(self, *arguments: str) -> str:
        """Run a command; return its complaint."""
        run = ["ctr", "--address", str(self.socket), *arguments]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        return done.stderr or str(done.returncode) if done.returncode else ""

    def kill(self) -> None:
        """Kill it; its containers go on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None
        unmount_below(self.place)


@contextlib.contextmanager
def running(place: Path) -> Iterator[TestContainerd]:
    """Yield a containerd with the images PAUSE and BOX."""
    containerd = TestContainerd(place)
    containerd.start()
    try:
        containerd.load(pause(), PAUSE)
        containerd.load(box(), BOX)
        yield containerd
    finally:
        containerd.stop()
