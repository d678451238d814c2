"""Summary: the document of /stats/summary, in upstream's shape."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kedge.machinery.durations import format_time
from kedge.metrics.track import LastReading, Track
from kedge.node.stats import readings as raw
from kedge.node.stats.claim_usage import MeasuredClaim
from kedge.node.stats.readings import (
    CgroupDetails,
    ContainerReading,
    InterfaceCounters,
    NodeReadings,
    PodReading,
)

Document = dict[str, Any]


def summary(now: NodeReadings, *, only_cpu_and_memory: bool) -> Document:
    """Of the node and every pod that runs on it."""
    pods = [_pod(now, each, only_cpu_and_memory) for each in now.pods()]
    return {"node": _node(now, only_cpu_and_memory), "pods": pods}


def _node(now: NodeReadings, brief: bool) -> Document:
    found: Document = {
        "nodeName": now.node,
        "systemContainers": [_system(name, track) for name, track in now.systems()],
        "startTime": time_text(raw.began()),
    }
    whole = now.whole()
    if whole is None:
        return found
    memory = raw.memory_of_machine()
    found["cpu"] = _cpu(whole)
    found["memory"] = {
        "time": time_text(whole.time),
        "availableBytes": max(0, memory["MemTotal"] - whole.reading.memory),
        "usageBytes": memory["MemTotal"] - memory["MemFree"],
        "workingSetBytes": whole.reading.memory,
        "rssBytes": memory.get("AnonPages", 0),
    }
    if brief:
        return found
    first = raw.default_interface()
    interfaces = sorted(raw.interfaces("self"), key=lambda each: each.name != first)
    found["network"] = _network(interfaces, whole.time)
    found["fs"] = _file_system(now.state, whole.time)
    found["runtime"] = {"imageFs": _file_system(now.images, whole.time)}
    found["rlimit"] = _processes(whole.time)
    if memory.get("SwapTotal"):
        found["swap"] = {
            "time": time_text(whole.time),
            "swapAvailableBytes": memory["SwapFree"],
            "swapUsageBytes": memory["SwapTotal"] - memory["SwapFree"],
        }
    return found


def _system(name: str, track: Track) -> Document:
    assert track.latest is not None
    return {
        "name": name,
        "startTime": time_text(track.since),
        "cpu": _cpu(track.latest),
        "memory": {
            "time": time_text(track.latest.time),
            "workingSetBytes": track.latest.reading.memory,
        },
    }


def _pod(now: NodeReadings, measured: PodReading, brief: bool) -> Document:
    meta = measured.pod.metadata
    details = now.details(measured.group)
    found = {
        "podRef": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
        "startTime": time_text(measured.started),
        "containers": [_container(now, each, brief) for each in measured.containers],
        "cpu": _cpu(measured.total),
        "memory": _memory(measured.total, details),
    }
    if brief:
        return found
    if measured.pid and not measured.pod.spec.hostNetwork:
        found["network"] = _network(raw.interfaces(measured.pid), measured.total.time)
    if volumes := [_volume(name, claim, measured) for name, claim in now.claims.of_pod(meta.uid)]:
        found["volume"] = volumes
    if details.processes:
        found["process_stats"] = {"process_count": details.processes}
    return found


def _volume(name: str, claim: MeasuredClaim, measured: PodReading) -> Document:
    """Return the usage of a claim, without what is not known."""
    usage = claim.usage
    amounts = {
        "availableBytes": usage.available_bytes,
        "capacityBytes": usage.capacity_bytes,
        "usedBytes": usage.used_bytes,
        "inodesFree": usage.inodes_free,
        "inodes": usage.inodes,
        "inodesUsed": usage.inodes_used,
    }
    return {
        "time": time_text(measured.total.time),
        **{key: amount for key, amount in amounts.items() if amount >= 0},
        "name": name,
        "pvcRef": {"name": claim.name, "namespace": claim.namespace},
    }


def _container(now: NodeReadings, measured: ContainerReading, brief: bool) -> Document:
    container, latest = measured
    found = {
        "name": container.name,
        "startTime": time_text(container.started_at / 1e9),
        "cpu": _cpu(latest),
        "memory": _memory(latest, now.details(container.cgroup)),
    }
    if not brief and container.log_path:
        found["logs"] = _logs(Path(container.log_path).parent, latest.time)
    return found


def _cpu(latest: LastReading) -> Document:
    found: Document = {"time": time_text(latest.time)}
    if latest.cores >= 0:
        found["usageNanoCores"] = round(latest.cores * 1e9)
    if latest.reading.cpu >= 0:
        found["usageCoreNanoSeconds"] = latest.reading.cpu
    return found


def _memory(latest: LastReading, details: CgroupDetails) -> Document:
    found: Document = {"time": time_text(latest.time)}
    if latest.reading.memory >= 0:
        found["workingSetBytes"] = latest.reading.memory
    if details.limit:
        found["availableBytes"] = max(0, details.limit - latest.reading.memory)
    if details.usage:
        # It is read after the working set, which is a part of it.
        found["usageBytes"] = max(details.usage, latest.reading.memory)
        found["rssBytes"] = details.rss
        found["pageFaults"] = details.faults
        found["majorPageFaults"] = details.major_faults
    return found


def _network(interfaces: list[InterfaceCounters], at: float) -> Document:
    shown = [
        {
            "name": each.name,
            "rxBytes": each.received,
            "rxErrors": each.receive_errors,
            "txBytes": each.sent,
            "txErrors": each.send_errors,
        }
        for each in interfaces
    ]
    return {"time": time_text(at), **(shown[0] if shown else {"name": ""}), "interfaces": shown}


def _file_system(place: Path, at: float) -> Document:
    found = os.statvfs(place)
    return {
        "time": time_text(at),
        "availableBytes": found.f_bavail * found.f_frsize,
        "capacityBytes": found.f_blocks * found.f_frsize,
        "usedBytes": (found.f_blocks - found.f_bfree) * found.f_frsize,
        "inodesFree": found.f_ffree,
        "inodes": found.f_files,
        "inodesUsed": found.f_files - found.f_ffree,
    }


def _logs(directory: Path, at: float) -> Document:
    whole = _file_system(directory, at) if directory.is_dir() else {"time": time_text(at)}
    files = [each.stat() for each in directory.glob("*") if each.is_file()]
    return {
        **whole,
        "usedBytes": sum(each.st_blocks * 512 for each in files),
        "inodesUsed": len(files),
    }


def _processes(at: float) -> Document:
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    running = sum(name.isdigit() for name in os.listdir("/proc"))
    return {"time": time_text(at), "maxpid": most, "curproc": running}


def time_text(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))
