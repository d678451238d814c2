"""The Pod that `kedge run NAME` makes of its flags; pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kedge.cli.failure import Failure


class PodOptions(NamedTuple):
    """The pod to run."""

    name: str
    image: str
    arguments: Sequence[str] = ()
    is_command: bool = False
    """Whether the arguments replace the command of the image."""
    environment: Sequence[str] = ()
    labels: str = ""
    annotations: Sequence[str] = ()
    port: int = 0
    restart: str = "Always"
    pull_policy: str = ""
    stdin: bool = False
    tty: bool = False


def pod(asked: PodOptions) -> dict[str, Any]:
    """Return the manifest."""
    container: dict[str, Any] = {"name": asked.name, "image": asked.image}
    if asked.arguments:
        container["command" if asked.is_command else "args"] = [*asked.arguments]
    if asked.environment:
        pairs = [_pair(each, "--env") for each in asked.environment]
        container["env"] = [{"name": name, "value": value} for name, value in pairs]
    if asked.port:
        container["ports"] = [{"containerPort": asked.port}]
    if asked.pull_policy:
        container["imagePullPolicy"] = asked.pull_policy
    if asked.stdin:
        container |= {"stdin": True, "stdinOnce": True}
    if asked.tty:
        container["tty"] = True
    metadata: dict[str, Any] = {"name": asked.name, "labels": _labels(asked)}
    if asked.annotations:
        metadata["annotations"] = dict(_pair(each, "--annotations") for each in asked.annotations)
    spec = {"containers": [container], "restartPolicy": asked.restart}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _labels(asked: PodOptions) -> dict[str, str]:
    given = [each for each in asked.labels.split(",") if each]
    return dict(_pair(each, "--labels") for each in given) or {"run": asked.name}


def _pair(text: str, flag: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise Failure(f'{flag} "{text}": expected NAME=VALUE')
    return name, value
