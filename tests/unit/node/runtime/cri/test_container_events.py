from kedge.node.runtime.cri.container_events import SeenContainer, event_of, events_between, merged
from kedge.node.runtime.runtime import RunState


def seen(state: RunState) -> SeenContainer:
    return SeenContainer("s", "u", state)


CREATED, RUNNING, EXITED = map(seen, (RunState.CREATED, RunState.RUNNING, RunState.EXITED))


def test_each_change_is_one_event() -> None:
    before = {"a": CREATED, "b": RUNNING, "c": RUNNING, "d": EXITED}
    now = {"a": RUNNING, "b": EXITED, "c": RUNNING, "e": CREATED, "f": EXITED}
    told = [(each.container, each.type) for each in events_between(before, now)]
    assert told == [("a", "started"), ("b", "exited"), ("f", "exited"), ("d", "removed")]


def test_an_event_names_the_pod() -> None:
    event = event_of("a", None, RUNNING)
    assert event is not None
    assert (event.sandbox, event.pod_uid, event.type) == ("s", "u", "started")
    assert event_of("a", RUNNING, RUNNING) is None


def test_what_was_noted_meanwhile_is_newer_than_a_list() -> None:
    known = {"same": RUNNING, "gone": RUNNING, "ended": RUNNING, "removed": EXITED}
    noted = {"same": RUNNING, "gone": RUNNING, "ended": EXITED, "made": CREATED}
    listed = {"same": RUNNING, "ended": RUNNING, "removed": EXITED, "other": CREATED}
    assert merged(known, noted, listed) == {
        "same": RUNNING,
        "ended": EXITED,
        "made": CREATED,
        "other": CREATED,
    }
