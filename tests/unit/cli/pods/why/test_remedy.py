"""Commands that change resources."""

import pytest

from kedge.api.core_v1.pod.container import ResourceRequirements
from kedge.cli.pods.why.remedy import Remedy, grown
from kedge.cli.pods.why.slow_subject import SlowSubject
from kedge.machinery.quantity import Quantity


def subject(request: str, limit: str, name: str = "main") -> SlowSubject:
    resources = ResourceRequirements(
        requests={"cpu": Quantity.parse(request)}, limits={"cpu": Quantity.parse(limit)}
    )
    return SlowSubject(name, {}, resources)


ONE = Quantity.parse("1")


def test_a_pod_without_a_workload_is_resized() -> None:
    command = Remedy("shop", "web").resize(subject("100m", "500m"), "cpu", ONE)
    assert command == (
        "kubectl -n shop patch pod web --subresource resize -p "
        '\'{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"1"}}}]}}\''
    )


def test_a_pod_with_limits_of_its_own_is_resized_as_a_whole() -> None:
    command = Remedy("shop", "web", "deployment/web").resize(subject("1", "2", ""), "cpu", ONE)
    assert command.endswith('\'{"spec":{"resources":{"limits":{"cpu":"1"}}}}\'')


def test_a_guaranteed_pod_stays_guaranteed() -> None:
    command = Remedy("shop", "web", "statefulset/web").resize(subject("500m", "500m"), "cpu", ONE)
    assert command.endswith("statefulset/web -c main --limits=cpu=1 --requests=cpu=1")


def test_a_limit_is_never_below_its_request() -> None:
    command = Remedy("shop", "web", "deployment/web").request(subject("100m", "500m"), "cpu", ONE)
    assert command.endswith("--requests=cpu=1 --limits=cpu=1")


@pytest.mark.parametrize(
    ("amount", "percent", "larger"),
    [("500m", 200, "1"), ("333m", 150, "500m"), ("100Mi", 125, "125Mi"), ("100M", 150, "144Mi")],
)
def test_amounts_grow_in_readable_steps(amount: str, percent: int, larger: str) -> None:
    assert str(grown(Quantity.parse(amount), percent)) == larger
