"""The containers of a pod: what each runs, in which state it is, what it is given."""

from collections.abc import Iterable, Iterator, Sequence

from kedge.cli.descriptions import parts
from kedge.cli.descriptions.any_object import lines_of
from kedge.cli.descriptions.parts import NONE, Fields, fact

_PROBES = {"Liveness": "livenessProbe", "Readiness": "readinessProbe", "Startup": "startupProbe"}


def containers(
    title: str, specs: Sequence[Fields] | None, statuses: Iterable[Fields] | None, pod: Fields
) -> Iterator[str]:
    """All containers of one sort."""
    known = {status["name"]: status for status in statuses or ()}
    yield f"{title}:" if specs else f"{title}: {NONE}"
    for spec in specs or ():
        yield f"  {spec['name']}:"
        yield from parts.indented(_container(spec, known.get(spec["name"]), pod), "    ")


def _container(spec: Fields, status: Fields | None, pod: Fields) -> Iterator[str]:
    if status is not None:
        yield fact("Container ID", status.get("containerID", ""))
    yield fact("Image", spec.get("image", ""))
    if status is not None:
        yield fact("Image ID", status.get("imageID", ""))
    yield _ports("Port", spec.get("ports") or (), "containerPort")
    yield _ports("Host Port", spec.get("ports") or (), "hostPort")
    yield from _words("Command", spec.get("command"))
    yield from _words("Args", spec.get("args"))
    if status is not None:
        yield from _state(status)
    yield from bounds(spec.get("resources") or {})
    for label, field in _PROBES.items():
        if spec.get(field):
            yield fact(label, probe(spec[field]))
    yield from _environment_from(spec.get("envFrom") or ())
    yield from _environment(spec.get("env") or (), pod)
    yield from _mounts(spec.get("volumeMounts") or ())
    yield from _devices(spec.get("volumeDevices") or ())


def _ports(label: str, ports: Sequence[Fields], field: str) -> str:
    told = [
        f"{port.get(field, 0)}/{port.get('protocol', 'TCP')}"
        + (f" ({port['name']})" if port.get("name") else "")
        for port in ports
    ]
    return fact(f"{label}s" if len(told) > 1 else label, ", ".join(told) or NONE)


def _words(label: str, words: Sequence[str] | None) -> Iterator[str]:
    if words:
        yield f"{label}:"
        for word in words:
            yield from parts.indented(lines_of(word))


def _state(status: Fields) -> Iterator[str]:
    yield from _one_state("State", status.get("state") or {})
    last = status.get("lastState") or {}
    if "terminated" in last:
        yield from _one_state("Last State", last)
    yield fact("Ready", "True" if status.get("ready") else "False")
    yield fact("Restart Count", status.get("restartCount", 0))


def _one_state(label: str, state: Fields) -> Iterator[str]:
    if "running" in state:
        yield fact(label, "Running")
        yield f"  Started:\t{parts.moment(state['running'].get('startedAt'))}"
    elif "terminated" in state:
        yield fact(label, "Terminated")
        yield from parts.indented(_end(state["terminated"]))
    else:
        yield fact(label, "Waiting")
        yield from parts.indented(_reasons(state.get("waiting") or {}))


def _reasons(state: Fields) -> Iterator[str]:
    for label in ("Reason", "Message"):
        if state.get(label.lower()):
            yield fact(label, state[label.lower()])


def _end(state: Fields) -> Iterator[str]:
    yield from _reasons(state)
    yield fact("Exit Code", state.get("exitCode", 0))
    if state.get("signal"):
        yield fact("Signal", state["signal"])
    yield fact("Started", parts.moment(state.get("startedAt")))
    yield fact("Finished", parts.moment(state.get("finishedAt")))


def bounds(resources: Fields) -> Iterator[str]:
    """Limits and requests."""
    for label in ("Limits", "Requests"):
        if values := resources.get(label.lower()):
            yield f"{label}:"
            yield from parts.indented(parts.amounts(values))


def probe(values: Fields) -> str:
    """`http-get http://:80/ delay=0s timeout=1s period=10s #success=1 #failure=3`."""
    manner = (
        f"delay={values.get('initialDelaySeconds', 0)}s timeout={values.get('timeoutSeconds', 1)}s"
        f" period={values.get('periodSeconds', 10)}s #success={values.get('successThreshold', 1)}"
        f" #failure={values.get('failureThreshold', 3)}"
    )
    return f"{_asks(values)} {manner}"


def _asks(values: Fields) -> str:
    if "exec" in values:
        return f"exec [{' '.join(values['exec'].get('command') or ())}]"
    if get := values.get("httpGet"):
        scheme = get.get("scheme", "HTTP").lower()
        return f"http-get {scheme}://{get.get('host', '')}:{get['port']}{get.get('path', '')}"
    if tcp := values.get("tcpSocket"):
        return f"tcp-socket {tcp.get('host', '')}:{tcp['port']}"
    if grpc := values.get("grpc"):
        return f"grpc <pod>:{grpc['port']} {grpc.get('service', '')}"
    return "unknown"


def _environment_from(sources: Sequence[Fields]) -> Iterator[str]:
    if sources:
        yield "Environment Variables from:"
    for source in sources:
        kind = "ConfigMap" if "configMapRef" in source else "Secret"
        named = source.get("configMapRef") or source.get("secretRef") or {}
        prefix = f" with prefix '{source['prefix']}'" if source.get("prefix") else ""
        yield f"  {named.get('name', '')}\t{kind}{prefix}\tOptional: {_yes(named.get('optional'))}"


def _environment(variables: Sequence[Fields], pod: Fields) -> Iterator[str]:
    if not variables:
        yield fact("Environment", NONE)
        return
    yield "Environment:"
    for variable in variables:
        source = variable.get("valueFrom")
        lines = [_from(source, pod)] if source else str(variable.get("value", "")).split("\n")
        yield f"  {variable['name']}:\t{lines[0]}"
        yield from (f"  \t{line}" for line in lines[1:])


def _from(source: Fields, pod: Fields) -> str:
    for field, where in (("secretKeyRef", "in secret"), ("configMapKeyRef", "of config map")):
        if key := source.get(field):
            named = f"<set to the key '{key['key']}' {where} '{key.get('name', '')}'>"
            return f"{named}\tOptional: {_yes(key.get('optional'))}"
    if path := source.get("fieldRef"):
        value = _field(pod, path["fieldPath"])
        return f"{value} ({path.get('apiVersion', 'v1')}:{path['fieldPath']})"
    if resource := source.get("resourceFieldRef"):
        return f"({resource['resource']})"
    return f"<from {', '.join(sorted(source))}>"


def _field(pod: Fields, path: str) -> str:
    """The field where it is a plain one; the others are known to the node alone."""
    value: object = pod
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _mounts(mounts: Sequence[Fields]) -> Iterator[str]:
    yield "Mounts:" if mounts else fact("Mounts", NONE)
    for mount in sorted(mounts, key=lambda each: str(each["mountPath"])):
        how = ["ro" if mount.get("readOnly") else "rw"]
        if path := mount.get("subPath"):
            how.append(f'path="{path}"')
        yield f"  {mount['mountPath']} from {mount['name']} ({','.join(how)})"


def _devices(devices: Sequence[Fields]) -> Iterator[str]:
    if devices:
        yield "Devices:"
    for device in sorted(devices, key=lambda each: str(each["devicePath"])):
        yield f"  {device['devicePath']} from {device['name']}"


def _yes(value: object) -> str:
    return "true" if value else "false"
