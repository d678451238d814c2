"""A CRI-O for tests, with directories and a socket of its own. It pulls its images from a registry
in this process, because it has no command to load them."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from kedge.deviceplugin import library, methods
from kedge.deviceplugin.methods import Method
from kedge.node.runtime.cri import messages as m
from kedge.testing import images
from kedge.testing.container_daemon import BOX, BUSYBOX, PAUSE, box, pause, unmount_below
from kedge.testing.registry import FakeRegistry, registry

Q = TypeVar("Q")
A = TypeVar("A")

PROGRAM: Final = "KEDGE_TEST_CRIO"
"""The variable with the path of `crio`. Programs that it needs stand beside it or on the PATH."""
_CONFIG: Final = """\
[crio]
root = "{place}/root"
runroot = "{place}/run"
log_dir = "{place}/logs"
version_file = "{place}/version"
version_file_persist = "{place}/version-persist"
clean_shutdown_file = "{place}/clean.shutdown"
[crio.api]
listen = "{place}/crio.sock"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
default_runtime = "{handler}"
container_exits_dir = "{place}/exits"
container_attach_socket_dir = "{attach}"
namespaces_dir = "{place}/namespaces"
pinns_path = "{pinns}"
irqbalance_config_restore_file = "disable"
disable_hostport_mapping = true
[crio.runtime.runtimes.{handler}]
runtime_path = "{runtime}"
runtime_root = "{place}/{handler}"
monitor_path = "{monitor}"
[crio.image]
pause_image = "{pause}"
pause_command = ""
signature_policy = "{place}/policy.json"
[crio.network]
network_dir = "{place}/cni/net.d"
plugin_dirs = ["{place}/cni/bin"]
[crio.nri]
enable_nri = false
"""
_POLICY: Final = '{"default": [{"type": "insecureAcceptAnything"}]}\n'
_REGISTRIES: Final = """\
unqualified-search-registries = ["docker.io"]
[[registry]]
prefix = "registry.example"
location = "{host}"
insecure = true
[[registry]]
prefix = "docker.io"
location = "{host}"
insecure = true
[[registry]]
location = "localhost"
insecure = true
"""
_HANDLERS: Final = ("runc", "crun")
"""Debian 12 has a crun that is too old for CRI-O 1.36, so its runc comes first."""
_START_SECONDS: Final = 30.0
_CALL_SECONDS: Final = 60.0


def program() -> str:
    """Return the CRI-O to test with; empty if none was named."""
    return os.environ.get(PROGRAM, "")


def lacks() -> str:
    """Return what the machine lacks for CRI-O; empty if nothing."""
    missing = [name for name in ("conmon", "pinns") if not _find(name)]
    if not any(_find(name) for name in _HANDLERS):
        missing.append("crun or runc")
    if not BUSYBOX.exists():
        missing.append("a static busybox")
    return f"no {', '.join(missing)}, which CRI-O needs" if missing else ""


def _find(name: str) -> str:
    """Return the path of a program beside CRI-O, or else on the PATH."""
    return _beside(name) or shutil.which(name) or ""


def _beside(name: str) -> str:
    found = Path(program()).with_name(name)
    return str(found) if found.exists() else ""


def _handler() -> str:
    """Return the name of the program that starts containers."""
    beside = [name for name in _HANDLERS if _beside(name)]
    return next(name for name in (*beside, *_HANDLERS) if _find(name))


class TestCrio:
    """A running CRI-O; it can be killed and started again. Fulfils
    kedge.testing.container_daemon.RuntimeDaemon."""

    __test__ = False
    name = "cri-o"

    def __init__(self, place: Path) -> None:
        self.place = place
        self.socket = place / "crio.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self._images = _ServedRegistry()
        # The name of a socket below it has 72 characters more, and may have 107.
        self._attach = Path(tempfile.mkdtemp(prefix="crio-"))

    def start(self) -> None:
        """Start it, and return when it answers."""
        self._images.start()
        self._configure()
        with open(self.place / "log", "ab") as log:
            run = [program(), "--config", f"{self.place}/crio.conf", "--config-dir", ""]
            run += ["--registries-conf", f"{self.place}/registries.conf"]
            run += ["--registries-conf-dir", f"{self.place}/registries.conf.d"]
            self._process = subprocess.Popen(run, stdout=log, stderr=log)
        self._call(m.VERSION, m.CriVersionRequest(), _START_SECONDS)

    def _configure(self) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        handler = _handler()
        config = _CONFIG.format(
            place=self.place,
            attach=self._attach,
            pause=PAUSE,
            pinns=_find("pinns"),
            handler=handler,
            runtime=_find(handler),
            monitor=_find("conmon"),
        )
        (self.place / "crio.conf").write_text(config)
        (self.place / "policy.json").write_text(_POLICY)
        registries = _REGISTRIES.format(host=self._images.serving.host)
        (self.place / "registries.conf").write_text(registries)

    def load(self, image: images.BuiltImage, *names: str) -> None:
        """Pull an image under these names."""
        for name in names:
            self._images.serving.push(name.partition("/")[2], image)
            request = m.CriPullRequest(image=m.CriImageSpec(image=name))
            self._call(m.PULL_IMAGE, request)

    def containers(self) -> list[str]:
        """The ids of all containers, and of all sandboxes."""
        containers = self._call(m.LIST_CONTAINERS, m.CriListContainersRequest()).containers
        sandboxes = self._call(m.LIST_SANDBOXES, m.CriListSandboxesRequest()).items
        return [*(each.id for each in containers), *(each.id for each in sandboxes)]

    def _call(self, method: Method[Q, A], request: Q, seconds: float = _CALL_SECONDS) -> A:
        grpc = library.load()
        options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"unix:{self.socket}", options=options) as channel:
            calling: Any = methods.caller(channel, method)
            answer: A = calling(request, timeout=seconds, wait_for_ready=True)
            return answer

    def kill(self) -> None:
        """Kill it; its containers go on."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it."""
        self._end(signal.SIGTERM)
        self._images.stop()
        unmount_below(self.place)
        shutil.rmtree(self._attach)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None


class _ServedRegistry:
    """A registry in a thread, for callers with and without an event loop."""

    def __init__(self) -> None:
        self.serving = FakeRegistry()
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._is_over = asyncio.Event()

    def start(self) -> None:
        if self._thread is not None:
            return
        is_ready = threading.Event()
        serving = self._serve(is_ready)
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[serving])
        self._thread.start()
        is_ready.wait()

    async def _serve(self, is_ready: threading.Event) -> None:
        async with registry() as self.serving:
            is_ready.set()
            await self._is_over.wait()

    def stop(self) -> None:
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._is_over.set)
            self._thread.join()
            self._loop.close()


@contextlib.contextmanager
def running(place: Path) -> Iterator[TestCrio]:
    """Yield a CRI-O with the images PAUSE and BOX."""
    crio = TestCrio(place)
    try:
        crio.start()
        crio.load(pause(), PAUSE)
        crio.load(box(), BOX)
        yield crio
    finally:
        crio.stop()
