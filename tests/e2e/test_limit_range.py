"""LimitRanges as kubectl shows them, and what they let pass."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Kubectl, Terminal

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "limitrange"
SEED = f"{EXAMPLES}/limit-range.json"


@pytest.fixture
def limited(any_kubectl: Kubectl) -> Kubectl:
    """kubectl, in a namespace with the limits of the example."""
    assert any_kubectl.says(f"create -f {SEED}") == "limitrange/limits created"
    return any_kubectl


def annotation(kubectl: Kubectl, pod: str) -> str | None:
    """What LimitRanger says it has set."""
    annotations: dict[str, str] = kubectl.json(f"get pod {pod}")["metadata"].get("annotations", {})
    return annotations.get("kubernetes.io/limit-ranger")


def squeezed(text: str) -> list[str]:
    return [re.sub(" +", " ", line).rstrip() for line in text.splitlines()]


def limits_of(text: str, type_: str) -> list[str]:
    """The rows of a type; kubectl puts the resources of an item in any order."""
    return sorted(line.strip() for line in squeezed(text) if line.strip().startswith(f"{type_} "))


def test_a_list_of_limit_ranges_is_a_list_of_names(kubectl: Kubectl) -> None:
    kubectl(f"create -f {SEED}")
    assert kubectl("get limits").stdout == "NAME\nlimits\n"
    assert kubectl("get limitranges").stdout == "NAME\nlimits\n"
    heading, row = squeezed(kubectl("get limits -o wide").stdout)
    assert heading == "NAME CREATED AT"
    assert re.fullmatch(r"limits \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row)


def test_a_description_tells_all_bounds(kubectl: Kubectl) -> None:
    kubectl(f"create -f {SEED}")
    text = kubectl("describe limits limits").stdout
    name, namespace, heading, dashes, *rows = squeezed(text)
    assert (name, namespace) == ("Name: limits", f"Namespace: {kubectl.namespace}")
    assert heading == "Type Resource Min Max Default Request Default Limit Max Limit/Request Ratio"
    assert set(dashes) == {"-", " "}
    assert len(rows) == 4
    assert limits_of(text, "Pod") == ["Pod cpu 250m 2 - - -", "Pod memory 1Mi 1Gi - - -"]
    assert limits_of(text, "Container") == [
        "Container cpu 250m 2 2 2 -",
        "Container memory 1Mi 1Gi 1Gi 1Gi -",
    ]


def test_a_namespace_tells_of_its_limits(limited: Kubectl) -> None:
    text = limited(f"describe namespace {limited.namespace}").stdout
    before, _, block = text.partition("\nResource Limits\n")
    assert "No LimitRange resource." not in before
    assert limits_of(block, "Pod") == ["Pod cpu 250m 2 - - -", "Pod memory 1Mi 1Gi - - -"]
    limited("delete limits limits")
    assert "No LimitRange resource." in limited(f"describe namespace {limited.namespace}").stdout


def test_a_pod_that_fits_is_left_as_it_is(limited: Kubectl) -> None:
    assert limited.says(f"create -f {EXAMPLES}/fits.yaml") == "pod/fits created"
    assert annotation(limited, "fits") is None
    told = limited.says("get pod fits -o=jsonpath={.spec.containers[0].resources}")
    assert json.loads(told) == {
        "requests": {"cpu": "500m", "memory": "64Mi"},
        "limits": {"cpu": "1", "memory": "128Mi"},
    }


def test_a_pod_that_asks_for_nothing_is_given_the_defaults(limited: Kubectl) -> None:
    assert limited.says("run web --image=nginx") == "pod/web created"
    most = {"cpu": "2", "memory": "1Gi"}
    told = limited.says("get pod web -o=jsonpath={.spec.containers[0].resources}")
    assert json.loads(told) == {"requests": most, "limits": most}
    assert annotation(limited, "web") == (
        "LimitRanger plugin set: cpu, memory request for container web; "
        "cpu, memory limit for container web"
    )


def test_a_refusal_names_every_constraint(limited: Kubectl) -> None:
    little, much = f"{EXAMPLES}/too-little.yaml", f"{EXAMPLES}/too-much.yaml"
    assert limited.fails(f"create -f {little}") == (
        f'Error from server (Forbidden): error when creating "{little}": '
        'pods "too-little" is forbidden: ['
        "minimum cpu usage per Pod is 250m, but request is 100m, "
        "minimum memory usage per Pod is 1Mi, but request is 512Ki, "
        "minimum cpu usage per Container is 250m, but request is 100m, "
        "minimum memory usage per Container is 1Mi, but request is 512Ki]\n"
    )
    assert limited.fails(f"apply -f {much}") == (
        f'Error from server (Forbidden): error when creating "{much}": '
        'pods "too-much" is forbidden: ['
        "maximum cpu usage per Pod is 2, but limit is 2500m, "
        "maximum memory usage per Pod is 1Gi, but limit is 1088Mi]\n"
    )
    assert "No resources found" in limited("get pods").stderr


def test_what_is_edited_holds_at_once(limited: Kubectl) -> None:
    pod = f"create --dry-run=server -f {EXAMPLES}/too-much.yaml"
    limited.fails(pod)
    roomy = '[{"op": "replace", "path": "/spec/limits/0/max", "value": {"cpu": "3"}}]'
    limited("patch", "limits", "limits", "--type=json", f"--patch={roomy}")
    assert limited.says(pod) == "pod/too-much created (server dry run)"
    limited("delete limits --all")
    limited.says(f"create -f {EXAMPLES}/too-little.yaml")


def test_a_deployment_whose_pods_would_be_refused_draws_warnings(limited: Kubectl) -> None:
    done = limited(f"apply -f {EXAMPLES}/deployment.yaml")
    assert done.stdout == "deployment.apps/greedy created\n"
    refused = 'Warning: spec.template: pods will be refused by LimitRange "limits": '
    assert done.stderr.splitlines() == [
        f"{refused}maximum cpu usage per Pod is 2, but limit is 4",
        f"{refused}maximum cpu usage per Container is 2, but limit is 4",
    ]


def test_the_events_of_a_deployment_say_why_it_has_no_pods(
    limited: Kubectl, eventually: Callable[..., Any]
) -> None:
    limited(f"apply -f {EXAMPLES}/deployment.yaml")

    def told() -> bool:
        text = limited("describe deployment greedy").stdout
        return 'LimitRange "limits": maximum cpu usage per Pod is 2, but limit is 4' in text

    eventually(told)


@contextmanager
def bare_server(terminal: Terminal, *flags: str) -> Iterator[tuple[str, ...]]:
    """`kedge server` with these flags; gives kubectl's way to reach it."""
    state = terminal.home / "bare"
    command = ["server", f"--state={state}", "--port=0", "--store=memory", *flags]
    with subprocess.Popen(
        [sys.executable, "-m", "kedge", *command],
        env=terminal.environment,
        cwd=terminal.home,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stderr is not None
            assert "is ready at" in server.stderr.readline()
            server.stderr.readline()
            yield "--kubeconfig", str(state / "kubeconfig")
        finally:
            server.terminate()


@pytest.mark.parametrize(
    ("flags", "enforced"),
    [
        ((), False),
        (("--admission-control=NamespaceLifecycle",), False),
        (("-admission_control=LimitRanger",), True),
        (("--admission_control=LimitRanger",), True),
        (("--enable-admission-plugins=LimitRanger",), True),
    ],
)
def test_a_server_enforces_limits_only_if_it_is_told_to(
    terminal: Terminal, flags: tuple[str, ...], enforced: bool
) -> None:
    with bare_server(terminal, *flags) as server:
        made = terminal.kubectl(*server, "create", "-f", SEED)
        assert made.returncode == 0
        assert ("the admission plugin LimitRanger is disabled" in made.stderr) is not enforced
        assert terminal.kubectl(*server, "get", "limits").stdout == "NAME\nlimits\n"
        pod = f"{EXAMPLES}/too-little.yaml"
        made = terminal.kubectl(*server, "create", "-f", pod)
        if enforced:
            assert made.returncode == 1
            assert 'pods "too-little" is forbidden: [minimum cpu usage' in made.stderr
        else:
            assert made.stdout == "pod/too-little created\n"
