"""The pod that `kedge run NAME` makes, and the choice between a pod and a cluster."""

import pytest

from kedge.cli.failure import Failure
from kedge.cli.main import parser
from kedge.cli.pods.run import command
from kedge.cli.pods.run.pod import PodOptions, pod


def test_a_pod_of_all_flags() -> None:
    asked = PodOptions(
        "web",
        "nginx",
        ["a", "b"],
        is_command=True,
        environment=["A=b=c"],
        labels="x=y",
        annotations=["n=1"],
        port=80,
        restart="Never",
        pull_policy="Never",
        stdin=True,
        tty=True,
    )
    assert pod(asked) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"x": "y"}, "annotations": {"n": "1"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "web",
                    "image": "nginx",
                    "command": ["a", "b"],
                    "env": [{"name": "A", "value": "b=c"}],
                    "ports": [{"containerPort": 80}],
                    "imagePullPolicy": "Never",
                    "stdin": True,
                    "stdinOnce": True,
                    "tty": True,
                }
            ],
        },
    }


def test_words_are_arguments_unless_they_are_the_command() -> None:
    made = pod(PodOptions("web", "nginx", ["-x"]))
    assert made["spec"]["containers"][0]["args"] == ["-x"]
    assert made["metadata"]["labels"] == {"run": "web"}
    with pytest.raises(Failure, match="expected NAME=VALUE"):
        pod(PodOptions("web", "nginx", environment=["A"]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["web", "--", "x"], "'kedge run web' needs --image to run a pod"),
        (["--rm", "--", "x"], "--rm is a flag of a pod: give NAME and --image"),
        (["--restart=Never", "--", "x"], "--restart is a flag of a pod"),
    ],
)
def test_a_cluster_takes_no_flags_of_a_pod(words: list[str], message: str) -> None:
    with pytest.raises(Failure, match=message):
        command.check_unused(parser().parse_args(["run", *words]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--image=x"], "NAME is required"),
        (["web", "--image=x", "--nodes=2"], "--nodes is a flag of a throw-away cluster"),
        (["web", "--image=x", "--rm"], "--rm should only be used for attached containers"),
    ],
)
def test_a_pod_takes_no_flags_of_a_cluster(words: list[str], message: str) -> None:
    with pytest.raises(Failure, match=message):
        command.run(parser().parse_args(["run", *words]))


def test_a_port_belongs_to_both() -> None:
    flags = parser().parse_args(["run", "web", "--image=x", "--port=80"])
    command._check(flags)
    assert flags.port == 80
