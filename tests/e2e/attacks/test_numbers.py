"""A tenant writes a large number into a small object: the server works it off bit by bit.

Each object here is created by a tenant with the role `edit` in one namespace. The server's memory
stays bounded, other requests are answered, the server comes back with the object in its store, and
the object can be deleted.
"""

from __future__ import annotations

import copy
import json
import resource
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kedge.machinery.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.e2e.conftest import Api, OwnCluster

INT32 = 2**31 - 1
INT64 = 2**63 - 1
HUNDRED_DIGITS = "9" * 100
GROWTH = 400 << 20
"""Bytes by which the server may grow: five hundred waiting pods take some."""
ALLOWED = 3 << 30
"""Bytes of address space that the server gets: one that would take all there is fails sooner."""
LONGEST_SECONDS = 1.0
"""Within this, others get their answers."""
OBSERVED_SECONDS = 2.0

NAMESPACE = "tenant"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}"
BATCH = f"/apis/batch/v1/namespaces/{NAMESPACE}"
SCALING = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}"
POLICY = f"/apis/policy/v1/namespaces/{NAMESPACE}"

LABELS = {"app": "poison"}
CONTAINER = {"name": "main", "image": "host"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [CONTAINER]}}
ENDING = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}

Json = dict[str, Any]


def workload(**spec: Any) -> Json:
    selector = {"matchLabels": LABELS}
    return {"spec": {"replicas": INT32, "selector": selector, "template": TEMPLATE, **spec}}


def job(**spec: Any) -> Json:
    return {"spec": {"template": ENDING, **spec}}


def cron_job(**spec: Any) -> Json:
    return {"spec": {"jobTemplate": job(), **spec}}


def rolling(**pace: Any) -> Json:
    return {"type": "RollingUpdate", "rollingUpdate": pace}


def policies(value: int) -> Json:
    return {"policies": [{"type": "Percent", "value": value, "periodSeconds": 1800}] * 50}


SPARSE = ",".join(str(index) for index in range(0, 20_000, 2))
"""As many separate numbers as 64 KB hold."""

POISONS: dict[str, tuple[str, Json]] = {
    "stateful-set": (f"{APPS}/statefulsets", workload(serviceName="x")),
    "stateful-set-parallel": (
        f"{APPS}/statefulsets",
        workload(serviceName="x", podManagementPolicy="Parallel"),
    ),
    "stateful-set-rolling": (
        f"{APPS}/statefulsets",
        workload(
            serviceName="x",
            ordinals={"start": INT32},
            revisionHistoryLimit=INT32,
            minReadySeconds=INT32,
            updateStrategy=rolling(partition=INT32, maxUnavailable="100%"),
        ),
    ),
    "replica-set": (f"{APPS}/replicasets", workload(minReadySeconds=INT32)),
    "replication-controller": (
        f"{CORE}/replicationcontrollers",
        {"spec": {"replicas": INT32, "selector": LABELS, "template": TEMPLATE}},
    ),
    "deployment": (
        f"{APPS}/deployments",
        workload(
            strategy=rolling(maxSurge=f"{HUNDRED_DIGITS}%", maxUnavailable=0),
            minReadySeconds=INT32 - 1,
            progressDeadlineSeconds=INT32,
            revisionHistoryLimit=INT32,
        ),
    ),
    "job": (
        f"{BATCH}/jobs",
        job(parallelism=INT32, completions=INT32, backoffLimit=INT32, activeDeadlineSeconds=INT64),
    ),
    "job-indexed": (
        f"{BATCH}/jobs",
        job(
            completionMode="Indexed",
            completions=100_000,
            parallelism=100_000,
            backoffLimitPerIndex=INT32,
            maxFailedIndexes=100_000,
            ttlSecondsAfterFinished=INT32,
            successPolicy={"rules": [{"succeededIndexes": SPARSE, "succeededCount": 9}] * 20},
        ),
    ),
    "cron-job-never": (f"{BATCH}/cronjobs", cron_job(schedule=", * * * *")),
    "cron-job-no-hour": (f"{BATCH}/cronjobs", cron_job(schedule="* , * * *")),
    "cron-job-february": (
        f"{BATCH}/cronjobs",
        cron_job(schedule="* * 30 2 *", timeZone="America/New_York"),
    ),
    "cron-job-deadline": (
        f"{BATCH}/cronjobs",
        cron_job(schedule="@every 1s", startingDeadlineSeconds=INT64, suspend=True),
    ),
    "autoscaler": (
        f"{SCALING}/horizontalpodautoscalers",
        {
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"},
                "minReplicas": INT32,
                "maxReplicas": INT32,
                "behavior": {"scaleUp": policies(INT32), "scaleDown": policies(INT32)},
            }
        },
    ),
    "disruption-budget": (
        f"{POLICY}/poddisruptionbudgets",
        {"spec": {"minAvailable": INT32, "selector": {"matchLabels": LABELS}}},
    ),
    "service-ports": (
        f"{CORE}/services",
        {
            "spec": {
                "selector": LABELS,
                "clusterIP": "None",
                "ports": [
                    {"name": f"p{i}", "port": i, "targetPort": f"p{i}"} for i in range(1, 10_001)
                ],
            }
        },
    ),
    "affinity": (
        f"{CORE}/pods",
        {
            "spec": {
                "containers": [CONTAINER],
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "topologyKey": "kubernetes.io/hostname",
                                "labelSelector": {"matchLabels": {f"k{i}": "v"}},
                            }
                            for i in range(8_000)
                        ]
                    }
                },
            }
        },
    ),
    "owners": (
        f"{CORE}/configmaps",
        {
            "metadata": {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Secret", "name": f"s{i}", "uid": f"u{i}"}
                    for i in range(1_000)  # no object has more
                ]
            }
        },
    ),
}


REFUSED: dict[str, tuple[str, Json]] = {
    "quantity-exponent": (
        f"{CORE}/pods",
        {"spec": {"containers": [{**CONTAINER, "resources": {"limits": {"cpu": "1e1000000"}}}]}},
    ),
    "quantity-digits": (
        f"{CORE}/pods",
        {
            "spec": {
                "containers": [{**CONTAINER, "resources": {"limits": {"cpu": "1" + "0" * 100_000}}}]
            }
        },
    ),
    "replicas-beyond-32-bits": (f"{APPS}/replicasets", workload(replicas=2**31)),
    "replicas-beyond-64-bits": (f"{APPS}/replicasets", workload(replicas=2**64)),
    "share": (
        f"{APPS}/deployments",
        workload(strategy=rolling(maxUnavailable="9" * 5000 + "%")),
    ),
    "budget-share": (
        f"{POLICY}/poddisruptionbudgets",
        {"spec": {"minAvailable": "9" * 5000 + "%", "selector": {"matchLabels": LABELS}}},
    ),
    "schedule-digits": (f"{BATCH}/cronjobs", cron_job(schedule=f"{'9' * 5000} * * * *")),
    "indexes-digits": (
        f"{BATCH}/jobs",
        job(
            completionMode="Indexed",
            completions=5,
            parallelism=5,
            successPolicy={"rules": [{"succeededIndexes": "9" * 5000}]},
        ),
    ),
    "deletion-cost": (
        f"{CORE}/pods",
        {
            "metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "9" * 5000}},
            "spec": {"containers": [CONTAINER]},
        },
    ),
}
"""What upstream refuses, or what its parsers cannot read either."""

ACCEPTED: dict[str, tuple[str, Json]] = {
    "surge-digits": (
        f"{APPS}/deployments",
        workload(replicas=1, strategy=rolling(maxSurge="9" * 5000 + "%", maxUnavailable=0)),
    ),
    "template-generation": (
        f"{APPS}/daemonsets",
        {
            "metadata": {"annotations": {"deprecated.daemonset.template.generation": "9" * 5000}},
            "spec": {"selector": {"matchLabels": LABELS}, "template": TEMPLATE},
        },
    ),
    "grace-period": (
        f"{CORE}/pods",
        {"spec": {"containers": [CONTAINER], "terminationGracePeriodSeconds": INT64}},
    ),
}
"""What upstream accepts: it must not fail half-way."""


class Latency:
    """Asks the server something small over and over, as its other users do."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._ending = threading.Event()
        self.longest = 0.0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Latency:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        clock = SystemClock()
        request = self._api.request("GET", "/api/v1/namespaces/default")
        while not self._ending.is_set():
            begun = clock.monotonic()
            try:
                self._api.open(request, timeout=5).read()
            except OSError:
                self.longest = float("inf")
                return
            self.longest = max(self.longest, clock.monotonic() - begun)
            time.sleep(0.02)


def limited(own: OwnCluster) -> int:
    """Keep the server from taking the machine's memory, should it try; returns its process."""
    pid = own.pid()
    resource.prlimit(pid, resource.RLIMIT_AS, (ALLOWED, ALLOWED))
    return pid


def memory(pid: int) -> int:
    """The most memory that a process has held, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


@pytest.fixture
def tenant(own_cluster: OwnCluster, eventually: Callable[..., Any]) -> Api:
    return settle(own_cluster, eventually)


class Town(NamedTuple):
    """A cluster, and one of its tenants."""

    own: OwnCluster
    tenant: Api


@pytest.fixture(scope="module")
def town(
    own_clusters: Any, eventually: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Town]:
    """One for all poisons."""
    own = own_clusters.own(tmp_path_factory.mktemp("poisoned"))
    yield Town(own, settle(own, eventually))
    own.kedge("down", *own.which, "--purge")


def settle(own: OwnCluster, eventually: Callable[..., Any]) -> Api:
    """A service account with the role `edit` in one namespace of a new cluster."""
    admin = own.up().api
    limited(own)
    admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    admin.create(f"{CORE}/serviceaccounts", {"metadata": {"name": "worker"}})
    admin.create(
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings",
        {
            "metadata": {"name": "workers"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "edit",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "worker", "namespace": NAMESPACE}],
        },
    )
    made = admin.create(f"{CORE}/serviceaccounts/worker/token", {"spec": {}})
    tenant = copy.copy(admin)
    tenant.token = made["status"]["token"]
    # At a cluster's first start the role `edit` is put together a moment later.
    eventually(lambda: tenant.serves(f"{CORE}/secrets"))
    return tenant


def poisoned(document: Json, name: str = "poison") -> Json:
    metadata = document.get("metadata", {})
    return {**document, "metadata": {**metadata, "name": name, "namespace": NAMESPACE}}


def remove(admin: Api, names: Iterable[str], eventually: Callable[..., Any]) -> None:
    """Delete objects that may have ended and gone by themselves."""
    for name in names:
        path, _ = POISONS[name]
        if admin.exists(f"{path}/{name}"):
            admin.delete(f"{path}/{name}", {"propagationPolicy": "Background"})
    for name in names:
        eventually(lambda place=f"{POISONS[name][0]}/{name}": not admin.exists(place))


@pytest.mark.parametrize("name", POISONS)
def test_a_large_number_in_a_small_object_leaves_the_server_to_others(
    name: str, town: Town, eventually: Callable[..., Any]
) -> None:
    path, document = POISONS[name]
    pid = town.own.pid()
    before = memory(pid)
    admin = tenant_of_default(town.tenant, town.own)
    with Latency(admin) as latency:
        town.tenant.create(path, poisoned(document, name))
        time.sleep(OBSERVED_SECONDS)
        remove(town.tenant, [name], eventually)
    assert latency.longest < LONGEST_SECONDS
    assert memory(pid) - before < GROWTH


def test_a_start_bears_what_the_store_holds(town: Town, eventually: Callable[..., Any]) -> None:
    """All of it at once."""
    before = memory(town.own.pid())
    for name, (path, document) in POISONS.items():
        town.tenant.create(path, poisoned(document, name))
    town.own.kill()
    admin = town.own.up().api
    pid = limited(town.own)
    town.tenant.url = admin.url
    with Latency(admin) as latency:
        time.sleep(OBSERVED_SECONDS)
        remove(town.tenant, POISONS, eventually)
    assert latency.longest < LONGEST_SECONDS
    assert memory(pid) < before + GROWTH


def test_numbers_that_nothing_can_hold_are_refused_in_words(tenant: Api) -> None:
    told = {}
    for name, (path, document) in REFUSED.items():
        request = tenant.request("POST", path, poisoned(document))
        with pytest.raises(Exception, match=r"^(400|422): ") as refusal:
            tenant.open(request, timeout=LONGEST_SECONDS)
        told[name] = str(refusal.value)
    assert not [each for each in told.values() if "4300 digits" in each]


def test_numbers_that_upstream_accepts_do_not_fail_half_way(
    tenant: Api, own_cluster: OwnCluster, eventually: Callable[..., Any]
) -> None:
    for path, document in ACCEPTED.values():
        tenant.create(path, poisoned(document))
    time.sleep(1)
    for path, _ in ACCEPTED.values():
        tenant.delete(f"{path}/poison", {"propagationPolicy": "Background"})
        eventually(lambda path=path: not tenant.exists(f"{path}/poison"))
    log = (own_cluster.state / "server.log").read_text()
    assert "Traceback" not in log


def test_a_poisoned_cluster_starts_without_the_controller_that_fails(
    tenant: Api, own_cluster: OwnCluster, eventually: Callable[..., Any]
) -> None:
    path, document = POISONS["stateful-set"]
    own_cluster.kedge("down", *own_cluster.which)
    own_cluster.up("--controllers=*,-statefulset")
    tenant.url = (admin := own_cluster.up().api).url
    tenant.create(path, poisoned(document))
    time.sleep(0.5)
    # No controller has looked at it.
    assert "observedGeneration" not in admin.get(f"{path}/poison").get("status", {})
    assert not admin.get(f"{CORE}/pods")["items"]
    status = json.loads(own_cluster.kedge("status", *own_cluster.which, "-o=json"))
    assert status["disabledControllers"] == ["statefulset-controller"]
    assert "all but statefulset-controller" in own_cluster.kedge("status", *own_cluster.which)
    # All other controllers are at work.
    admin.create(f"{APPS}/replicasets", {**poisoned(workload(replicas=1))})
    eventually(lambda: len(admin.get(f"{CORE}/pods")["items"]) == 1)
    tenant.delete(f"{path}/poison")
    own_cluster.kedge("down", *own_cluster.which)
    assert not own_cluster.up().api.exists(f"{path}/poison")


@pytest.mark.parametrize("command", ["up", "server"])
def test_an_unknown_controller_is_refused_with_the_names_of_all(
    command: str, own_cluster: OwnCluster
) -> None:
    with pytest.raises(AssertionError) as complaint:
        own_cluster.kedge(command, *own_cluster.which, "--controllers=*,-statefull")
    told = str(complaint.value)
    assert 'there is no controller "statefull"' in told
    assert "statefulset-controller" in told


def tenant_of_default(tenant: Api, own: OwnCluster) -> Api:
    """The administrator, who looks at another namespace meanwhile."""
    admin = copy.copy(tenant)
    admin.token = (own.state / "token").read_text().strip()
    return admin
