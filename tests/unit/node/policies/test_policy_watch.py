"""Pods are watched only if there are policies."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from kedge.api.core_v1.pod import pod_addresses
from kedge.client.client import Client
from kedge.client.transport import Call, Reply, Stream, Transport
from kedge.node.policies.policy_watch import PolicyWatch
from kedge.testing.local_server import LocalServer

POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"


async def test_the_first_policy_starts_the_watch_of_pods_and_namespaces() -> None:
    async with LocalServer.running() as server:
        spec = {"containers": [{"name": "main", "image": "host"}]}
        pods = "/api/v1/namespaces/default/pods"
        await server.post(pods, {"metadata": {"name": "a"}, "spec": spec})
        watch = PolicyWatch(server.client, server.clock)
        server.start(watch.run())
        await watch.synced()
        assert watch.are_policies_known
        assert (len(watch.pods), len(watch.namespaces)) == (0, 0)
        await server.post(POLICIES, {"metadata": {"name": "p"}, "spec": {"podSelector": {}}})
        await server.settle()
        await watch.synced()
        assert [each.metadata.name for each in watch.pods] == ["a"]
        assert watch.namespaces.get("default") is not None


class WithoutAddresses:
    """A server that does not know the addresses of pods as a representation, as kube-apiserver."""

    def __init__(self, transport: Transport) -> None:
        self.streams: list[str] = []
        self._transport = transport

    async def send(self, call: Call) -> Reply:
        return await self._transport.send(self._unknown(call))

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        async with self._transport.stream(self._unknown(call)) as stream:
            if call.path == "/api/v1/pods" and stream.status == 200:
                self.streams.append(call.headers["accept"])
            yield stream

    async def close(self) -> None:
        await self._transport.close()

    def _unknown(self, call: Call) -> Call:
        accept = call.headers["accept"].replace(pod_addresses.AS, "NobodyKnows")
        return replace(call, headers={**call.headers, "accept": accept})


async def test_a_server_without_addresses_of_pods_is_asked_for_whole_pods() -> None:
    async with LocalServer.running() as server:
        pods = "/api/v1/namespaces/default/pods"
        spec = {"containers": [{"name": "main", "image": "host"}]}
        await server.post(POLICIES, {"metadata": {"name": "p"}, "spec": {"podSelector": {}}})
        await server.post(pods, {"metadata": {"name": "listed"}, "spec": spec})
        transport = WithoutAddresses(server.transport_with({}))
        watch = PolicyWatch(Client(transport), server.clock)
        server.start(watch.run())
        await watch.synced()
        assert [each.metadata.name for each in watch.pods] == ["listed"]
        await server.settle()
        await server.post(pods, {"metadata": {"name": "told"}, "spec": spec})
        await server.settle()
        assert {each.metadata.name for each in watch.pods} == {"listed", "told"}
        assert transport.streams == ["application/json"]
