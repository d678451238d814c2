"""Recorded usage, from `kedge top` and from Prometheus."""

import json
from typing import Any

import pytest

from kedge.scheduler.replay.trace import TracedAmount, TraceError, read


def line(second: int, **cpu: str) -> str:
    items = [
        {"namespace": "shop", "name": name, "usage": {"cpu": used, "memory": "64Mi"}}
        for name, used in cpu.items()
    ]
    for each in items:
        each["requests"] = {"cpu": "100m", "ephemeral-storage": "1Gi"}
    return json.dumps({"time": f"2026-11-15T06:00:{second:02}Z", "items": items})


def test_lines_of_kedge_top_become_pods_that_come_and_go() -> None:
    trace = read(
        "\n".join([line(0, a="250m"), line(10, a="500m", b="1"), line(20, b="2")]).encode()
    )
    assert [round(each - trace.moments[0]) for each in trace.moments] == [0, 10, 20]
    first, second = trace.pods
    assert (first.key, first.first, first.last) == ("shop/a", 0, 1)
    assert first.amounts[1] == TracedAmount(0.5, 64 << 20)
    assert first.requests == {"cpu": "100m"}
    assert (second.key, second.first, second.last) == ("shop/b", 1, 2)


def test_the_incomplete_last_line_of_an_interrupted_recording_is_left_out() -> None:
    trace = read((line(0, a="1") + "\n" + line(10, a="1") + "\n" + line(20, a="1")[:30]).encode())
    assert len(trace.moments) == 2


def series(name: str, value: float, **labels: str) -> dict[str, Any]:
    metric = {"__name__": name, "namespace": "shop", "pod": "web-1", **labels}
    return {"metric": metric, "values": [[100, str(value)], [160, str(2 * value)]]}


def test_an_answer_of_prometheus_is_a_trace() -> None:
    found = [
        series("kedge_pod_cpu_usage_cores", 0.25),
        series("container_memory_working_set_bytes", 1000, container="a"),
        series("container_memory_working_set_bytes", 500, container="b"),
        series("kube_pod_container_resource_requests", 0.1, resource="cpu"),
    ]
    body = {"status": "success", "data": {"resultType": "matrix", "result": found}}
    (pod,) = read(json.dumps(body).encode()).pods
    assert pod.amounts == {0: TracedAmount(0.25, 1500), 1: TracedAmount(0.5, 3000)}
    assert pod.requests == {"cpu": "200m"}
    assert pod.workload == "shop/web"


def test_answers_can_be_named_by_resource() -> None:
    def answer(value: float, **labels: str) -> dict[str, Any]:
        return {"data": {"result": [series("", value, **labels)]}}

    body = {"cpu": answer(1), "memory": answer(5), "requests": answer(2, resource="memory")}
    (pod,) = read(json.dumps(body).encode()).pods
    assert pod.amounts[0] == TracedAmount(1, 5)
    assert pod.requests == {"memory": "4"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no usage"),
        ("{}", "neither"),
        ("[1]", "neither"),
        ('{"time":"yesterday","items":[]}', "cannot be read"),
        ('{"time":"2026-11-15T06:00:00Z","items":[{"name":"a"}]}', "cannot be read"),
        ('{"disk":{"data":{"result":[{"metric":{"pod":"a"},"values":[]}]}}}', "none of cpu"),
        ("nonsense\nnonsense", "cannot be read"),
        (
            '{"requests":{"data":{"result":[{"metric":{"pod":"a","resource":"cpu"},'
            '"values":[[1,"Inf"]]}]}}}',
            "cannot be read",
        ),
        ('{"result":[{"metric":{"pod":"a"},"values":[[1,"NaN"]]}]}', "no usage"),
        ('{"result":[{"metric":{"pod":"a"},"values":[[1,"1e308"]]}]}', "greater than"),
        ('{"result":[{"metric":{"pod":"a"},"values":[[1e308,"1"]]}]}', "greater than"),
        ('{"result":' + "[" * 100_000, "cannot be read"),
        ('{"time":"x"}\n' + "[" * 100_000 + "\n{}", "cannot be read"),
    ],
)
def test_other_files_are_refused(text: str, why: str) -> None:
    with pytest.raises(TraceError, match=why):
        read(text.encode())


@pytest.mark.parametrize(
    ("key", "workload"),
    [
        ("a/web-5d9c7b8f4d-x7k2p", "a/web"),
        ("a/db-0", "a/db"),
        ("a/agent-x7k2p", "a/agent"),
        ("a/alone", "a/alone"),
    ],
)
def test_replicas_have_one_workload(key: str, workload: str) -> None:
    body = {"metric": {"namespace": "a", "pod": key[2:]}, "values": [[1, "1"]]}
    (pod,) = read(json.dumps({"result": [body]}).encode()).pods
    assert pod.workload == workload


def test_values_that_are_no_numbers_are_left_out() -> None:
    values = [[1, "NaN"], [2, "1"], [3, "+Inf"], [4, "2"], ["NaN", "3"]]
    body = {"metric": {"namespace": "a", "pod": "web"}, "values": values}
    trace = read(json.dumps({"result": [body]}).encode())
    assert trace.moments == (2.0, 4.0)
    (pod,) = trace.pods
    assert [each.cores for each in pod.amounts.values()] == [1.0, 2.0]
    assert (pod.first, pod.last) == (0, 1)
