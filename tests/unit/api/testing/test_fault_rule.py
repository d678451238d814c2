"""Fault rules: what is a mistake, which requests fit, and how these fail."""

import msgspec
import pytest

from kedge.api.testing.fault_rule import (
    LONGEST,
    FaultRule,
    RequestFacts,
    decoded,
    error_of,
    matches,
    rule_errors,
)
from kedge.machinery.errors import StatusError

ACCOUNT = "system:serviceaccount:shop:operator"
REQUEST = RequestFacts(
    verb="update",
    resource="deployments",
    group="apps",
    subresource="status",
    namespace="shop",
    name="web",
    user=ACCOUNT,
    user_agent="my-operator/1.2 (linux)",
)


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        (FaultRule(), True),
        (FaultRule(verbs=("patch", "update")), True),
        (FaultRule(verbs=("patch",)), False),
        (FaultRule(resource="*"), True),
        (FaultRule(resource="deployments/status"), True),
        (FaultRule(resource="deployments.apps/status"), True),
        (FaultRule(resource="deployments.apps/*"), True),
        (FaultRule(resource="*/status"), True),
        (FaultRule(resource="deployments"), False),
        (FaultRule(resource="deployments/scale"), False),
        (FaultRule(resource="deployments.extensions/status"), False),
        (FaultRule(resource="pods/status"), False),
        (FaultRule(namespace="shop", name="web"), True),
        (FaultRule(namespace="sho*", name="w*"), True),
        (FaultRule(namespace="sho"), False),
        (FaultRule(name="other"), False),
        (FaultRule(user=ACCOUNT), True),
        (FaultRule(user="system:serviceaccount:*"), True),
        (FaultRule(user="kubernetes-admin"), False),
        (FaultRule(service_account="shop/operator"), True),
        (FaultRule(service_account="shop/other"), False),
        (FaultRule(user_agent="my-operator"), True),
        (FaultRule(user_agent="operator"), False),
    ],
)
def test_every_field_that_is_set_must_fit(rule: FaultRule, fits: bool) -> None:
    assert matches(rule, REQUEST) is fits


def test_any_subresource_is_not_the_object_itself() -> None:
    whole = msgspec.structs.replace(REQUEST, subresource="")
    assert not matches(FaultRule(resource="deployments/*"), whole)
    assert matches(FaultRule(resource="deployments"), whole)


def test_calls_of_webhooks_fit_only_rules_for_them() -> None:
    call = RequestFacts(verb="call", resource="webhooks", name="hook")
    assert not matches(FaultRule(), call)
    assert not matches(FaultRule(resource="*"), call)
    assert matches(FaultRule(verbs=("call",), name="hook"), call)
    assert matches(FaultRule(resource="webhooks"), call)


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        (FaultRule(), "code: Required value: a rule needs an effect: code, latency or drop"),
        (FaultRule(code=200), "code: Invalid value: 200: must be between 400 and 599"),
        (FaultRule(code=409, drop=True), "drop: Forbidden: a dropped connection gets no code"),
        (FaultRule(latency=-1), "latency: Invalid value: -1: must be between 0 and 300 seconds"),
        (FaultRule(latency=301), "latency: Invalid value: 301: must be between 0 and 300 seconds"),
        (FaultRule(drop=True, stage="later"), 'stage: Unsupported value: "later"'),
        (FaultRule(drop=True, verbs=("updat",)), 'verbs[0]: Unsupported value: "updat"'),
        (FaultRule(drop=True, verbs=("get",) * 10), "verbs: Too many: 10"),
        (FaultRule(drop=True, resource="a/b/c"), 'resource: Invalid value: "a/b/c"'),
        (FaultRule(drop=True, user="a", service_account="b/c"), "serviceAccount: Forbidden"),
        (FaultRule(drop=True, service_account="operator"), "serviceAccount: Invalid value"),
        (FaultRule(drop=True, times=-1), "times: Invalid value: -1"),
        (FaultRule(drop=True, reason="Conflict"), "reason: Forbidden"),
        (FaultRule(code=409, retry_after=1), "retryAfter: Forbidden"),
        (FaultRule(code=429, retry_after=-1), "retryAfter: Invalid value: -1"),
        (FaultRule(drop=True, id="mine"), "id: Forbidden: the server sets it"),
        (FaultRule(drop=True, hits=1), "hits: Forbidden: the server sets it"),
        (FaultRule(drop=True, name="x" * (LONGEST + 1)), "name: Too long"),
    ],
)
def test_mistakes_are_named(rule: FaultRule, complaint: str) -> None:
    found = [str(error) for error in rule_errors(rule)]
    assert len(found) == 1
    assert found[0].startswith(complaint)


def test_a_rule_without_mistakes() -> None:
    assert not list(rule_errors(FaultRule(code=503, retry_after=3, latency=0.5, times=2)))


def test_a_body_that_is_no_rule_gets_400() -> None:
    for body in (b"", b"[]", b'{"codes":409}', b'{"code":"409"}', b"\xff"):
        with pytest.raises(StatusError) as caught:
            decoded(body)
        assert caught.value.code == 400
    with pytest.raises(StatusError) as invalid:
        decoded(b'{"code":7,"verbs":["x"]}')
    assert (invalid.value.code, len(invalid.value.causes)) == (422, 2)


@pytest.mark.parametrize(
    ("verb", "rule", "reason", "retry"),
    [
        ("update", FaultRule(code=409), "Conflict", 0),
        ("create", FaultRule(code=409), "AlreadyExists", 0),
        ("create", FaultRule(code=409, reason="Conflict"), "Conflict", 0),
        ("get", FaultRule(code=429), "TooManyRequests", 1),
        ("get", FaultRule(code=429, retry_after=7), "TooManyRequests", 7),
        ("get", FaultRule(code=500), "InternalError", 0),
        ("get", FaultRule(code=418), "", 0),
    ],
)
def test_the_error_is_that_of_a_server(verb: str, rule: FaultRule, reason: str, retry: int) -> None:
    error = error_of(rule, msgspec.structs.replace(REQUEST, verb=verb))
    assert (error.code, error.reason, error.retry_after) == (rule.code, reason, retry)
    assert error.details == {"name": "web", "group": "apps", "kind": "deployments"}


def test_a_rule_is_spent_after_its_times() -> None:
    assert FaultRule(times=2, hits=2).is_spent
    assert not FaultRule(times=2, hits=1).is_spent
    assert not FaultRule(hits=100).is_spent
