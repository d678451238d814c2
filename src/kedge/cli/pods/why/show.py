"""Print a decision of the scheduler."""

from collections.abc import Iterator
from typing import Any

from kedge.api.core_v1.pod.pod import RESOURCE as POD
from kedge.api.scheduling_kedge_v1alpha1.scheduling_decision import (
    REFUSED,
    RESOURCE,
    NodeVerdict,
    SchedulingDecision,
)
from kedge.cli.descriptions.claim_state import ClaimState
from kedge.cli.failure import Failure
from kedge.cli.objects.claim_states import claim_states
from kedge.cli.objects.connection import ApiSession
from kedge.cli.output import outputs, tabstops
from kedge.cli.output.tables import harmless
from kedge.cli.usage.unserved import is_unserved
from kedge.machinery.errors import StatusError


async def show(connection: ApiSession, word: str, as_json: bool) -> int:
    """Print the decision."""
    document = await _decision(connection, pod_name(word))
    if as_json:
        print(outputs.json_text(document))
        return 0
    print("\n".join(await _lines(connection, document, pod_name(word))))
    return 0


async def _decision(connection: ApiSession, name: str) -> dict[str, Any]:
    try:
        return await connection.get(RESOURCE, name, connection.namespace)
    except StatusError as error:
        if error.code != 404:
            raise
        unserved = is_unserved(error)
    # A missing pod is the usual reason, and the server tells it in better words.
    pod = await connection.get(POD, name, connection.namespace)
    if unserved:
        raise Failure(
            "this server keeps no decisions, because its scheduler is not kedge's: 'kedge events"
            f" --for pod/{name} -n {connection.namespace}' shows what the scheduler said"
        )
    node = pod["spec"].get("nodeName")
    cause = f'it was created for node "{node}"' if node else "it has not looked at the pod"
    raise Failure(
        f"the scheduler has no decision about pod {name}: {cause}, or was restarted since;"
        f" 'kedge doctor {name} -n {connection.namespace}' examines the pod"
    )


async def decision_lines(connection: ApiSession, name: str) -> list[str]:
    """Return the decision about a pod, for people."""
    document = await _decision(connection, name)
    return await _lines(connection, document, name)


async def _lines(connection: ApiSession, document: dict[str, Any], name: str) -> list[str]:
    lines = [*laid_out(RESOURCE.from_document(document))]
    if states := await _claims(connection, name):
        lines += ["", *tabstops.align(_claim_table(states), tabstops.TABLE)]
    return lines


async def _claims(connection: ApiSession, name: str) -> list[ClaimState]:
    try:
        pod = await connection.get(POD, name, connection.namespace)
    except StatusError as error:
        # The decision may be about a pod that is gone, or that the caller may not read.
        if error.code not in (403, 404):
            raise
        return []
    return list((await claim_states(connection, pod)).values())


def _claim_table(states: list[ClaimState]) -> Iterator[str]:
    yield "CLAIM\tPHASE\tVOLUME\tNODES\tWAITS FOR"
    for each in states:
        waits = harmless(each.waits_for.replace("\t", " ")) or "<nothing>"
        yield f"{each.claim}\t{each.phase}\t{each.volume}\t{each.nodes}\t{waits}"


def pod_name(word: str) -> str:
    """Return the name in NAME or pod/NAME."""
    kind, slash, name = word.rpartition("/")
    if slash and kind not in ("pod", "pods", "po"):
        raise Failure(
            f'"{word}" is not a pod: the scheduler chooses nodes for pods, not for workloads'
        )
    return name


def laid_out(decision: SchedulingDecision) -> Iterator[str]:
    """All of it, for people."""
    yield from tabstops.align(_head(decision), tabstops.DESCRIPTION)
    if decision.nodes:
        yield ""
        yield from tabstops.align(_verdicts(decision), tabstops.TABLE)
    if decision.notAsked:
        yield f"({decision.notAsked} further nodes were not asked)"
    if decision.same:
        yield f"No difference by: {', '.join(decision.same)}"
    measured = [each for each in decision.nodes if each.usage is not None]
    if measured:
        yield ""
        yield from tabstops.align(_usages(measured), tabstops.TABLE)


def _head(decision: SchedulingDecision) -> Iterator[str]:
    yield f"Pod:\t{decision.metadata.namespace}/{decision.metadata.name}"
    yield f"Scheduler:\t{decision.scheduler}"
    if decision.decidedAt:
        yield f"Decided:\t{decision.decidedAt}"
    else:
        yield f"Evaluated:\t{decision.evaluatedAt}"
    if decision.note:
        yield f"Note:\t{decision.note}"
    yield f"Node:\t{decision.node or '<none>'}"
    if decision.boundTo and decision.boundTo != decision.node:
        yield f"Runs on:\t{decision.boundTo}"
    if decision.message:
        yield f"Message:\t{decision.message}"
    if decision.expected is not None:
        amounts = decision.expected.amounts
        source = {"siblings": "as its siblings do", "requests": "as it asks for"}.get(
            decision.expected.source, "by default"
        )
        yield f"Expected:\tcpu {amounts.cpu}, memory {amounts.memory}, {source}"
    if any(each.total is not None for each in decision.nodes) and not decision.usage:
        yield "Usage:\tnot counted, no measurement yet"


def _verdicts(decision: SchedulingDecision) -> Iterator[str]:
    """A line for each node; weights stand with the names of scores, for all lines alike."""
    scores = next((each.scores for each in decision.nodes if each.scores), ())
    heads = [f"{each.name} x{each.weight}" for each in scores]
    yield "\t".join(("NODE", "VERDICT", *(("TOTAL", *heads) if heads else ())))
    for each in decision.nodes:
        if each.verdict == REFUSED:
            yield f"{each.name}\trefused by {each.filter}: {', '.join(each.reasons)}"
        elif each.total is None:
            yield f"{each.name}\t{each.verdict}: the only one that passed"
        else:
            points = (f"{part.weight * part.value} ({part.value})" for part in each.scores)
            yield "\t".join((each.name, each.verdict, str(each.total), *points))


def _usages(nodes: list[NodeVerdict]) -> Iterator[str]:
    yield "\t".join(
        ("NODE", "WINDOW", "CPU", "+NEW", "OF", "MEMORY", "+NEW", "OF", "PODS", "MEASURED")
    )
    for each in nodes:
        usage = each.usage
        assert usage is not None
        window = usage.window if usage.measured else f"{usage.window}, of its pods only"
        yield "\t".join(
            (
                each.name,
                window,
                usage.used.cpu,
                usage.expected.cpu,
                usage.allocatable.cpu,
                usage.used.memory,
                usage.expected.memory,
                usage.allocatable.memory,
                str(usage.pods),
                str(usage.measuredPods),
            )
        )
