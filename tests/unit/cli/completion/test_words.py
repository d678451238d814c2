"""Words that complete a command line."""

import subprocess

import pytest

from kedge.cli.completion.scripts import SCRIPTS
from kedge.cli.completion.words import CLUSTERS, CONTAINERS, CONTEXTS, complete

OBJECTS = {
    "": ["pods", "deployments", "persistentvolumes"],
    "pods": ["web-1", "web-2", "db-0"],
    "deploy": ["web"],
    "namespaces": ["default", "shop"],
    CLUSTERS: ["default", "dev"],
    CONTEXTS: ["kedge-dev", "prod"],
    f"{CONTAINERS}deploy/web": ["main", "proxy"],
}


def names(type_: str) -> list[str]:
    return OBJECTS.get(type_, [])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("desc", ["describe"]),
        ("rol", ["rollout"]),
        ("get p", ["persistentvolumes", "pods"]),
        ("get pods w", ["web-1", "web-2"]),
        ("get -o yaml pods d", ["db-0"]),
        ("get pods -n ", ["default", "shop"]),
        ("get pods --namespace s", ["shop"]),
        ("-n s", ["shop"]),
        ("-n shop get pods d", ["db-0"]),
        ("get pods --no-h", ["--no-headers"]),
        ("logs web", ["web-1", "web-2"]),
        ("logs dep", ["deploy/"]),
        ("logs deploy/", ["deploy/web"]),
        ("exec web-1 -- l", []),
        ("rollout re", ["restart", "resume"]),
        ("rollout restart deploy/", ["deploy/web"]),
        ("delete --cascade ", ["background", "foreground", "orphan"]),
        ("delete --cascade=o", ["--cascade=orphan"]),
        ("up --store ", ["etcd://", "memory", "postgresql://", "sqlite"]),
        ("up --image-m", ["--image-map"]),
        ("namespace s", ["shop"]),
        ("nonsense x", []),
        ("down --name d", ["default", "dev"]),
        ("logs server --name=de", ["--name=default", "--name=dev"]),
        ("--context ", ["kedge-dev", "prod"]),
        ("--context prod get pods w", ["web-1", "web-2"]),
        ("logs deploy/web -c ", ["main", "proxy"]),
        ("exec -it deploy/web --container p", ["proxy"]),
        ("completion f", ["fish"]),
        ("status x", []),
    ],
)
def test_words_fit_their_place(line: str, expected: list[str]) -> None:
    found = complete(line.split(" "), names)
    assert [each for each in expected if each in found] == expected
    if not line.endswith(("desc", "rol")):
        assert found == expected


def test_every_command_is_offered_first() -> None:
    assert {"up", "get", "completion"} <= set(complete([""], names))
    assert "--version" in complete(["-"], names)


def test_the_script_for_bash_is_one() -> None:
    done = subprocess.run(["bash", "-n"], input=SCRIPTS["bash"], text=True, check=False)
    assert done.returncode == 0
