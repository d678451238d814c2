"""Each problem of a policy is told once."""

from kedge.client.events import Recorder
from kedge.node.policies.policy_events import PolicyEvents
from kedge.node.policies.policy_objects import NetworkPolicy, PolicyMeta
from kedge.testing.local_server import LocalServer

POLICY = NetworkPolicy(metadata=PolicyMeta(name="p", namespace="default", uid="u"))


async def test_a_problem_is_told_again_only_after_it_was_gone() -> None:
    async with LocalServer.running() as server:
        recorder = Recorder(server.client, server.clock, "kubelet", "node-1")
        server.start(recorder.run())
        events = PolicyEvents(recorder, "node-1")
        for excess, count in (("large", 1), ("large", 1), ("", 1), ("large", 2)):
            events.report_excess(POLICY, excess)
            await server.settle()
            found = (await server.get("/api/v1/namespaces/default/events"))["items"]
            assert [each["count"] for each in found] == [count]
