"""Print proposals: as patches, as a table, or for programs."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.output import outputs
from kedge.cli.output.printers import table
from kedge.cli.usage.recommend import apply, day_plot, savings, workloads
from kedge.cli.usage.recommend.proposal import (
    STORAGE,
    ContainerTrouble,
    SizeProposal,
    UsageEvidence,
    declared_text,
    has_limit,
    lack,
    pods_text,
    propose,
    readable,
    samples,
)
from kedge.machinery.durations import human_age

_HOUR_SECONDS: Final = 3600.0


class RecommendOptions(NamedTuple):
    """Which workloads to propose sizes for, and how to show the proposals."""

    words: Sequence[str]
    headroom: int = 20
    everywhere: bool = False
    labels: str = ""
    output: str = ""
    """table, wide, patch, json or yaml; empty for a patch of one workload, a table of several."""
    min_seconds: float | None = None
    """How long a workload must have been measured; None for an hour, unless it is named."""
    plot: bool = False
    apply: bool = False
    dry_run: bool = False

    @property
    def is_named(self) -> bool:
        """Whether single workloads are named, not kinds or all."""
        return any("/" in word for word in self.words) or len(self.words) > 1


class Unsized(NamedTuple):
    """A workload without a proposal, and the reason."""

    proposal: SizeProposal
    reason: str


async def show(connection: ApiSession, look: RecommendOptions) -> int:
    """Print what is asked for, or apply it; returns the exit code."""
    found = await workloads.find(
        connection, look.words, everywhere=look.everywhere, labels=look.labels
    )
    sized, unsized = judged([propose(each, look.headroom) for each in found], look)
    if look.is_named and unsized and not sized:
        raise _nothing(unsized)
    if look.apply:
        return await _apply(connection, sized, unsized, look)
    plots = await _plots(connection, sized) if look.plot else []
    match look.output or ("patch" if look.is_named else "table"):
        case "json":
            print(outputs.json_text(document(sized, unsized)))
        case "yaml":
            print(outputs.yaml_text(document(sized, unsized)))
        case "patch":
            _print_patches(sized, unsized, plots)
        case form:
            print(
                "\n".join(tables(sized, unsized, everywhere=look.everywhere, wide=form == "wide"))
            )
            print("".join(f"{line}\n" for _, lines in plots for line in lines), end="")
    return 0


def judged(
    proposals: Sequence[SizeProposal], look: RecommendOptions
) -> tuple[list[SizeProposal], list[Unsized]]:
    """Tell workloads with enough evidence from those without, each with the reason."""
    least = look.min_seconds
    if least is None:
        least = 0.0 if look.is_named else _HOUR_SECONDS
    reasons = [lack(each, least) for each in proposals]
    sized = [each for each, reason in zip(proposals, reasons, strict=True) if not reason]
    unsized = [
        Unsized(each, reason) for each, reason in zip(proposals, reasons, strict=True) if reason
    ]
    return sized, unsized


def _nothing(unsized: Sequence[Unsized]) -> Failure:
    if len(unsized) == 1 and not unsized[0].proposal.seconds:
        (one,) = unsized
        return Failure(
            f"nothing has been reported lately of {one.proposal.workload.title}: a pod is measured"
            f" from ten seconds after its start on ({one.reason})"
        )
    return Failure("; ".join(f"{each.proposal.workload.title}: {each.reason}" for each in unsized))


async def _apply(
    connection: ApiSession,
    sized: Sequence[SizeProposal],
    unsized: Sequence[Unsized],
    look: RecommendOptions,
) -> int:
    code = await apply.apply(connection, sized, everywhere=look.everywhere, dry_run=look.dry_run)
    for each in unsized:
        workload = each.proposal.workload
        place = f" in {workload.namespace}" if look.everywhere else ""
        print(f"{workload.title}{place} left as it is: {each.reason}")
    return code


async def _plots(
    connection: ApiSession, sized: Sequence[SizeProposal]
) -> list[tuple[SizeProposal, list[str]]]:
    return [(each, await day_plot.plots(connection, each)) for each in sized]


def _print_patches(
    sized: Sequence[SizeProposal],
    unsized: Sequence[Unsized],
    plots: Sequence[tuple[SizeProposal, list[str]]],
) -> None:
    drawn = {id(each): lines for each, lines in plots}
    for number, each in enumerate(sized):
        if number:
            print("---")
        print("\n".join(each.comments()))
        for line in drawn.get(id(each), ()):
            print(f"# {line}".rstrip())
        print(outputs.yaml_text(each.patch()))
    for left in unsized:
        print(f"{left.proposal.workload.title} left out: {left.reason}", file=sys.stderr)


# Tables.

_HEADINGS: Final = (
    "WORKLOAD",
    "CONTAINER",
    "PODS",
    "CPU REQUEST",
    "CPU LIMIT",
    "MEMORY REQUEST",
    "MEMORY LIMIT",
    "MEASURED",
)
_WIDE: Final = (
    "STORAGE REQUEST",
    "CPU 95TH",
    "CPU MAX",
    "MEMORY 95TH",
    "MEMORY MAX",
    "OOM KILLS",
    "THROTTLED",
    "UNTIL",
)


def tables(
    sized: Sequence[SizeProposal],
    unsized: Sequence[Unsized],
    *,
    everywhere: bool,
    wide: bool = False,
) -> Iterator[str]:
    """Return the lines for people: sizes before and after, what was left out, and the sums."""
    if not sized and not unsized:
        yield "No workloads found."
        return
    first = ("NAMESPACE",) if everywhere else ()
    if sized:
        rows = [row for each in sized for row in _rows(each, wide=wide)]
        headings = (*first, *_HEADINGS, *(_WIDE if wide else ()))
        yield table([headings, *(_placed(row, everywhere) for row in rows)])
    if unsized:
        yield from ([""] if sized else [])
        yield "Without a proposal:"
        reasons = [(each.proposal, (each.proposal.workload.title, each.reason)) for each in unsized]
        yield table(
            [(*first, "WORKLOAD", "REASON"), *(_placed(row, everywhere) for row in reasons)]
        )
    if sized:
        yield ""
        yield from _sums(sized)


def _placed(row: tuple[SizeProposal, tuple[str, ...]], everywhere: bool) -> tuple[str, ...]:
    proposal, cells = row
    return (proposal.workload.namespace, *cells) if everywhere else cells


def _rows(proposal: SizeProposal, *, wide: bool) -> Iterator[tuple[SizeProposal, tuple[str, ...]]]:
    for name, known in proposal.found.items():
        sizes = proposal.sizes.get(name, {})
        cells = [
            _change(proposal, name, sort, resource) if resource in sizes else "-"
            for resource in savings.RESOURCES
            for sort in ("requests", "limits")
        ]
        row: tuple[str, ...] = (
            proposal.workload.title,
            name,
            str(savings.pod_count(proposal)),
            *cells,
            _measured(known),
        )
        if wide:
            stored = _change(proposal, name, "requests", STORAGE) if STORAGE in sizes else "-"
            row += (stored, *_evidence(known, proposal.troubles[name], proposal.until))
        yield proposal, row


def _change(proposal: SizeProposal, container: str, sort: str, resource: str) -> str:
    declared = proposal.declared[container].resources
    request, limit = proposal.sizes[container][resource]
    after = request if sort == "requests" else limit
    return f"{declared_text(declared, sort, resource)} -> {after}"


def _measured(known: Mapping[str, UsageEvidence]) -> str:
    if not known:
        return "nothing yet"
    found = next(iter(known.values()))
    return f"{human_age(found.seconds)}, {pods_text(found.pods)}"


def _evidence(
    known: Mapping[str, UsageEvidence], found: ContainerTrouble, until: str
) -> tuple[str, ...]:
    amounts = [
        cell
        for resource in savings.RESOURCES
        for cell in (_amounts(resource, known[resource]) if resource in known else ("-", "-"))
    ]
    return (*amounts, str(found.kills), f"{found.throttled:.0%}", until)


def _amounts(resource: str, seen: UsageEvidence) -> tuple[str, str]:
    return str(readable(resource, seen.usual)), str(readable(resource, seen.most))


def _sums(sized: Sequence[SizeProposal]) -> Iterator[str]:
    changes = savings.by_namespace(sized)
    total = savings.added(changes.values())
    rows = [
        (name, *(each[one].text for one in savings.RESOURCES)) for name, each in changes.items()
    ]
    if len(rows) > 1:
        rows.append(("total", *(total[one].text for one in savings.RESOURCES)))
    if rows:
        yield table([("REQUESTS IN", "CPU", "MEMORY"), *rows])
        yield ""
        yield f"All pods together request {_saved(total, 'cpu')} and {_saved(total, 'memory')}."
    if any(each.runs_for_a_time for each in sized):
        yield "Jobs and CronJobs are not in the sums: their pods run for a time."
    yield "Check with --apply --dry-run=server; --apply changes the workloads."


def _saved(total: savings.RequestChanges, resource: str) -> str:
    saved = total[resource].saved
    if saved.nanos == 0:
        return f"as much {resource} as before"
    if saved.nanos > 0:
        return f"{saved} less {resource}"
    return f"{type(saved)(-saved.nanos, saved.format)} more {resource}"


# Documents for programs.


def document(sized: Sequence[SizeProposal], unsized: Sequence[Unsized]) -> dict[str, Any]:
    """Return everything for programs; each item has the patch for its workload."""
    changes = savings.by_namespace(sized)
    return {
        "items": [_item(each) for each in sized],
        "withoutProposal": [{**_name(each.proposal), "reason": each.reason} for each in unsized],
        "requests": {
            "namespaces": {name: _sum_document(each) for name, each in changes.items()},
            "total": _sum_document(savings.added(changes.values())),
        },
    }


def _name(proposal: SizeProposal) -> dict[str, Any]:
    target = proposal.workload.target
    return {
        "apiVersion": target.resource.api_version,
        "kind": target.resource.kind,
        "namespace": proposal.workload.namespace,
        "name": target.name,
    }


def _item(proposal: SizeProposal) -> dict[str, Any]:
    return {
        **_name(proposal),
        "pods": savings.pod_count(proposal),
        "measuredUntil": proposal.until,
        "containers": [_container(proposal, name) for name in proposal.declared],
        "patch": proposal.patch(),
        "applicable": proposal.is_changeable,
    }


def _container(proposal: SizeProposal, name: str) -> dict[str, Any]:
    known, found = proposal.found[name], proposal.troubles[name]
    resources = {
        resource: _resource(proposal, name, resource, seen) for resource, seen in known.items()
    }
    return {
        "name": name,
        "oomKills": found.kills,
        "throttled": round(found.throttled, 3),
        "resources": resources,
    }


def _resource(
    proposal: SizeProposal, name: str, resource: str, seen: UsageEvidence
) -> dict[str, Any]:
    declared = proposal.declared[name].resources
    before = {
        sort[:-1]: str(declared[sort][resource])
        for sort in ("requests", "limits")
        if resource in (declared.get(sort) or {})
    }
    after = {}
    if resource in proposal.sizes.get(name, {}):
        request, limit = proposal.sizes[name][resource]
        after = {"request": str(request)}
        if has_limit(declared, resource):
            after["limit"] = str(limit)
    return {
        "before": before,
        "after": after,
        "evidence": {
            "window": seen.window,
            "seconds": seen.seconds,
            "samples": samples(seen),
            "pods": seen.pods,
            "95th": str(seen.usual),
            "max": str(seen.most),
        },
    }


def _sum_document(changes: savings.RequestChanges) -> dict[str, Any]:
    return {
        name: {"before": str(each.before), "after": str(each.after), "saved": str(each.saved)}
        for name, each in changes.items()
    }
