from kedge.cli.cluster.cluster_status import ClusterStatus, NodeProcess
from kedge.cli.cluster.status import describe


def test_a_stopped_cluster_has_a_name_a_status_and_a_place() -> None:
    status = ClusterStatus(name="dev", status="Stopped", state="/state/dev", context="kedge-dev")
    assert [line.split() for line in describe(status).splitlines()] == [
        ["Name:", "dev"],
        ["Status:", "Stopped"],
        ["State:", "/state/dev"],
        ["Store:", "0", "B"],
    ]


def test_a_running_cluster_shows_how_its_nodes_carry_services() -> None:
    node = NodeProcess(
        name="node-1",
        status="Running",
        level="full",
        service_proxy="nftables",
        network_policy="none: no",
        runtime="cri:///run/c.sock",
        pid=7,
    )
    status = ClusterStatus(
        name="dev",
        status="Ready",
        state="/state/dev",
        context="kedge-dev",
        pid=5,
        gateway=("http://127.0.0.1:8080",),
        nodes=(node,),
    )
    shown = {
        line.partition(":")[0]: line.partition(":")[2] for line in describe(status).split("\n")
    }
    assert shown["Gateway"].strip() == "http://127.0.0.1:8080"
    assert shown["Node node-1"].strip() == (
        "Running, level full, runtime cri:///run/c.sock, services: nftables,"
        " network policies: none: no, process 7"
    )
