"""`kedge simulate`: compares ways to place pods, over usage that was recorded."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kedge.cli.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kedge.scheduler.replay.replay import ReplayResult, SimulatedNode
    from kedge.scheduler.replay.trace import Trace

DESCRIPTION: Final = """\
Run kedge's scheduler over recorded usage, and compare placing pods by requests only, by measured
usage, and with your own weights of scores. Nothing is started, and no cluster is needed.

The trace is a file that 'kedge top pods -A -o json --watch' has written, or the answer of
Prometheus to query_range, with the labels namespace and pod: one answer, or an object with one
answer each for "cpu" (cores), "memory" (bytes) and "requests" (with the label resource)."""
EXAMPLES: Final = """\
  # Record a day, then ask how three nodes of 4 cores would have done
  kedge top pods -A -o json --watch > day.jsonl
  kedge simulate --nodes 3 --node-cpu 4 --node-memory 16Gi --trace day.jsonl

  # The nodes of a real cluster, weights of your own, and a page with plots
  kubectl get nodes -o json > nodes.json
  kedge simulate --nodes nodes.json --trace day.jsonl --weights NodeUsage=5 --page day.html"""

MOST_NODES: Final = 1000
_HEADINGS: Final = (
    "PLACED BY",
    "SPREAD CPU",
    "SPREAD MEM",
    "PEAK CPU",
    "OVERCOMMIT",
    "EVICTIONS",
    "UNPLACED",
)


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--nodes",
        required=True,
        metavar="K|FILE",
        help="how many equal nodes, or a file with the output of 'kubectl get nodes -o json'",
    )
    parser.add_argument("--node-cpu", default="4", help="cpu of each node (default: 4)")
    parser.add_argument("--node-memory", default="16Gi", help="memory of each node (default: 16Gi)")
    parser.add_argument("--trace", required=True, metavar="FILE", help="the recorded usage")
    parser.add_argument(
        "--weights",
        default="",
        metavar="SCORE=N,...",
        help="also compare with these weights of scores; 0 turns a score off",
    )
    parser.add_argument("--page", default="", metavar="FILE", help="write a page with plots")
    parser.add_argument(
        "-o", "--output", choices=("json",), default="", help="print JSON instead of a table"
    )


def run(flags: Namespace) -> int:
    from kedge.cli.output import outputs, printers
    from kedge.cli.usage.simulate.page import page
    from kedge.scheduler.replay.replay import policies, replay, weights_of
    from kedge.scheduler.replay.trace import TraceError, read

    try:
        weights = weights_of(flags.weights) if flags.weights else None
        nodes = simulated_nodes(flags)
        trace = read(_content(flags.trace))
    except TraceError as error:
        raise Failure(f"{flags.trace}: {error}") from error
    except ValueError as error:
        raise Failure(str(error)) from error
    results = [replay(trace, nodes, each) for each in policies(weights)]
    rows = [_HEADINGS, *(_row(each) for each in results)]
    if flags.output:
        print(outputs.json_text(_document(trace, nodes, results)))
    else:
        print(printers.table(rows))
    if flags.page:
        _write(flags.page, page(trace, len(nodes), rows, results))
    return 0


def simulated_nodes(flags: Namespace) -> "list[SimulatedNode]":
    """The nodes that the flags describe; raises ValueError."""
    import msgspec

    from kedge.machinery.quantity import Quantity
    from kedge.scheduler.replay.replay import SimulatedNode, nodes_of

    if not flags.nodes.isdecimal():
        try:
            found = nodes_of(msgspec.json.decode(_content(flags.nodes)))
        except (msgspec.MsgspecError, AttributeError, TypeError, RecursionError) as error:
            raise ValueError(f"{flags.nodes} is not a list of nodes: {error}") from error
        if not 0 < len(found) <= MOST_NODES:
            raise ValueError(f"{flags.nodes} must have 1 to {MOST_NODES} nodes")
        return found
    count = int(flags.nodes[:6])
    if not 0 < count <= MOST_NODES:
        raise ValueError(f"--nodes must be 1 to {MOST_NODES}")
    cores = Quantity.parse(flags.node_cpu).nanos / 1e9
    memory = Quantity.parse(flags.node_memory).nanos / 1e9
    if cores <= 0 or memory <= 0:
        raise ValueError("--node-cpu and --node-memory must be above 0")
    return [SimulatedNode(f"node-{number + 1}", cores, memory) for number in range(count)]


def _content(path: str) -> bytes:
    """Return the content of a file, one byte more than a trace may have at most."""
    from kedge.scheduler.replay.trace import MOST_BYTES

    try:
        with Path(path).open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from error


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from error


def _row(result: "ReplayResult") -> tuple[str, ...]:
    return (
        result.policy,
        f"{result.spread:.1f}%",
        f"{result.memory_spread:.1f}%",
        f"{result.peak:.0f}%",
        f"{result.overcommit:.1f}%",
        str(result.evictions),
        str(result.unplaced),
    )


def _document(
    trace: "Trace", nodes: "Sequence[SimulatedNode]", results: "Sequence[ReplayResult]"
) -> dict[str, Any]:
    return {
        "pods": len(trace.pods),
        "nodes": len(nodes),
        "moments": len(trace.moments),
        "results": [
            {
                "placedBy": each.policy,
                "spreadCpuPercent": round(each.spread, 2),
                "spreadMemoryPercent": round(each.memory_spread, 2),
                "peakCpuPercent": round(each.peak, 2),
                "overcommitPercent": round(each.overcommit, 2),
                "evictions": each.evictions,
                "unplaced": each.unplaced,
            }
            for each in results
        ],
    }
