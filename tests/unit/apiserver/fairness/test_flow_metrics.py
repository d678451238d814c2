"""The metrics of priority levels."""

from kedge.testing.local_server import LocalServer

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
        "current_executing_seats",
        "current_inqueue_seats",
        "rejected_requests_total",
    ):
        assert f'apiserver_flowcontrol_{name}{{priority_level="mine"}} ' in text
        assert f'apiserver_flowcontrol_{name}{{priority_level="catch-all"}} ' in text
