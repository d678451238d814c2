"""The metrics of priority levels."""

from kedge.apiserver.fairness.flow_rules import RequestDigest
from kedge.apiserver.fairness.work_estimate import WorkEstimate
from kedge.testing.local_server import LocalServer
from kedge.web.message import Response

LEVELS = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"


async def test_a_new_level_has_its_seats_in_the_metrics(server: LocalServer) -> None:
    limited = {"nominalConcurrencyShares": 10, "limitResponse": {"type": "Reject"}}
    level = {"metadata": {"name": "mine"}, "spec": {"type": "Limited", "limited": limited}}
    await server.post(LEVELS, level)
    text = (await server.call("GET", "/metrics")).text
    for name in (
        "nominal_limit_seats",
        "lower_limit_seats",
        "upper_limit_seats",
        "current_limit_seats",
        "current_inqueue_seats",
        "demand_seats_high_watermark",
        "demand_seats_smoothed",
        "demand_seats_average",
        "demand_seats_stdev",
        "demand_seats_count",
    ):
        assert f'apiserver_flowcontrol_{name}{{priority_level="mine"}} ' in text
        assert f'apiserver_flowcontrol_{name}{{priority_level="catch-all"}} ' in text


async def test_levels_have_their_targets_after_an_adjustment(server: LocalServer) -> None:
    server.app.flows.adjust()
    text = (await server.call("GET", "/metrics")).text
    assert 'apiserver_flowcontrol_target_seats{priority_level="catch-all"} 13' in text
    assert "apiserver_flowcontrol_seat_fair_frac " in text
    for name, phase in (
        ("priority_level_seat_utilization", "executing"),
        ("priority_level_request_utilization", "executing"),
        ("priority_level_request_utilization", "waiting"),
    ):
        labels = f'phase="{phase}",priority_level="global-default"'
        assert f"apiserver_flowcontrol_{name}_count{{{labels}}} " in text


async def test_requests_are_counted_by_schema_and_level(server: LocalServer) -> None:
    text = (await server.call("GET", "/metrics")).text
    exempt = 'flow_schema="exempt",priority_level="exempt"'
    name = "apiserver_flowcontrol_dispatched_requests_total"
    before = number(text, f"{name}{{{exempt}}}")
    assert (await server.call("GET", "/api/v1/pods")).status == 200
    text = (await server.call("GET", "/metrics")).text
    assert number(text, f"{name}{{{exempt}}}") == before + 2


async def test_requests_with_seats_are_measured(server: LocalServer) -> None:
    place = server.app.flows.classify(RequestDigest("ann", (), "get", "", "pods", "default", ""))
    await server.app.flows.serve(place, Response(), WorkEstimate(3))
    text = (await server.call("GET", "/metrics")).text
    flow = f'flow_schema="{place.counts.schema}",priority_level="{place.counts.level}"'
    prefix = "apiserver_flowcontrol"
    assert number(text, f'{prefix}_request_execution_seconds_count{{{flow},type="regular"}}') == 1
    waited = f'{prefix}_request_wait_duration_seconds_count{{execute="true",{flow}}}'
    assert number(text, waited) == 1
    assert number(text, f"{prefix}_work_estimated_seats_sum{{{flow}}}") == 3
    assert number(text, f"{prefix}_current_executing_seats{{{flow}}}") == 0


def number(text: str, series: str) -> float:
    (line,) = (line for line in text.splitlines() if line.startswith(f"{series} "))
    return float(line.rpartition(" ")[2])
