"""Health checks by name: /healthz, /livez and /readyz, printed as kube-apiserver prints them."""

import asyncio
import errno
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple

from kedge.apiserver.components import ControlPlaneComponents
from kedge.apiserver.watchcache import WatchCache
from kedge.machinery.clock import Clock
from kedge.storage.store import DISK_FULL, Store, StoreError
from kedge.web.message import Query, Response, text_response

log = logging.getLogger(__name__)

ENDPOINTS: Final = ("healthz", "livez", "readyz")
NOT_LIVEZ: Final = ("healthz", "readyz")
PATIENCE_SECONDS: Final = 2.0
"""How long a check may take before it counts as failed; upstream gives etcd the same time."""
_KEY: Final = "/registry/health"
"""The key that the store is asked for. It never exists; upstream reads the same one."""


class HealthCheck(NamedTuple):
    """One check with the name that requests and reports have for it."""

    name: str
    failure: Callable[[], Coroutine[Any, Any, str]]
    """Returns why the check fails; empty if it passes. The text is public."""
    endpoints: Sequence[str] = ENDPOINTS


class HealthChecks:
    """All checks of a server, and the pages that show their results."""

    def __init__(self, checks: Sequence[HealthCheck], clock: Clock) -> None:
        self._checks = {
            endpoint: {check.name: check for check in checks if endpoint in check.endpoints}
            for endpoint in ENDPOINTS
        }
        self._clock = clock

    def answer(self, endpoint: str, name: str, query: Query) -> Awaitable[Response] | None:
        """Return the page of an endpoint, or of its check of that name; None if it has none."""
        if not name:
            return self._all(endpoint, query)
        check = self._checks[endpoint].get(name)
        return None if check is None else self._one(check)

    async def _one(self, check: HealthCheck) -> Response:
        failure = await self._failure(check)
        if failure:
            return text_response(f"internal server error: {failure}\n", 500)
        return text_response("ok")

    async def _all(self, endpoint: str, query: Query) -> Response:
        checks, excluded = self._checks[endpoint], query.all("exclude")
        failures = {
            name: None if name in excluded else await self._failure(check)
            for name, check in checks.items()
        }
        has_passed = not any(failures.values())
        if has_passed and "verbose" not in query:
            return text_response("ok")
        lines = [*report(failures), *_unmatched(set(excluded) - set(checks))]
        lines.append(f"{endpoint} check {'passed' if has_passed else 'failed'}")
        return text_response("\n".join(lines) + "\n", 200 if has_passed else 500)

    async def _failure(self, check: HealthCheck) -> str:
        """Return why a check fails; one that takes too long fails, too."""
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(check.failure())
            timer = tasks.create_task(self._clock.sleep(PATIENCE_SECONDS))
            await asyncio.wait((asking, timer), return_when=asyncio.FIRST_COMPLETED)
            is_answered = asking.done()
            asking.cancel()
            timer.cancel()
        return asking.result() if is_answered else f"no answer within {PATIENCE_SECONDS:g} s"


def report(failures: Mapping[str, str | None]) -> Iterator[str]:
    """Return a line for each check; None stands for a check that was excluded.

    kube-apiserver writes "reason withheld" here and shows the reason on the check's own page. The
    reasons in kedge hold no secrets, and `[-]etcd failed: disk full` tells an administrator more.
    """
    for name, failure in failures.items():
        if failure is None:
            yield f"[+]{name} excluded: ok"
        else:
            yield f"[-]{name} failed: {failure}" if failure else f"[+]{name} ok"


def _unmatched(names: set[str]) -> Iterator[str]:
    if names:
        quoted = ",".join(json.dumps(name, ensure_ascii=False) for name in sorted(names))
        yield f"warn: some health checks cannot be excluded: no matches for {quoted}"


class StartStep(Enum):
    """A step of a server's start, and the checks that say whether it is done.

    The checks have the names of kube-apiserver's hooks that do the same work. A hook that starts a
    controller is done when the controller runs, not after its first round; so is kedge's.
    """

    CACHES = (
        "poststarthook/start-apiserver-admission-initializer",
        "poststarthook/generic-apiserver-start-informers",
        "poststarthook/priority-and-fairness-config-consumer",
        "poststarthook/priority-and-fairness-filter",
        "poststarthook/storage-readiness",
        "poststarthook/start-apiextensions-informers",
        "poststarthook/start-service-ip-repair-controllers",
        "poststarthook/start-kube-aggregator-informers",
    )
    """Every kind is in the watch cache; admission, flow control and allocators follow it."""
    CUSTOM_RESOURCES = (
        "poststarthook/start-apiextensions-controllers",
        "poststarthook/crd-informer-synced",
    )
    """Custom resources are served."""
    SYSTEM_OBJECTS = (
        "poststarthook/bootstrap-controller",
        "poststarthook/start-system-namespaces-controller",
        "poststarthook/scheduling/bootstrap-system-priority-classes",
    )
    """The API's Service, system namespaces and priority classes exist."""
    ROLES = ("poststarthook/rbac/bootstrap-roles",)
    CLUSTER_INFO = ("poststarthook/cluster-info",)
    """The ConfigMap by which nodes join exists. kubeadm writes it elsewhere."""
    CONTROLLERS = (
        "poststarthook/start-kubernetes-service-cidr-controller",
        "poststarthook/priority-and-fairness-config-producer",
        "poststarthook/start-cluster-authentication-info-controller",
        "poststarthook/apiservice-registration-controller",
        "poststarthook/apiservice-status-local-available-controller",
        "poststarthook/apiservice-status-remote-available-controller",
        "poststarthook/kube-apiserver-autoregistration",
        "poststarthook/apiservice-openapi-controller",
        "poststarthook/apiservice-openapiv3-controller",
        "poststarthook/apiservice-discovery-controller",
    )
    """The work that runs as long as the server has been started."""
    REGISTRATION = ("autoregister-completion",)
    """Every version that the server serves itself has its APIService."""


class ServerLifecycle:
    """How far the start of a server is, and whether it shuts down."""

    def __init__(self) -> None:
        self._finished = {step: asyncio.Event() for step in StartStep}
        self._is_stopping = False

    def finish(self, step: StartStep) -> None:
        """Note that a step of the start is done."""
        self._finished[step].set()

    def stop(self) -> None:
        """Note that the server is shutting down."""
        self._is_stopping = True

    async def start_failure(self, step: StartStep) -> str:
        return "" if self._finished[step].is_set() else "not finished"

    async def wait_for_step(self, step: StartStep) -> str:
        """Wait until a step is done. APIServices are made half a second after the first answer."""
        await self._finished[step].wait()
        return ""

    async def shutdown_failure(self) -> str:
        return "process is shutting down" if self._is_stopping else ""


def server_checks(
    store: Store, cache: WatchCache, lifecycle: ServerLifecycle, components: ControlPlaneComponents
) -> list[HealthCheck]:
    """Return the checks of an API server, with upstream's names as far as upstream has them.

    A failed /livez asks for a restart of the process. So it leaves out what a restart does not
    repair: a full disk, controllers that wait for their lease.
    """
    return [
        HealthCheck("ping", _ping),
        HealthCheck("log", _log_failure),
        HealthCheck("etcd", partial(_store_failure, store), NOT_LIVEZ),
        HealthCheck("etcd", partial(_store_defect, store), ("livez",)),
        *(HealthCheck(name, failure, NOT_LIVEZ) for name, failure in _key_services(store).items()),
        HealthCheck("watch-cache", partial(_cache_failure, store, cache)),
        HealthCheck("informer-sync", partial(_cache_failure, store, cache), ("readyz",)),
        *_start_checks(lifecycle),
        *(
            HealthCheck(name, partial(_component_failure, components, name), NOT_LIVEZ)
            for name in components.names
        ),
        HealthCheck("shutdown", lifecycle.shutdown_failure, ("readyz",)),
    ]


def _start_checks(lifecycle: ServerLifecycle) -> Iterator[HealthCheck]:
    for step in StartStep:
        is_waited_for = step is StartStep.REGISTRATION
        ask = lifecycle.wait_for_step if is_waited_for else lifecycle.start_failure
        yield from (HealthCheck(name, partial(ask, step)) for name in step.value)


def _key_services(store: Store) -> Mapping[str, Callable[[], Coroutine[Any, Any, str]]]:
    # Only a store that encrypts has them; the module behind it is seldom loaded.
    checks = getattr(store, "health", None)
    return {} if checks is None else checks()


async def _ping() -> str:
    return ""


async def _log_failure() -> str:
    """Return why the log cannot be written. A blocked log blocks every answer, this one too."""
    try:
        for handler in logging.getLogger().handlers:
            handler.flush()
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) != errno.ENOSPC:  # a full disk is the store's to report
            return "the log cannot be written"
    return ""


async def _store_failure(store: Store) -> str:
    """Return why the store cannot be written or read."""
    return store.failure or await _read_failure(store)


async def _store_defect(store: Store) -> str:
    return (store.failure if store.failure != DISK_FULL else "") or await _read_failure(store)


async def _read_failure(store: Store) -> str:
    try:
        await store.get(_KEY)
    except StoreError as error:
        log.error("health check failed check=etcd error=%r", str(error))
        return "the store cannot be read"
    return ""


async def _cache_failure(store: Store, cache: WatchCache) -> str:
    """Wait for the newest write of the store, which a watch cache that is fed reaches at once."""
    await cache.reached(store.revision)
    return ""


async def _component_failure(components: ControlPlaneComponents, name: str) -> str:
    return components.failure(name)
