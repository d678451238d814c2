"""Which ports are forwarded: the words of the command line, and the ports of Services; pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kedge.cli.failure import Failure

Fields = Mapping[str, Any]


class PortPair(NamedTuple):
    """A port of this machine and the port of the pod that it leads to."""

    local: int
    """0 for any free one."""
    remote: int


def parse(word: str, document: Fields, pod: Fields) -> PortPair:
    """Read `8080:80`, `80`, `:80` or a name in place of the second number. `document` is the object
    that was named, `pod` the pod that is reached."""
    local, colon, remote = word.partition(":")
    if not colon:
        remote = local
    number = _remote(remote, document, pod)
    if not colon:
        return PortPair(_number(local) if local.isdecimal() else number, number)
    return PortPair(_number(local) if local else 0, number)


def _remote(text: str, document: Fields, pod: Fields) -> int:
    if document["kind"] == "Service":
        return _of_service(text, document, pod)
    return _number(text) if text.isdecimal() else _of_pod(text, pod)


def _of_service(text: str, service: Fields, pod: Fields) -> int:
    """Return the port of a pod behind a port of a Service."""
    for each in service["spec"].get("ports") or ():
        if text in (str(each["port"]), each.get("name", "")):
            target = each.get("targetPort", each["port"])
            if service["spec"].get("clusterIP") == "None" and text.isdecimal():
                return int(each["port"])
            return target if isinstance(target, int) else _of_pod(target, pod)
    name = service["metadata"]["name"]
    raise Failure(f"Service {name} does not have a service port {text}")


def _of_pod(name: str, pod: Fields) -> int:
    """Return the number of a named port of a pod."""
    for container in pod["spec"]["containers"]:
        for each in container.get("ports") or ():
            if each.get("name") == name:
                return int(each["containerPort"])
    raise Failure(f"Pod {pod['metadata']['name']} does not have a named port '{name}'")


def _number(text: str) -> int:
    number = int(text) if text.isdecimal() and len(text) < 6 else -1
    if not 0 < number < 1 << 16:
        raise Failure(f'"{text}" is not a port: give a number from 1 to 65535, as in 8080:80')
    return number
