"""FaultyCaller: calls of webhooks that fail on purpose."""

from urllib.parse import urlsplit

from kedge.api.testing.fault_rule import CALL, WEBHOOKS, RequestFacts
from kedge.apiserver.testing.fault_table import FaultTable, dropped
from kedge.apiserver.webhooks.answer_budget import Answer
from kedge.apiserver.webhooks.caller import Caller
from kedge.apiserver.webhooks.configuration import WebhookEndpoint
from kedge.apiserver.webhooks.services import Resolve
from kedge.client.transport import Call
from kedge.machinery.clock import Clock
from kedge.web.cluster_network import ClusterNetwork


class FaultyCaller(Caller):
    """A Caller that asks the rules first. A webhook hangs if its answer comes later than the
    server waits."""

    def __init__(
        self, resolve: Resolve, network: ClusterNetwork, faults: FaultTable, clock: Clock
    ) -> None:
        super().__init__(resolve, network)
        self._faults = faults
        self._clock = clock

    async def _exchange(
        self, client: WebhookEndpoint, base: str, call: Call, answer: Answer
    ) -> tuple[int, bytes]:
        rule = self._faults.take(call_facts(client))
        if rule is None:
            return await super()._exchange(client, base, call, answer)
        if rule.latency:
            await self._clock.sleep(rule.latency)
        if rule.stage == "after" or not rule.fails:
            done = await super()._exchange(client, base, call, answer)
            if not rule.fails:
                return done
        if rule.drop:
            raise dropped(rule)
        return rule.code, (rule.message or f"fault rule {rule.id}").encode()


def call_facts(client: WebhookEndpoint) -> RequestFacts:
    """Return what rules compare: the Service and its namespace, or the host of the URL."""
    name = client.service or urlsplit(client.url).hostname or ""
    return RequestFacts(verb=CALL, resource=WEBHOOKS, namespace=client.namespace, name=name)
