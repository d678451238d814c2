"""The plugins run in order, and each sees what those before it changed."""

import pytest
from msgspec.structs import replace

from kedge.api.core_v1 import config_map
from kedge.api.model import Object
from kedge.apiserver.admission.chain import (
    Attempt,
    Chain,
    MutatingPlugin,
    ValidatingPlugin,
)
from kedge.apiserver.request import Request
from kedge.testing.admission import attempt


class Labels:
    """A plugin that adds its name to a label, and notes what it was asked."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self._log = log

    async def mutate(self, attempt: Attempt) -> Object | None:
        obj = attempt.object
        assert obj is not None
        seen = obj.metadata.labels.get("seen", "")
        meta = replace(obj.metadata, labels={"seen": seen + self.name})
        changed: Object = replace(obj, metadata=meta)
        return changed

    async def validate(self, attempt: Attempt) -> None:
        self._log.append(f"{self.name} validates")
        if self.name == "no":
            raise PermissionError


class Holds(Labels):
    def holds(self, request: Request) -> bool:
        return self.name == "b"

    def release(self, request: Request) -> None:
        self._log.append(f"{self.name} releases")


def wanted() -> Attempt:
    obj = config_map.RESOURCE.from_document({"metadata": {"name": "m"}})
    return attempt(config_map.RESOURCE, "CREATE", obj)


async def test_each_plugin_changes_what_the_one_before_it_made() -> None:
    log: list[str] = []
    chain = Chain([Labels("a", log), Labels("b", log), Labels("c", log)])
    changed = await chain.mutate(wanted())
    assert changed is not None
    assert changed.metadata.labels == {"seen": "abc"}


async def test_the_first_refusal_ends_the_questions() -> None:
    log: list[str] = []
    chain = Chain([Labels("yes", log), Labels("no", log), Labels("late", log)])
    with pytest.raises(PermissionError):
        await chain.validate(wanted())
    assert log == ["yes validates", "no validates"]


async def test_only_plugins_that_hold_something_release_it() -> None:
    log: list[str] = []
    Chain([Labels("a", log), Holds("b", log)]).release(wanted().request)
    assert log == ["b releases"]


class OnlyChanges(MutatingPlugin, Labels):
    """Changes objects and refuses none."""


class OnlyRefuses(ValidatingPlugin, Labels):
    """Refuses objects and changes none."""


async def test_a_plugin_is_asked_only_for_what_it_does() -> None:
    log: list[str] = []
    chain = Chain([OnlyChanges("a", log), OnlyRefuses("b", log), Labels("c", log)])
    changed = await chain.mutate(wanted())
    assert changed is not None
    assert changed.metadata.labels == {"seen": "ac"}
    await chain.validate(wanted())
    assert log == ["b validates", "c validates"]


async def test_a_request_is_held_for_if_one_plugin_holds_something() -> None:
    log: list[str] = []
    request = wanted().request
    assert Chain([Labels("a", log), Holds("c", log), Holds("b", log)]).holds(request)
    assert not Chain([Labels("b", log), Holds("c", log)]).holds(request)
