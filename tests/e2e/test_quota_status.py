"""The status of quotas as the API server writes it, without the controller and after a kill."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.e2e.conftest import Kubectl, OwnCluster, Refused, kubectls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CORE = "/api/v1/namespaces/default"
WITHOUT_CONTROLLER = "--controllers=*,-resourcequota"
REQUESTS = (
    '\'{"spec":{"containers":[{"name":"p","image":"host",'
    '"resources":{"requests":{"cpu":"500m"}}}]}}\''
)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    own = OwnCluster(tmp_path_factory.mktemp("quotas"))
    yield own
    own.kedge("down", *own.which, "--purge", "--yes")


@pytest.fixture(scope="module")
def terminal(own: OwnCluster) -> Kubectl:
    """For a cluster whose controller of quotas is off."""
    return Kubectl(next(iter(kubectls().values())), own.up(WITHOUT_CONTROLLER), "default")


def used(terminal: Kubectl, name: str) -> dict[str, str]:
    found: dict[str, str] = terminal.json(f"get quota {name}")["status"]["used"]
    return found


def test_the_status_follows_each_create_without_a_controller(terminal: Kubectl) -> None:
    terminal("create quota box --hard=pods=3,requests.cpu=2,services=3,count/secrets=3")
    for i in range(1, 4):
        terminal(f"run p{i} --image=host --overrides={REQUESTS}")
        assert used(terminal, "box")["pods"] == str(i)
        assert used(terminal, "box")["requests.cpu"] == ("500m", "1", "1500m")[i - 1]
    assert "pods: 3/3" in terminal.says("get quota box")
    refused = terminal.fails(f"run p4 --image=host --overrides={REQUESTS}")
    assert "exceeded quota: box, requested: pods=1, used: pods=3, limited: pods=3" in refused
    terminal("create secret generic s --from-literal=a=b")
    terminal("create service nodeport web --tcp=80")
    # The service `kubernetes` is the second one.
    assert used(terminal, "box") == {
        "pods": "3",
        "requests.cpu": "1500m",
        "services": "2",
        "count/secrets": "1",
    }


def test_the_status_is_right_after_many_creates_and_a_kill(
    terminal: Kubectl, own: OwnCluster
) -> None:
    """Each acknowledged create is in the status, also if the server is killed meanwhile."""
    terminal("create quota many --hard=configmaps=1000")
    api = own.up().api

    def create(i: int) -> int:
        try:
            api.create(f"{CORE}/configmaps", {"metadata": {"name": f"c{i}"}})
        except (Refused, OSError):
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        before = sum(pool.map(create, range(100)))
        assert before == 100
        assert int(used(terminal, "many")["configmaps"]) == count(terminal)
        running = [pool.submit(create, i) for i in range(100, 300)]
        running[20].result()
        own.kill()
        acknowledged = before + sum(each.result() for each in running)
    own.up(WITHOUT_CONTROLLER)
    assert int(used(terminal, "many")["configmaps"]) >= acknowledged
    # The next create counts anew: what the killed server had admitted and not stored is left out.
    terminal("create configmap last")
    assert int(used(terminal, "many")["configmaps"]) == count(terminal)


def count(terminal: Kubectl) -> int:
    return len(terminal.json("get configmaps")["items"])


def test_the_controller_lowers_the_status_and_creates_raise_it(
    terminal: Kubectl, own: OwnCluster, eventually: Callable[..., None]
) -> None:
    own.kedge("down", *own.which)
    own.up()
    # What a controller has not counted while it was off is counted when it starts.
    eventually(lambda: used(terminal, "many")["configmaps"] == str(count(terminal)))
    for i in range(5):
        terminal(f"create configmap again{i}")
        assert used(terminal, "many")["configmaps"] == str(count(terminal))
        terminal(f"delete configmap again{i}")
        eventually(lambda: used(terminal, "many")["configmaps"] == str(count(terminal)))
