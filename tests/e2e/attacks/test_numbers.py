"""A tenant writes a large number into a small object: the server works it off bit by bit.

Each object here is created by somebody who may `edit` one namespace. Then the server's memory
stays bounded, other requests are answered, the server comes back with the object in its store, and
the object can be deleted.
"""

from __future__ import annotations

import copy
import resource
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kedge.machinery.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

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
OBSERVED_SECONDS = 4.0

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
    "owners": (
        f"{CORE}/configmaps",
        {
            "metadata": {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Secret", "name": f"s{i}", "uid": f"u{i}"}
                    for i in range(10_000)
                ]
            }
        },
    ),
}


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
    """Somebody who may edit one namespace, in a cluster of its own."""
    admin = own_cluster.up().api
    limited(own_cluster)
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


def poisoned(document: Json) -> Json:
    metadata = document.get("metadata", {})
    return {**document, "metadata": {**metadata, "name": "poison", "namespace": NAMESPACE}}


@pytest.mark.parametrize("name", POISONS)
def test_a_large_number_in_a_small_object_leaves_the_server_to_others(
    name: str, tenant: Api, own_cluster: OwnCluster, eventually: Callable[..., Any]
) -> None:
    path, document = POISONS[name]
    pid = own_cluster.pid()
    before = memory(pid)
    with Latency(tenant_of_default(tenant, own_cluster)) as latency:
        tenant.create(path, poisoned(document))
        time.sleep(OBSERVED_SECONDS)
    assert latency.longest < LONGEST_SECONDS
    assert memory(pid) - before < GROWTH
    # It is in the store: the next start has to bear it, too.
    own_cluster.kill()
    admin = own_cluster.up().api
    pid = limited(own_cluster)
    tenant.url = admin.url
    with Latency(admin) as latency:
        time.sleep(1)
        if admin.exists(f"{path}/poison"):
            tenant.delete(f"{path}/poison", {"propagationPolicy": "Background"})
        eventually(lambda: not admin.exists(f"{path}/poison"))
    assert latency.longest < LONGEST_SECONDS
    assert memory(pid) < before + GROWTH


def tenant_of_default(tenant: Api, own: OwnCluster) -> Api:
    """The administrator, who looks at another namespace meanwhile."""
    admin = copy.copy(tenant)
    admin.token = (own.state / "token").read_text().strip()
    return admin
