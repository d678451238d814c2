"""Time, faults, requests and snapshots of `kedge.Cluster`, as docs/testing-faults.md shows them."""

import time
from collections.abc import Iterator

import pytest

import kedge
from kedge.api.testing import request_checks
from kedge.cluster.namespace_account import ACCOUNT

PATIENCE = 60.0
"""Seconds in which anything must happen, on a busy machine too."""
CRON_JOB = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: hourly}
spec:
  schedule: "0 * * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: main, image: host, command: ["true"]}]
"""


@pytest.fixture(scope="module")
def c() -> Iterator[kedge.Cluster]:
    with kedge.Cluster(testing=True, nodes=0, wait=PATIENCE) as running:
        yield running


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def test_a_conflict_is_seen_by_one_client(c: kedge.Cluster) -> None:
    c.apply(config_map("settings"))
    rule = c.faults.add(verbs=["patch"], user_agent="kedge-test", code=409, times=1)
    with pytest.raises(kedge.StatusError, match=rule.id):
        c.patch("cm/settings", {"data": {"k": "v"}})
    c.patch("cm/settings", {"data": {"k": "v"}})
    (found,) = c.faults.list()
    assert found.hits == 1
    c.faults.clear()


def test_one_service_account_is_asked_to_wait(c: kedge.Cluster) -> None:
    with c.new_namespace() as n:
        n.apply(config_map("shared"))
        account = f"{n.namespace}/{ACCOUNT}"
        c.faults.add(service_account=account, verbs=["get"], code=429, retry_after=7, times=1)
        with pytest.raises(kedge.StatusError) as refused:
            n.get("cm/shared")
        assert (refused.value.code, refused.value.retry_after) == (429, 7)
        c.faults.add(service_account=account, verbs=["get"], latency=0.5, times=1)
        n.get("cm/shared")
        # Others are not affected.
        c.get("cm/shared", namespace=n.namespace)
        seen = c.requests(service_account=account, verbs=["get"])
        assert [each.code for each in seen[-2:]] == [429, 200]
        assert seen[-1].seconds >= 0.5
    c.faults.clear()


def test_a_webhook_that_hangs(c: kedge.Cluster) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}
    webhook = {
        "name": "check.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/check"},
        "rules": [{**rule, "operations": ["CREATE"]}],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "check"}}
    c.apply({**kind, "kind": "ValidatingWebhookConfiguration", "webhooks": [webhook]})
    c.faults.add(verbs=["call"], name="127.0.0.1", latency=60)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "guarded"}}

    def is_late() -> bool:
        # The server follows the configuration a moment later.
        try:
            c.apply(secret)
            c.delete("secret/guarded")
        except kedge.StatusError as error:
            return "context deadline exceeded" in str(error)
        return False

    deadline = time.monotonic() + PATIENCE
    while not is_late():
        assert time.monotonic() < deadline
    c.faults.clear()
    c.delete("validatingwebhookconfiguration/check")


def test_requests_tell_what_a_client_did(c: kedge.Cluster) -> None:
    c.apply(config_map("same"))
    start = c.requests()[-1].number + 1
    c.patch("cm/same", {"metadata": {"labels": {"a": "b"}}})
    c.patch("cm/same", {"metadata": {"labels": {"a": "b"}}})
    patches = c.requests(start, user_agent="kedge-test", verbs=["patch"])
    assert [each.unchanged for each in patches] == [False, True]
    assert patches[0].patch == '{"metadata":{"labels":{"a":"b"}}}'
    with pytest.raises(AssertionError, match="1 writes that changed nothing"):
        request_checks.assert_effective(patches)
    c.assert_quiet(seconds=0.1, user_agent="kedge-test")


def test_an_hour_in_a_moment(c: kedge.Cluster) -> None:
    c.apply(CRON_JOB)
    before = c.clock.now()
    assert (c.clock.advance(hours=1) - before).total_seconds() >= 3600
    c.wait(
        "cronjob/hourly",
        lambda found: "lastScheduleTime" in found.get("status", {}),
        timeout=PATIENCE,
    )


def test_a_set_up_is_paid_once(c: kedge.Cluster) -> None:
    c.apply(config_map("expensive"))
    taken = c.snapshot()
    c.delete("cm/expensive")
    c.restore(taken)
    assert c.get("cm/expensive")["metadata"]["name"] == "expensive"
