"""Recorded requests: how they read, and which facts rules compare."""

from kedge.api.testing.fault_rule import FaultRule, matches
from kedge.api.testing.recorded_request import RecordedRequest

UPDATE = RecordedRequest(
    number=7,
    time="2030-01-01T00:00:00.000000Z",
    seconds=0.01,
    user="joe",
    verb="update",
    path="/api/v1/namespaces/shop/pods/web/status",
    code=200,
    resource="pods",
    subresource="status",
    namespace="shop",
    name="web",
    unchanged=True,
)


def test_a_request_reads_as_a_line() -> None:
    assert str(UPDATE) == "#7 joe update pods/status shop/web: 200 unchanged"
    page = RecordedRequest(
        number=8, time="", seconds=0, user="joe", verb="get", path="/version", code=200
    )
    assert str(page) == "#8 joe get /version: 200"


def test_rules_select_requests() -> None:
    assert matches(FaultRule(resource="pods/status", user="joe"), UPDATE.facts)
    assert not matches(FaultRule(resource="pods"), UPDATE.facts)
