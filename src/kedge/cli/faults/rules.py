"""Add, list and remove fault rules."""

from argparse import Namespace
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kedge.api.testing.fault_rule import FaultRule
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.output import printers
from kedge.client.controls import ControlsClient, NotForTests

HEADS: Final = ("ID", "VERBS", "RESOURCE", "OBJECT", "CLIENT", "EFFECT", "TIMES", "HITS")
ANY: Final = "<any>"

Deed = Callable[[ApiSession], Awaitable[int]]


def rule_of(flags: Namespace) -> FaultRule:
    """Return the rule that the flags describe."""
    names = (each for each in FaultRule.__struct_fields__ if each not in ("id", "hits"))
    return FaultRule(**{name: getattr(flags, name) for name in names})


def adding(rule: FaultRule, output: str | None) -> Deed:
    async def act(controls: ControlsClient) -> None:
        added = await controls.add_fault(rule)
        if output:
            print(printers.document(added, output))
        else:
            print(f"{added.id} added")

    return _with_controls(act)


def listing(output: str | None) -> Deed:
    async def act(controls: ControlsClient) -> None:
        found = await controls.faults()
        if output:
            print(printers.document({"items": found}, output))
        else:
            rows = [HEADS, *map(cells, found)]
            print(printers.table(rows) if found else "There are no fault rules.")

    return _with_controls(act)


def removing(names: Sequence[str], *, everything: bool) -> Deed:
    if everything == bool(names):
        raise Failure("name the rules to remove, or give --all: 'kedge faults list' shows them")

    async def act(controls: ControlsClient) -> None:
        if everything:
            removed = await controls.remove_faults()
        else:
            removed = [await controls.remove_fault(name) for name in names]
        for rule in removed:
            print(f"{rule.id} removed")

    return _with_controls(act)


def killing(pod: str, container: str) -> Deed:
    async def deed(there: ApiSession) -> int:
        name = pod.removeprefix("pod/")
        try:
            killed = await ControlsClient(there.client).oom_kill(there.namespace, name, container)
        except NotForTests as error:
            raise Failure(str(error)) from None
        print(f"container {killed} of pod/{name} OOM-killed")
        return 0

    return deed


def _with_controls(act: Callable[[ControlsClient], Awaitable[None]]) -> Deed:
    async def deed(there: ApiSession) -> int:
        try:
            await act(ControlsClient(there.client))
        except NotForTests as error:
            raise Failure(str(error)) from None
        return 0

    return deed


def cells(rule: FaultRule) -> tuple[str, ...]:
    """Return the cells of a rule in the table."""
    named = "/".join(filter(None, (rule.namespace, rule.name or (rule.namespace and "*"))))
    client = " ".join(filter(None, (rule.user, rule.service_account, rule.user_agent)))
    return (
        rule.id,
        ",".join(rule.verbs) or ANY,
        rule.resource or ANY,
        named or ANY,
        client or ANY,
        effect(rule),
        str(rule.times or "always"),
        str(rule.hits),
    )


def effect(rule: FaultRule) -> str:
    """Return what happens to a request, in a word or two."""
    failure = "dropped" if rule.drop else str(rule.code or "")
    late = f"{rule.latency:g}s late" if rule.latency else ""
    stage = "after the work" if rule.fails and rule.stage == "after" else ""
    return " ".join(filter(None, (failure, late, stage)))
