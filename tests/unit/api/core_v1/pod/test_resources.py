"""What the containers of a pod ask for together."""

from hypothesis import given
from hypothesis import strategies as st

from kedge.api.core_v1.pod.container import Container, ResourceRequirements
from kedge.api.core_v1.pod.resources import pod_requests, total
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.machinery.quantity import Quantity
from kedge.testing.pods import new_pod


def asking(milli: int, policy: str | None = None) -> Container:
    requests = {"cpu": Quantity.from_milli(milli)}
    return Container(resources=ResourceRequirements(requests=requests), restartPolicy=policy)


amounts = st.integers(0, 5000)
containers = st.lists(st.builds(asking, amounts), min_size=1, max_size=3)
init = st.lists(st.builds(asking, amounts, st.sampled_from([None, "Always"])), max_size=5)


def most_at_any_time(spec: PodSpec) -> int:
    """The same by playing through the pod's life."""
    beside, most = 0, 0
    for container in spec.initContainers:
        own = container.resources.requests["cpu"].milli()
        most = max(most, beside + own)
        if container.restartPolicy == "Always":
            beside += own
    running = sum(c.resources.requests["cpu"].milli() for c in spec.containers)
    return max(most, beside + running)


@given(containers, init)
def test_a_pod_asks_for_the_most_it_needs_at_any_time(
    regular: list[Container], before: list[Container]
) -> None:
    spec = PodSpec(containers=regular, initContainers=before)
    assert total(spec, "requests")["cpu"].milli() == most_at_any_time(spec)


def test_a_pod_speaks_for_its_containers_and_adds_its_overhead() -> None:
    spec = PodSpec(
        containers=[asking(100)],
        resources=ResourceRequirements(requests={"cpu": Quantity.parse("2")}),
        overhead={"cpu": Quantity.parse("500m"), "memory": Quantity.parse("1Mi")},
    )
    assert {name: str(amount) for name, amount in pod_requests(spec).items()} == {
        "cpu": "2500m",
        "memory": "1Mi",
    }


def test_storage_counts_as_ephemeral_storage_and_only_so() -> None:
    resources = {"requests": {"storage": "1Gi"}, "limits": {"storage": "2Gi"}}
    pod = new_pod(container={"resources": resources})
    assert total(pod.spec, "requests") == {"ephemeral-storage": Quantity.parse("1Gi")}
    assert total(pod.spec, "limits") == {"ephemeral-storage": Quantity.parse("2Gi")}
