"""Why a pod is on its node, or on none, and why it is slow: the text of the key `w`."""

from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.cli.failure import Failure
from kedge.cli.objects.complaints import complaint
from kedge.cli.objects.connection import ApiSession
from kedge.cli.usage.top.live.text_cells import clean
from kedge.client.transport import Unreachable
from kedge.machinery.errors import StatusError

_FAILURES: Final = (StatusError, Unreachable, Failure)


async def why_text(there: ApiSession, namespace: str, pod: str) -> list[str]:
    """Return what `kedge why` and, of a pod with a node, `kedge why --slow` print."""
    # Few look at it, and it takes as long to load as the rest of the view.
    from kedge.cli.pods.why.show import decision_lines
    from kedge.cli.pods.why.slow import slow_lines

    at = replace(there, given_namespace=namespace)
    placed = await _part("Where it runs", lambda: decision_lines(at, pod))
    try:
        has_node = bool((await there.client.get(PODS, pod, namespace)).spec.nodeName)
    except (StatusError, Unreachable):
        has_node = False
    slow = ["", *await _part("Is it slow?", lambda: slow_lines(at, pod))] if has_node else []
    return [clean(each) for each in (*placed, *slow)]


async def _part(title: str, find: Callable[[], Awaitable[list[str]]]) -> list[str]:
    try:
        lines = await find()
    except _FAILURES as error:
        said = complaint(error) if isinstance(error, StatusError) else str(error)
        lines = said.splitlines()
    return [title, *(f"  {each}" for each in lines)]
