"""Events of containers, from the states that a runtime lists. Pure."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kedge.node.runtime.runtime import ContainerEvent, RunState


class SeenContainer(NamedTuple):
    """A container as it was last seen."""

    sandbox: str
    pod_uid: str
    state: RunState


_TYPES = {RunState.RUNNING: "started", RunState.EXITED: "exited"}


def event_of(id_: str, before: SeenContainer | None, now: SeenContainer) -> ContainerEvent | None:
    """Return the event of one container; None if its state is the same, or only created."""
    if (before is not None and before.state is now.state) or now.state not in _TYPES:
        return None
    return _event(id_, now, _TYPES[now.state])


def removal_of(id_: str, last: SeenContainer) -> ContainerEvent:
    """Return the event of a removed container."""
    return _event(id_, last, "removed")


def events_between(
    before: Mapping[str, SeenContainer], now: Mapping[str, SeenContainer]
) -> Iterator[ContainerEvent]:
    """Yield the events between two lists."""
    for id_, each in now.items():
        if (event := event_of(id_, before.get(id_), each)) is not None:
            yield event
    for id_, last in before.items():
        if id_ not in now:
            yield removal_of(id_, last)


def merged(
    known: Mapping[str, SeenContainer],
    noted: Mapping[str, SeenContainer],
    listed: Mapping[str, SeenContainer],
) -> dict[str, SeenContainer]:
    """Return the containers of a list. `known` were those before the list was asked for, `noted`
    are those after it: what has changed meanwhile is newer than the list."""
    changed = {id_ for id_ in known.keys() | noted.keys() if known.get(id_) != noted.get(id_)}
    found = {id_: each for id_, each in listed.items() if id_ not in changed}
    return found | {id_: noted[id_] for id_ in changed if id_ in noted}


def _event(id_: str, seen: SeenContainer, type_: str) -> ContainerEvent:
    return ContainerEvent(container=id_, sandbox=seen.sandbox, pod_uid=seen.pod_uid, type=type_)
