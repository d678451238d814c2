"""The server's own metrics, as Prometheus text."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import islice
from operator import itemgetter
from typing import Final

from kedge.apiserver.histogram import MetricHistogram
from kedge.web.watchdog import LoopPauses

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)

Values = Callable[[], Iterator[tuple[str, float]]]
"""Returns pairs of labels and value."""


Histograms = Callable[[], Iterator[tuple[str, MetricHistogram]]]
"""Returns pairs of labels and histogram."""
RequestLabels = tuple[str, str, str, str]
"""Verb, group, resource and subresource of a request."""
MOST_SERIES: Final = 10_000
"""Combinations of labels. Custom resources come and go, and their series stay; further ones are
counted together."""
_LINES: Final = 1_000
"""Of one piece of the text."""
_OTHERS: Final = ("", "", "other", "")


class RequestSeries:
    """The finished requests of one combination of labels and status."""

    __slots__ = ("latency", "number")

    def __init__(self, latency: list[float] | None) -> None:
        """`latency` is the histogram that they are part of; None if their time does not count."""
        self.number = 0
        self.latency = latency


class Telemetry:
    """Counters and latency histograms of requests, and metrics that are read when scraped."""

    def __init__(self, pauses: LoopPauses | None = None) -> None:
        """`pauses` are those of the event loop, if a watchdog measures them."""
        self._requests: dict[tuple[RequestLabels, int], RequestSeries] = {}
        self._latencies: dict[tuple[str, str], list[float]] = {}
        self._others: list[tuple[str, str, str, Values]] = []
        self._histograms: list[tuple[str, str, Histograms]] = []
        self._pauses = pauses or LoopPauses()

    def gauge(self, name: str, text: str, read: Values) -> None:
        """Add a metric that may fall."""
        self._others.append((name, "gauge", text, read))

    def counter(self, name: str, text: str, read: Values) -> None:
        """Add a metric that only grows."""
        self._others.append((name, "counter", text, read))

    def histogram(self, name: str, text: str, read: Histograms) -> None:
        """Add histograms."""
        self._histograms.append((name, text, read))

    def count(self, labels: RequestLabels, code: int, seconds: float) -> None:
        """Count one finished request."""
        series = self._requests.get((labels, code)) or self._new_series(labels, code)
        series.number += 1
        latency = series.latency
        if latency is not None:
            latency[bisect_left(BUCKETS, seconds)] += 1
            latency[-1] += seconds

    def _new_series(self, labels: RequestLabels, code: int) -> RequestSeries:
        if len(self._requests) >= MOST_SERIES:
            labels = _OTHERS
        verb, _, plural, _ = labels
        latency = None
        if verb != "WATCH":
            latency = self._latencies.setdefault((verb, plural), [0.0] * (len(BUCKETS) + 2))
        return self._requests.setdefault((labels, code), RequestSeries(latency))

    def text(self) -> str:
        """The whole text."""
        return b"".join(self.pages()).decode()

    def pages(self) -> Iterator[bytes]:
        """Yield the text in pieces: custom resources that come and go leave thousands of series."""
        lines = self._lines()
        while piece := "".join(f"{line}\n" for line in islice(lines, _LINES)):
            yield piece.encode()
        yield self._pauses.text().encode()

    def _lines(self) -> Iterator[str]:
        yield from _header("apiserver_request_total", "counter", "Requests answered.")
        by_labels = sorted(self._requests.items(), key=itemgetter(0))
        for ((verb, group, plural, sub), code), series in by_labels:
            labels = (
                f'code="{code}",group="{group}",resource="{plural}",subresource="{sub}",'
                f'verb="{verb}"'
            )
            yield f"apiserver_request_total{{{labels}}} {series.number}"
        name = "apiserver_request_duration_seconds"
        yield from _header(name, "histogram", "Time from request to answer, watches excepted.")
        for (verb, plural), latency in sorted(self._latencies.items()):
            yield from _histogram(name, f'resource="{plural}",verb="{verb}"', latency)
        for name, kind, text, read in self._others:
            yield from _header(name, kind, text)
            for labels, value in read():
                yield (
                    f"{name}{{{labels}}} {_number(value)}" if labels else f"{name} {_number(value)}"
                )
        for name, text, histograms in self._histograms:
            yield from _header(name, "histogram", text)
            for labels, histogram in histograms():
                yield from histogram.lines(name, labels)


def _number(value: float) -> str:
    """Return a value with all its digits: counters and times are larger than a million."""
    return str(int(value)) if float(value).is_integer() else repr(value)


def _header(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _histogram(name: str, labels: str, latency: list[float]) -> Iterator[str]:
    total = 0.0
    for bound, number in zip((*BUCKETS, "+Inf"), latency[:-1], strict=True):
        total += number
        yield f'{name}_bucket{{{labels},le="{bound}"}} {total:g}'
    yield f"{name}_sum{{{labels}}} {latency[-1]:.6f}"
    yield f"{name}_count{{{labels}}} {total:g}"
