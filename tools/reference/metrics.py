"""The series of /metrics, as the server writes them."""

import asyncio
import re
from typing import Final

from markdown import Page, code, codes, table

from kedge.apiserver.assembly import assemble, flow_controller, telemetry
from kedge.apiserver.fairness.flow_metrics import add_flow_metrics
from kedge.storage.memory import MemoryStore
from kedge.testing.clock import FakeClock
from kedge.web.watchdog import LoopPauses

INTRODUCTION: Final = """\
The API server serves these series at `/metrics`, as Prometheus text. Node agents serve those
marked with *node* at `/metrics` of their own port too, and [usage](../metrics.md#prometheus) in
further series."""


def page() -> Page:
    served = asyncio.run(server_text())
    node = set(re.findall(r"^# TYPE (\w+)", LoopPauses().text(), re.MULTILINE))
    rows = [
        (code(name), kind, codes(labels(served, name)), text, "*node*" if name in node else "")
        for name, text, kind in re.findall(r"# HELP (\w+) (.*)\n# TYPE \1 (\w+)", served)
    ]
    head = ("series", "type", "labels", "meaning", "")
    return Page("metrics", "Series of /metrics", INTRODUCTION, table(head, rows))


async def server_text() -> str:
    """Return the metrics of a server that has answered one request."""
    store = MemoryStore(FakeClock())
    api = await assemble(store, FakeClock())
    counts = telemetry(api)
    add_flow_metrics(counts, flow_controller(api, 0))
    api.caller.metrics.add_to(counts)
    counts.count(("GET", "", "pods", ""), 200, 0.1)
    await store.close()
    return counts.text()


def labels(served: str, name: str) -> list[str]:
    """Return the labels of a series, apart from the bound of a histogram's bucket."""
    sample = re.search(rf"^{name}(?:_bucket)?\{{(.*)\}}", served, re.MULTILINE)
    found = re.findall(r"(\w+)=", sample[1]) if sample else []
    return [each for each in found if each != "le"]
