"""Pods of simulated nodes: their logs, and what cannot be done with them."""

from collections.abc import Mapping
from typing import Any

from kedge.api.core_v1 import simulation
from kedge.machinery.errors import bad_request
from kedge.web.message import Query

Pod = Mapping[str, Any]


def simulated_log(pod: Pod, container: str, query: Query) -> bytes:
    """Return the log of a simulated container, which an annotation holds; raises 400 if there is
    none."""
    meta = pod["metadata"]
    own = simulation.own(meta.get("annotations") or {})
    initial = [each["name"] for each in pod["spec"].get("initContainers") or ()]
    which = (container, container in initial, False)
    script = simulation.scripts_of(own, (), [which])[container]
    if not script.logs:
        raise bad_request(
            f"pod {meta['name']} is simulated and has no log: the annotation"
            f" {simulation.PREFIX}logs sets one"
        )
    return shown_log(script.logs, query, str((pod.get("status") or {}).get("startTime", "")))


def shown_log(text: str, query: Query, time: str) -> bytes:
    """Return the part of a log that a request asks for; all of its lines are of that time."""
    lines = [f"{line}\n" for line in text.removesuffix("\n").split("\n")]
    if query.get("tailLines"):
        number = int(query.get("tailLines"))
        lines = lines[-number:] if number else []
    if query.flag("timestamps"):
        lines = [f"{time} {line}" for line in lines]
    body = "".join(lines).encode()
    return body[: int(query.get("limitBytes"))] if query.get("limitBytes") else body
