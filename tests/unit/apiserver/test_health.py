"""/healthz, /livez and /readyz: what they ask, and how they print it."""

import asyncio
import errno
import logging
from collections.abc import AsyncIterator

import pytest

from kedge.apiserver.components import ControlPlaneComponents
from kedge.apiserver.health import PATIENCE_SECONDS, ServerLifecycle, StartStep, report
from kedge.storage.memory import MemoryStore
from kedge.storage.store import DISK_FULL, StoreEntry, StoreError
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalAnswer, LocalServer
from kedge.web.duplex import turn

EVERYTHING = """\
[+]ping ok
[+]log ok
[+]etcd ok
[+]watch-cache ok
[+]informer-sync ok
[+]poststarthook/start-apiserver-admission-initializer ok
[+]poststarthook/generic-apiserver-start-informers ok
[+]poststarthook/priority-and-fairness-config-consumer ok
[+]poststarthook/priority-and-fairness-filter ok
[+]poststarthook/storage-readiness ok
[+]poststarthook/start-apiextensions-informers ok
[+]poststarthook/start-service-ip-repair-controllers ok
[+]poststarthook/start-kube-aggregator-informers ok
[+]poststarthook/start-apiextensions-controllers ok
[+]poststarthook/crd-informer-synced ok
[+]poststarthook/bootstrap-controller ok
[+]poststarthook/start-system-namespaces-controller ok
[+]poststarthook/scheduling/bootstrap-system-priority-classes ok
[+]poststarthook/rbac/bootstrap-roles ok
[+]poststarthook/cluster-info ok
[+]poststarthook/start-kubernetes-service-cidr-controller ok
[+]poststarthook/priority-and-fairness-config-producer ok
[+]poststarthook/start-cluster-authentication-info-controller ok
[+]poststarthook/apiservice-registration-controller ok
[+]poststarthook/apiservice-status-local-available-controller ok
[+]poststarthook/apiservice-status-remote-available-controller ok
[+]poststarthook/kube-apiserver-autoregistration ok
[+]poststarthook/apiservice-openapi-controller ok
[+]poststarthook/apiservice-openapiv3-controller ok
[+]poststarthook/apiservice-discovery-controller ok
[+]autoregister-completion ok
[+]shutdown ok
readyz check passed
"""


class SickStore(MemoryStore):
    """A store that fails as the test says."""

    trouble = ""
    read_error = ""
    hangs = False

    @property
    def failure(self) -> str:
        return self.trouble

    async def get(self, key: str) -> StoreEntry | None:
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        if self.read_error:
            raise StoreError(self.read_error)
        return await super().get(key)


@pytest.fixture
def store() -> SickStore:
    return SickStore(FakeClock())


@pytest.fixture
async def sick(store: SickStore) -> AsyncIterator[LocalServer]:
    async with LocalServer.running(store) as server:
        yield server


async def patient(server: LocalServer, path: str) -> LocalAnswer:
    """The answer after as long as a check may take."""
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(server.call("GET", path))
        await server.clock.advance(PATIENCE_SECONDS)
    return asking.result()


@pytest.mark.parametrize("endpoint", ["healthz", "livez", "readyz"])
async def test_a_healthy_server_says_ok(server: LocalServer, endpoint: str) -> None:
    answer = await server.call("GET", f"/{endpoint}", token=None)
    assert (answer.status, answer.text) == (200, "ok")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    verbose = await server.call("GET", f"/{endpoint}?verbose", token=None)
    assert verbose.text.startswith("[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]watch-cache ok\n")
    assert verbose.text.endswith(f"{endpoint} check passed\n")


async def test_verbose_lists_every_check(server: LocalServer) -> None:
    assert (await server.call("GET", "/readyz?verbose")).text == EVERYTHING


async def test_livez_lists_the_start_as_upstream_does(server: LocalServer) -> None:
    only_ready = ("[+]informer-sync ok\n", "[+]shutdown ok\n")
    expected = EVERYTHING.replace("readyz", "livez")
    for line in only_ready:
        expected = expected.replace(line, "")
    assert (await server.call("GET", "/livez?verbose")).text == expected


async def test_a_step_of_the_start_that_is_not_done_fails_its_checks() -> None:
    lifecycle = ServerLifecycle()
    assert await lifecycle.start_failure(StartStep.ROLES) == "not finished"
    lifecycle.finish(StartStep.ROLES)
    assert await lifecycle.start_failure(StartStep.ROLES) == ""
    assert await lifecycle.start_failure(StartStep.CONTROLLERS) == "not finished"


async def test_missing_api_services_are_waited_for() -> None:
    lifecycle = ServerLifecycle()
    asking = asyncio.ensure_future(lifecycle.wait_for_step(StartStep.REGISTRATION))
    await turn()
    assert not asking.done()
    lifecycle.finish(StartStep.REGISTRATION)
    assert await asking == ""


@pytest.mark.parametrize(
    ("error", "status"), [(errno.EIO, 500), (errno.ENOSPC, 200)], ids=["broken", "full disk"]
)
async def test_a_log_that_cannot_be_written_fails(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, error: int, status: int
) -> None:
    def flush() -> None:
        raise OSError(error, "failed")

    handler = logging.NullHandler()
    monkeypatch.setattr(handler, "flush", flush)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    assert (await server.call("GET", "/livez/log")).status == status


async def test_a_check_has_a_page_of_its_own(server: LocalServer) -> None:
    for check in ("ping", "etcd", "watch-cache", "poststarthook/rbac/bootstrap-roles"):
        answer = await server.call("GET", f"/readyz/{check}")
        assert (answer.status, answer.text) == (200, "ok")
    for path in ("/readyz/nothing", "/readyz/poststarthook", "/livez/shutdown"):
        answer = await server.call("GET", path)
        assert (answer.status, answer.text) == (404, "404 page not found\n")
    assert (await server.call("POST", "/readyz")).status == 405
    assert (await server.call("POST", "/readyz/etcd")).status == 405


async def test_a_full_disk_fails_all_but_livez(store: SickStore, sick: LocalServer) -> None:
    store.trouble = DISK_FULL
    answer = await sick.call("GET", "/readyz")
    assert answer.status == 500
    assert answer.text == EVERYTHING.replace("[+]etcd ok", "[-]etcd failed: disk full").replace(
        "passed", "failed"
    )
    one = await sick.call("GET", "/readyz/etcd")
    assert (one.status, one.text) == (500, "internal server error: disk full\n")
    assert (await sick.call("GET", "/healthz")).status == 500
    assert (await sick.call("GET", "/livez")).text == "ok"


async def test_a_damaged_store_fails_livez_too(store: SickStore, sick: LocalServer) -> None:
    store.trouble = "the file is in doubt"
    for endpoint in ("healthz", "livez", "readyz"):
        answer = await sick.call("GET", f"/{endpoint}")
        assert "[-]etcd failed: the file is in doubt\n" in answer.text


async def test_a_store_that_cannot_be_read_is_noticed(
    store: SickStore, sick: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    store.read_error = "/secret/path: disk I/O error"
    answer = await sick.call("GET", "/livez")
    assert (answer.status, "[-]etcd failed: the store cannot be read\n" in answer.text) == (
        500,
        True,
    )
    assert "/secret/path" not in answer.text
    assert "/secret/path: disk I/O error" in caplog.text


async def test_a_store_that_hangs_is_noticed(store: SickStore, sick: LocalServer) -> None:
    store.hangs = True
    answer = await patient(sick, "/livez/etcd")
    assert (answer.status, answer.text) == (500, "internal server error: no answer within 2 s\n")


async def test_a_watch_cache_that_lags_is_noticed(server: LocalServer) -> None:
    server.app.api.cache.revision -= 1
    answer = await patient(server, "/livez/watch-cache")
    assert (answer.status, answer.text) == (500, "internal server error: no answer within 2 s\n")


async def test_checks_can_be_excluded(store: SickStore, sick: LocalServer) -> None:
    store.trouble = DISK_FULL
    answer = await sick.call("GET", "/readyz?exclude=etcd")
    assert (answer.status, answer.text) == (200, "ok")
    verbose = await sick.call("GET", "/readyz?verbose&exclude=etcd&exclude=x&exclude=a")
    assert "[+]etcd excluded: ok\n" in verbose.text
    assert verbose.text.endswith(
        'warn: some health checks cannot be excluded: no matches for "a","x"\nreadyz check passed\n'
    )


async def test_components_of_the_same_process_are_checks() -> None:
    components = ControlPlaneComponents(["kube-controller-manager", "kube-scheduler"])
    components.report("kube-scheduler", lambda: "")
    async with LocalServer.running(components=components) as server:
        answer = await server.call("GET", "/readyz")
        assert answer.status == 500
        assert "[-]kube-controller-manager failed: not started\n" in answer.text
        assert "[+]kube-scheduler ok\n" in answer.text
        assert (await server.call("GET", "/livez")).text == "ok"
        components.report("kube-controller-manager", lambda: "")
        assert (await server.call("GET", "/readyz")).text == "ok"


async def test_a_server_that_shuts_down_is_not_ready(server: LocalServer) -> None:
    server.lifecycle.stop()
    answer = await server.call("GET", "/readyz")
    assert "[-]shutdown failed: process is shutting down\n" in answer.text
    for endpoint in ("healthz", "livez"):
        assert (await server.call("GET", f"/{endpoint}")).text == "ok"


def test_report_of_checks() -> None:
    assert list(report({"a": "", "b": "broken", "c": None})) == [
        "[+]a ok",
        "[-]b failed: broken",
        "[+]c excluded: ok",
    ]
