"""FakeKubelet: serves /metrics/resource like a stock kubelet, for invented containers."""

from collections.abc import Iterator
from typing import NamedTuple

from kedge.machinery.clock import Clock
from kedge.web.message import HttpRequest, Response, text_response

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ContainerUse(NamedTuple):
    """The constant usage of a container since its start."""

    started: float
    """Seconds since the epoch."""
    cores: float
    memory: int


class FakeKubelet:
    """A node whose containers have scripted usage."""

    def __init__(self, clock: Clock, token: str = "") -> None:
        self._clock = clock
        self._token = token
        self._booted = clock.now().timestamp() - 1000.0
        self.uses: dict[tuple[str, str, str], ContainerUse] = {}
        """By namespace, pod and container."""
        self.machine = ContainerUse(self._booted, 1.5, 3 << 30)
        self.asked = 0
        self.broken: Response | None = None
        """The response that replaces the metrics, if set."""

    def run(self, namespace: str, pod: str, container: str, cores: float, memory: int) -> None:
        """Start a container, or another in its place."""
        now = self._clock.now().timestamp()
        self.uses[namespace, pod, container] = ContainerUse(now, cores, memory)

    def handle(self, http: HttpRequest) -> Response:
        self.asked += 1
        if self.broken is not None:
            return self.broken
        if self._token and http.headers.get("authorization") != f"Bearer {self._token}":
            return text_response("Unauthorized", 401)
        if http.path != "/metrics/resource":
            return text_response("404 page not found\n", 404)
        return Response(200, self.page().encode(), CONTENT_TYPE)

    def page(self) -> str:
        return "".join(self._lines(self._clock.now().timestamp()))

    def _lines(self, now: float) -> Iterator[str]:
        stamp = round(now * 1000)
        yield "# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time\n"
        yield "# TYPE container_cpu_usage_seconds_total counter\n"
        pods: dict[tuple[str, str], list[ContainerUse]] = {}
        for (namespace, pod, container), use in self.uses.items():
            labels = f'{{container="{container}",namespace="{namespace}",pod="{pod}"}}'
            used = (now - use.started) * use.cores
            yield f"container_cpu_usage_seconds_total{labels} {used!r} {stamp}\n"
            yield f"container_memory_working_set_bytes{labels} {float(use.memory)!r} {stamp}\n"
            yield f"container_start_time_seconds{labels} {use.started!r}\n"
            pods.setdefault((namespace, pod), []).append(use)
        cpu = (now - self._booted) * self.machine.cores
        yield f"node_cpu_usage_seconds_total {cpu!r} {stamp}\n"
        yield f"node_memory_working_set_bytes {float(self.machine.memory)!r} {stamp}\n"
        for (namespace, pod), uses in pods.items():
            labels = f'{{namespace="{namespace}",pod="{pod}"}}'
            used = sum((now - use.started) * use.cores for use in uses)
            yield f"pod_cpu_usage_seconds_total{labels} {used!r} {stamp}\n"
            yield f"pod_memory_working_set_bytes{labels} {sum(u.memory for u in uses)} {stamp}\n"
        yield "resource_scrape_error 0\n"
