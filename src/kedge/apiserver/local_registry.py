"""The ConfigMap local-registry-hosting, where tools find a cluster's registry (KEP-1755)."""

from typing import Any, Final

from kedge.apiserver import bootstrap
from kedge.apiserver.api import Api
from kedge.apiserver.verbs import write
from kedge.apiserver.verbs.patches import DesiredDocument

NAMESPACE: Final = "kube-public"
NAME: Final = "local-registry-hosting"
KEY: Final = "localRegistryHosting.v1"


def document(host: str) -> dict[str, Any]:
    """Return the ConfigMap. The node agents run on the machine itself, so they know the registry
    by the same name as its users."""
    lines = [f'host: "{host}"', f'hostFromContainerRuntime: "{host}"']
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "data": {KEY: "".join(f"{line}\n" for line in lines)},
    }


async def ensure(api: Api, host: str) -> None:
    """Create the ConfigMap, or have it name this registry."""
    wanted = document(host)
    request = bootstrap.request_for(api, wanted, "update")
    if api.find(request) is None:
        await bootstrap.ensure_object(api, wanted)
        return

    def renamed(live: dict[str, Any]) -> DesiredDocument:
        return DesiredDocument(live | {"data": {**(live.get("data") or {}), **wanted["data"]}})

    await write.modify(api, request, renamed, write.MAIN, "UpdateOptions")
