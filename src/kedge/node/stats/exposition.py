"""Exposition: the pages of /metrics/resource and /metrics/cadvisor, with upstream's series."""

from typing import Final, NamedTuple

from kedge import KUBERNETES
from kedge.metrics.track import LastReading
from kedge.node.stats import readings as raw
from kedge.node.stats.readings import CgroupDetails, InterfaceCounters, NodeReadings, PodReading

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_CPU: Final = "container_cpu_usage_seconds_total"
_WORKING_SET: Final = "container_memory_working_set_bytes"
_STARTED: Final = "container_start_time_seconds"

Labels = dict[str, str]


class TextPage:
    """Series by family, in the text form of Prometheus."""

    def __init__(self) -> None:
        self._families: dict[str, list[str]] = {}

    def family(self, name: str, kind: str, text: str) -> None:
        self._families[name] = [f"# HELP {name} {text}\n# TYPE {name} {kind}\n"]

    def add(self, name: str, labels: Labels, value: float, at: float | None = None) -> None:
        shown = ",".join(f'{key}="{_escaped(each)}"' for key, each in labels.items())
        stamp = "" if at is None else f" {round(at * 1000)}"
        inside = f"{{{shown}}}" if shown else ""
        self._families[name].append(f"{name}{inside} {value!r}{stamp}\n")

    def text(self) -> str:
        """The text of all families that have series."""
        return "".join("".join(lines) for lines in self._families.values() if len(lines) > 1)


def resource(now: NodeReadings) -> str:
    """The little that autoscalers need."""
    page = TextPage()
    for name, kind, text in _RESOURCE:
        page.family(name, kind, text)
    whole = now.whole()
    if whole is not None:
        page.add("node_cpu_usage_seconds_total", {}, _seconds(whole), whole.time)
        page.add("node_memory_working_set_bytes", {}, whole.reading.memory, whole.time)
    for measured in now.pods():
        meta, total = measured.pod.metadata, measured.total
        labels = {"namespace": meta.namespace, "pod": meta.name}
        page.add("pod_cpu_usage_seconds_total", labels, _seconds(total), total.time)
        page.add("pod_memory_working_set_bytes", labels, total.reading.memory, total.time)
        for container, latest in measured.containers:
            own = {"container": container.name, **labels}
            page.add(_CPU, own, _seconds(latest), latest.time)
            page.add(_WORKING_SET, own, latest.reading.memory, latest.time)
            page.add(_STARTED, own, container.started_at / 1e9)
    page.add("resource_scrape_error", {}, 0 if whole is not None else 1)
    return page.text()


def cadvisor(now: NodeReadings) -> str:
    """All that is known, of containers and of the pods around them."""
    page = TextPage()
    for name, kind, text in (*_MACHINE, *(each[:3] for each in _DETAILS), *_OTHERS, *_NETWORK):
        page.family(name, kind, text)
    machine = now.machine
    about = {"boot_id": machine.boot_id, "machine_id": machine.machine_id}
    about["system_uuid"] = machine.system_uuid
    page.add("machine_cpu_cores", about, machine.cpus)
    page.add("machine_memory_bytes", about, machine.memory)
    page.add("machine_swap_bytes", about, machine.swap)
    version = {"kernelVersion": machine.kernel, "osVersion": machine.os_image}
    page.add("cadvisor_version_info", {**version, "cadvisorRevision": f"v{KUBERNETES}"}, 1)
    if (whole := now.whole()) is not None:
        _add_whole(page, whole, now.details("/"))
    for measured in now.pods():
        _add_pod(page, now, measured)
    return page.text()


def volumes(now: NodeReadings) -> str:
    """The usage of claims, which upstream has among the metrics of the kubelet."""
    page = TextPage()
    for name, text, _ in _VOLUMES:
        page.family(name, "gauge", f"[ALPHA] {text}")
    for claim in now.claims.all():
        labels = {"namespace": claim.namespace, "persistentvolumeclaim": claim.name}
        for name, _, field in _VOLUMES:
            amount = getattr(claim.usage, field)
            if amount >= 0:
                page.add(name, labels, amount)
    return page.text()


def _add_whole(page: TextPage, whole: LastReading, details: CgroupDetails) -> None:
    """The machine, as the group of all groups."""
    labels = dict.fromkeys(("container", "id", "image", "name", "namespace", "pod"), "")
    _add_group(page, labels | {"id": "/"}, whole, details, raw.began())


def _add_pod(page: TextPage, now: NodeReadings, measured: PodReading) -> None:
    meta = measured.pod.metadata
    labels = {"namespace": meta.namespace, "pod": meta.name}
    group = {"container": "", "id": measured.group, "image": "", "name": "", **labels}
    _add_group(page, group, measured.total, now.details(measured.group), measured.started)
    for each in measured.containers:
        container = each.container
        own = {
            "container": container.name,
            "id": container.cgroup,
            "image": container.image_name,
            "name": container.id,
            **labels,
        }
        details = now.details(container.cgroup)
        _add_group(page, own, each.latest, details, container.started_at / 1e9)
    if measured.pid and not measured.pod.spec.hostNetwork:
        for interface in raw.interfaces(measured.pid):
            _add_interface(page, {**group, "interface": interface.name}, interface, measured.total)


def _add_group(
    page: TextPage, labels: Labels, latest: LastReading, details: CgroupDetails, started: float
) -> None:
    at = latest.time
    page.add(_CPU, {**labels, "cpu": "total"}, _seconds(latest), at)
    page.add(_WORKING_SET, labels, latest.reading.memory, at)
    page.add(_STARTED, labels, started, at)
    page.add("container_last_seen", labels, round(at), at)
    for kind, count in (("pgfault", details.faults), ("pgmajfault", details.major_faults)):
        if details.usage:
            family = "container_memory_failures_total"
            page.add(family, {**labels, "failure_type": kind, "scope": "hierarchy"}, count, at)
    for name, _, _, field, scale in _DETAILS:
        value = getattr(details, field)
        if details.usage and (value or field not in _WHERE_LIMITED):
            page.add(name, labels, value / scale if scale > 1 else value, at)


def _add_interface(
    page: TextPage, labels: Labels, counters: InterfaceCounters, total: LastReading
) -> None:
    for name, value in zip((each.name for each in _NETWORK), counters[1:], strict=True):
        page.add(name, labels, value, total.time)


def _seconds(latest: LastReading) -> float:
    return latest.reading.cpu / 1e9


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricFamily(NamedTuple):
    """The name, type and help text of a family of series."""

    name: str
    kind: str
    text: str


_RESOURCE: Final = (
    MetricFamily(_CPU, "counter", "[STABLE] Processor time of a container, in core-seconds"),
    MetricFamily(_WORKING_SET, "gauge", "[STABLE] Working set of a container, in bytes"),
    MetricFamily(_STARTED, "gauge", "[STABLE] When a container began, in seconds since the epoch"),
    MetricFamily(
        "node_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Processor time of the node, in core-seconds",
    ),
    MetricFamily(
        "node_memory_working_set_bytes", "gauge", "[STABLE] Working set of the node, in bytes"
    ),
    MetricFamily(
        "pod_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Processor time of a pod, in core-seconds",
    ),
    MetricFamily(
        "pod_memory_working_set_bytes", "gauge", "[STABLE] Working set of a pod, in bytes"
    ),
    MetricFamily("resource_scrape_error", "gauge", "[STABLE] 1 if something could not be measured"),
)
_VOLUMES: Final = (
    ("kubelet_volume_stats_available_bytes", "Bytes that are free", "available_bytes"),
    ("kubelet_volume_stats_capacity_bytes", "Size of the volume in bytes", "capacity_bytes"),
    ("kubelet_volume_stats_inodes", "Most inodes of the volume", "inodes"),
    ("kubelet_volume_stats_inodes_free", "Inodes that are free", "inodes_free"),
    ("kubelet_volume_stats_inodes_used", "Inodes in use", "inodes_used"),
    ("kubelet_volume_stats_used_bytes", "Bytes in use", "used_bytes"),
)
_MACHINE: Final = (
    MetricFamily("cadvisor_version_info", "gauge", "What measures, and on what; always 1"),
    MetricFamily("machine_cpu_cores", "gauge", "Logical processors of the machine"),
    MetricFamily("machine_memory_bytes", "gauge", "Memory of the machine"),
    MetricFamily("machine_swap_bytes", "gauge", "Swap of the machine"),
)
_OTHERS: Final = (
    MetricFamily(_CPU, "counter", "Processor time used, in seconds"),
    MetricFamily(
        _WORKING_SET, "gauge", "Working set: memory less what could be given back at once"
    ),
    MetricFamily(_STARTED, "gauge", "When it began, in seconds since the epoch"),
    MetricFamily("container_last_seen", "gauge", "When it was last measured"),
    MetricFamily("container_memory_failures_total", "counter", "Page faults"),
)
_DETAILS: Final = (
    ("container_cpu_user_seconds_total", "counter", "Time in user mode", "user", 10**9),
    ("container_cpu_system_seconds_total", "counter", "Time in the kernel", "system", 10**9),
    ("container_cpu_cfs_periods_total", "counter", "Periods in which it ran", "periods", 1),
    (
        "container_cpu_cfs_throttled_periods_total",
        "counter",
        "Periods in which its quota ran out",
        "throttled_periods",
        1,
    ),
    (
        "container_cpu_cfs_throttled_seconds_total",
        "counter",
        "How long it was held back",
        "throttled",
        10**9,
    ),
    ("container_memory_usage_bytes", "gauge", "Memory, all of it", "usage", 1),
    ("container_memory_rss", "gauge", "Memory that is in no file", "rss", 1),
    ("container_memory_cache", "gauge", "Memory that caches files", "cache", 1),
    ("container_memory_mapped_file", "gauge", "Memory of mapped files", "mapped", 1),
    ("container_memory_swap", "gauge", "Swap", "swap", 1),
    ("container_memory_max_usage_bytes", "gauge", "The most memory there was", "peak", 1),
    ("container_memory_failcnt", "counter", "How often memory hit its limit", "failures", 1),
    ("container_processes", "gauge", "Processes and threads", "processes", 1),
    ("container_spec_cpu_shares", "gauge", "Weight when processors are short", "shares", 1),
    ("container_spec_cpu_period", "gauge", "Period of the quota, in microseconds", "period", 1),
    ("container_spec_cpu_quota", "gauge", "Quota of a period, in microseconds", "quota", 1),
    ("container_spec_memory_limit_bytes", "gauge", "Limit of memory; 0 for none", "limit", 1),
)
_WHERE_LIMITED: Final = ("quota", "periods", "throttled_periods", "throttled")
"""Readings that are exposed only for containers with a limit of processor time."""
_NETWORK: Final = (
    MetricFamily("container_network_receive_bytes_total", "counter", "Bytes received"),
    MetricFamily("container_network_receive_packets_total", "counter", "Packets received"),
    MetricFamily("container_network_receive_errors_total", "counter", "Errors while receiving"),
    MetricFamily(
        "container_network_receive_packets_dropped_total", "counter", "Packets lost on arrival"
    ),
    MetricFamily("container_network_transmit_bytes_total", "counter", "Bytes sent"),
    MetricFamily("container_network_transmit_packets_total", "counter", "Packets sent"),
    MetricFamily("container_network_transmit_errors_total", "counter", "Errors while sending"),
    MetricFamily(
        "container_network_transmit_packets_dropped_total", "counter", "Packets lost on departure"
    ),
)
