"""Ask the API to evict a pod."""

from kedge.api.core_v1.pod import pod as core_pod
from kedge.api.core_v1.pod.pod import Pod
from kedge.client.client import Client
from kedge.machinery.errors import StatusError


async def evict(client: Client, pod: Pod) -> bool:
    """Evict a pod; returns False if it is gone, or if its budget allows no disruption now."""
    meta = pod.metadata
    document = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta.name, "namespace": meta.namespace},
    }
    try:
        await client.exchange(
            "POST", core_pod.RESOURCE, meta.name, "eviction", document, namespace=meta.namespace
        )
    except StatusError as error:
        if error.code not in (404, 429):
            raise
        return False
    return True
