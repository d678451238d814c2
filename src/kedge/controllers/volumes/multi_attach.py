"""The message for a pod whose volume is attached to another node."""

from collections.abc import Sequence

from kedge.api.core_v1.pod.pod import Pod


def waiting_message(volume: str, pod: Pod, users: Sequence[Pod]) -> str:
    """Return what a pod waits for. It does not name pods of other namespaces."""
    return f'Waiting for detach for volume "{volume}" {_reason(pod, users)}'


def _reason(pod: Pod, users: Sequence[Pod]) -> str:
    if not users:
        return (
            "Volume is already exclusively attached to one node, waiting on detach before it can be"
            " attached to another node"
        )
    namespace = pod.metadata.namespace
    near = sorted(each.metadata.name for each in users if each.metadata.namespace == namespace)
    far = f"{len(users) - len(near)} pod(s) in different namespaces"
    if not near:
        return f"Volume is already used by {far}"
    more = f" and {far}" if len(users) > len(near) else ""
    return f"Volume is already used by pod(s) {', '.join(near)}{more}"
