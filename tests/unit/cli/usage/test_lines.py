"""Rows of `kedge top`."""

import re
from typing import Any

import pytest

from kedge.api.core_v1 import node as core_node
from kedge.api.core_v1.pod import pod as core_pod
from kedge.api.metrics_v1alpha1 import node, pod
from kedge.cli.usage import lines as usage
from kedge.cli.usage.lines import TopOptions
from kedge.machinery.quantity import Quantity

END = "2030-01-01T00:00:00Z"


def windows(cpu: str, memory: str) -> Any:
    amounts = {"cpu": cpu, "memory": memory}
    return {
        length: {
            "endtime": "2030-01-01T00:00:00Z",
            "mean": amounts,
            "max": amounts,
            "95th": amounts,
        }
        for length in ("10s", "1m", "1h", "1d")
    }


def measured(name: str, cpu: str, memory: str, namespace: str = "kube-system") -> Any:
    containers = [{"metadata": {"name": "main"}, "metrics": windows(cpu, memory)}]
    meta = {"name": name, "namespace": namespace}
    return pod.RESOURCE.from_document({"metadata": meta, "containers": containers})


def declared(name: str, *containers: Any) -> Any:
    listed = [{"name": f"c{n}", "resources": each} for n, each in enumerate(containers)]
    meta = {"name": name, "namespace": "kube-system"}
    return core_pod.RESOURCE.from_document({"metadata": meta, "spec": {"containers": listed}})


def test_33_the_pods_of_a_node_are_shown_as_the_proposal_shows_them() -> None:
    pods = [
        measured("kube-ui-v1-nd7in", "68m", "126953Ki"),
        measured("monitoring-heapster-abcde", "118203441n", "294916Ki"),
    ]
    look = TopOptions(what="kubernetes-node-abcd")
    assert usage.table(usage.pod_lines(pods, {}, look), look, None) == [
        "POD                        CPU         MEM",
        "monitoring-heapster-abcde  0.12 cores  302 MB",
        "kube-ui-v1-nd7in           0.07 cores  130 MB",
    ]


def test_usage_is_compared_with_requests_and_limits() -> None:
    pods = [measured("a", "50m", "64Mi")]
    bounded = {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "memory": "128Mi"}}
    look = TopOptions(what="pods")
    known = {"kube-system/a": declared("a", bounded)}
    (heading, row) = usage.table(usage.pod_lines(pods, known, look), look, None)
    assert heading.split() == ["POD", "CPU", "MEM", "CPU/REQ", "CPU/LIM", "MEM/REQ", "MEM/LIM"]
    assert row.split() == ["a", "0.05", "cores", "67", "MB", "50%", "25%", "-", "50%"]


def test_a_pod_has_a_limit_only_if_all_its_containers_have() -> None:
    known = {"kube-system/a": declared("a", {"limits": {"cpu": "1"}}, {})}
    (line,) = usage.pod_lines([measured("a", "50m", "64Mi")], known, TopOptions(what="pods"))
    assert line.limits == {}


@pytest.mark.parametrize(("sort_by", "order"), [("cpu", "bac"), ("memory", "cab"), ("name", "abc")])
def test_lines_are_sorted(sort_by: str, order: str) -> None:
    pods = [measured("a", "2", "2Mi"), measured("b", "3", "1Mi"), measured("c", "1", "3Mi")]
    lines = usage.pod_lines(pods, {}, TopOptions(what="pods", sort_by=sort_by))
    assert "".join(line.name for line in lines) == order


def test_nodes_are_compared_with_what_they_can_give() -> None:
    meta = {"name": "n1"}
    found = node.RESOURCE.from_document({"metadata": meta, "machine": windows("500m", "1Gi")})
    room = {"status": {"allocatable": {"cpu": "2", "memory": "4Gi"}}}
    known = {"n1": core_node.RESOURCE.from_document({"metadata": meta, **room})}
    look = TopOptions()
    table = usage.table(usage.node_lines([found], known, look), look, {"/n1/": "▁█"})
    assert table == [
        "NODE  CPU         MEM      CPU%  MEM%  CPU TREND",
        "n1    0.50 cores  1074 MB  25%   25%   ▁█",
    ]


def test_a_sparkline_goes_from_nothing_to_the_most() -> None:
    amounts = [Quantity.parse(text) for text in ("0", "500m", "1")]
    assert usage.sparkline(amounts) == "▁▅█"
    assert usage.sparkline([Quantity.parse("0")]) == "▁"


def test_programs_get_quantities() -> None:
    look = TopOptions(what="pods", containers=True, window="1d", statistic="max")
    lines = usage.pod_lines([measured("a", "50m", "64Mi")], {}, look)
    assert usage.documents(lines, look) == {
        "window": "1d",
        "statistic": "max",
        "items": [
            {
                "namespace": "kube-system",
                "name": "a",
                "container": "main",
                "usage": {"cpu": "50m", "memory": "64Mi"},
            }
        ],
    }


def test_what_a_sidecar_asks_for_counts() -> None:
    asking = {"requests": {"cpu": "25m"}, "limits": {"cpu": "50m"}}
    spec = {
        "initContainers": [
            {"name": "prepare", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}},
            {"name": "side", "restartPolicy": "Always", "resources": asking},
        ],
        "containers": [{"name": "main", "resources": asking}],
    }
    meta = {"name": "a", "namespace": "kube-system"}
    known = {
        "kube-system/a": core_pod.RESOURCE.from_document({"metadata": meta, "spec": spec}),
    }
    (line,) = usage.pod_lines([measured("a", "50m", "64Mi")], known, TopOptions(what="pods"))
    assert (str(line.requests["cpu"]), str(line.limits["cpu"])) == ("50m", "100m")


def test_what_a_pod_asks_for_itself_is_what_counts() -> None:
    own = {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}
    meta = {"name": "a", "namespace": "kube-system"}
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}]
    spec = {"containers": containers, "resources": own}
    known = {
        "kube-system/a": core_pod.RESOURCE.from_document({"metadata": meta, "spec": spec}),
    }
    (line,) = usage.pod_lines([measured("a", "50m", "64Mi")], known, TopOptions(what="pods"))
    assert {name: str(each) for name, each in line.requests.items()} == {
        "cpu": "500m",
        "memory": "1Mi",
    }
    assert {name: str(each) for name, each in line.limits.items()} == {"cpu": "1"}


def test_wide_says_where_pods_run() -> None:
    meta = {"name": "a", "namespace": "kube-system"}
    spec = {"nodeName": "n1", "containers": [{"name": "main"}]}
    known = {
        "kube-system/a": core_pod.RESOURCE.from_document({"metadata": meta, "spec": spec}),
    }
    look = TopOptions(what="pods", wide=True)
    heading, row = usage.table(
        usage.pod_lines([measured("a", "50m", "64Mi")], known, look), look, None
    )
    assert (heading.split()[-1], row.split()[-1]) == ("NODE", "n1")


def test_wide_shows_disk_network_and_throttling() -> None:
    found = measured("a", "50m", "64Mi")
    used = found.containers[0].metrics["1m"].mean
    used["ephemeral-storage"] = Quantity.parse("1500000")
    used["disk-write"] = Quantity.parse("2048")
    used["network-receive"] = Quantity.parse("125")
    used["cpu-throttled"] = Quantity.parse("250m")
    look = TopOptions(what="pods", wide=True)
    heading, row = usage.table(usage.pod_lines([found], {}, look), look, None)
    columns = ["DISK", "READ", "WRITE", "RECEIVE", "SEND", "THROTTLED", "NODE"]
    assert heading.split()[-7:] == columns
    assert re.split("  +", row)[-7:] == ["1.5 MB", "-", "2.0 kB/s", "125 B/s", "-", "25%", "-"]


def test_wide_shows_the_disk_of_nodes() -> None:
    machine = windows("500m", "1Gi")
    machine["1m"]["mean"] = {**machine["1m"]["mean"], "disk-read": "4M"}
    found = node.RESOURCE.from_document({"metadata": {"name": "n1"}, "machine": machine})
    look = TopOptions(wide=True)
    heading, row = usage.table(usage.node_lines([found], {}, look), look, None)
    assert heading.split()[-6:] == ["DISK", "READ", "WRITE", "RECEIVE", "SEND", "THROTTLED"]
    assert re.split("  +", row)[-5:] == ["4.0 MB/s", "-", "-", "-", "-"]
