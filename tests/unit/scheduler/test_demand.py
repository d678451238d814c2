import pytest

from kedge.scheduler.demand import FEW_LABELS, PodDemand
from kedge.testing.scheduling import demand


def test_requests_are_millicores_and_whole_units_without_zeros() -> None:
    asked = demand(requests={"cpu": "1500m", "memory": "1Ki", "example.com/gpu": "2"})
    assert asked.requests == {"cpu": 1500, "memory": 1024, "example.com/gpu": 2}
    assert asked.others == (("example.com/gpu", 2),)
    assert demand(requests={"cpu": "0"}).requests == {}


def test_pods_of_one_template_share_their_requests_and_labels() -> None:
    def asked(cpu: str, labels: dict[str, str]) -> PodDemand:
        return demand(requests={"cpu": cpu, "memory": "1Ki"}, labels=labels)

    one, same, other = asked("1", {"a": "b"}), asked("1", {"a": "b"}), asked("2", {"a": "c"})
    assert same.requests is one.requests
    assert same.group is one.group
    assert other.requests == {"cpu": 2000, "memory": 1024}
    assert other.group == frozenset({("a", "c")})
    many = {str(number): "x" for number in range(FEW_LABELS + 1)}
    assert asked("1", many).group is not asked("1", many).group


def test_init_containers_sidecars_and_overhead_count_as_the_node_will_hold_them() -> None:
    def container(name: str, cpu: str, **more: str) -> dict[str, object]:
        resources = {"requests": {"cpu": cpu}}
        return {"name": name, "image": "i", "resources": resources, **more}

    asked = demand(
        containers=[container("app", "1")],
        initContainers=[
            container("sidecar", "500m", restartPolicy="Always"),
            container("setup", "2"),
        ],
        overhead={"cpu": "100m"},
    )
    assert asked.cpu == 2600


def test_what_the_pod_says_as_a_whole_wins_over_its_containers() -> None:
    whole = {"requests": {"cpu": "3"}}
    assert demand(requests={"cpu": "1"}, resources=whole).cpu == 3000


def test_containers_that_say_nothing_are_taken_for_small_ones_only_when_compared() -> None:
    silent = demand(containers=[{"name": "a", "image": "i"}, {"name": "b", "image": "i"}])
    assert (silent.cpu, silent.memory) == (0, 0)
    assert (silent.assumed_cpu, silent.assumed_memory) == (200, 2 * 200 * 2**20)
    half = demand(requests={"cpu": "10m"})
    assert (half.assumed_cpu, half.assumed_memory) == (10, 200 * 2**20)


def test_a_resize_that_is_under_way_holds_the_larger_of_both() -> None:
    resized = demand(
        requests={"cpu": "1"},
        status={
            "containerStatuses": [{"name": "ctr", "resources": {"requests": {"cpu": "2"}}}],
        },
    )
    assert resized.cpu == 2000


def test_host_ports_of_containers_that_stay() -> None:
    def container(name: str, port: int, **more: str) -> dict[str, object]:
        ports = [{"containerPort": port, "hostPort": port}]
        return {"name": name, "image": "i", "ports": ports, **more}

    asked = demand(
        containers=[container("app", 80)],
        initContainers=[container("once", 81), container("stays", 82, restartPolicy="Always")],
    )
    assert [port.number for port in asked.ports] == [82, 80]
    assert asked.ports[0].address == "0.0.0.0"


@pytest.mark.parametrize(
    ("term", "reached"),
    [
        ({}, {"default"}),
        ({"namespaces": ["a"]}, {"a"}),
        ({"namespaceSelector": {}}, {"default", "a", "b"}),
        ({"namespaceSelector": {"matchLabels": {"team": "b"}}}, {"b"}),
        ({"namespaces": ["a"], "namespaceSelector": {"matchLabels": {"team": "b"}}}, {"a", "b"}),
    ],
)
def test_namespaces_that_a_term_reaches(term: dict[str, object], reached: set[str]) -> None:
    labels = {"default": {}, "a": {}, "b": {"team": "b"}}
    whole = {"topologyKey": "zone", "labelSelector": {}} | term
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [whole]}
    (found,) = demand(affinity={"podAffinity": required}).affinity
    assert {name for name in labels if found.matches(name, {}, labels[name])} == reached
