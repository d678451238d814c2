"""Subresources of running pods, through the agent of the node: log, exec, attach, portforward."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from kedge.api.core_v1 import node
from kedge.api.core_v1.node_types import is_simulated
from kedge.api.model import Document, ObjectMeta
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.api import Api, gone
from kedge.apiserver.authorization.attributes import Attributes
from kedge.apiserver.request import Request, integer
from kedge.machinery.durations import parse_time
from kedge.machinery.errors import (
    FieldError,
    StatusError,
    bad_request,
    internal,
    invalid,
    not_found,
)
from kedge.web import relay, websocket
from kedge.web.exchange import Exchange, OutgoingRequest, ServerAddress
from kedge.web.message import TEXT, HttpRequest, Query, Response, asks_upgrade

Pod = Mapping[str, Any]
Parameters = list[tuple[str, str]]

_LOG_STREAMS: Final = ("All", "Stderr", "Stdout")
_AGENT_SECONDS: Final = 30.0
"""How long an agent may take to begin its response."""
_MOST_SAID: Final = 50_000
"""Bytes that are read of a node's error message."""
_CHANNELS: Final = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
"""The names of the clients' parameters in the protocol of agents."""
_CREDENTIAL_PREFIXES: Final = ("authorization", "impersonate-", "x-remote-")
"""Headers for this server alone: they prove who the client is, or as whom it acts."""


# exec, attach, port-forward.


async def execute(api: Api, request: Request) -> Response:
    return await _enter(api, request, "exec", "PodExecOptions")


async def attach(api: Api, request: Request) -> Response:
    return await _enter(api, request, "attach", "PodAttachOptions")


async def _enter(api: Api, request: Request, what: str, kind: str) -> Response:
    """Connect a client with a command in a container, or with the container's own streams."""
    _require_create(api, request)
    query = request.query
    flags = {name: True for name in _CHANNELS if query.flag(name)}
    command = query.all("command")
    options = {"container": query.get("container"), "command": command, **flags}
    await admit(api, request, kind, options)
    pod = _pod(api, request)
    container = container_of(pod, query.get("container"))
    address = _agent_of(api, request, pod)
    parameters = [(_CHANNELS[name], "1") for name in flags]
    if what == "exec":
        parameters += [("command", word) for word in command]
    return await _upgrade(request, address, _target(what, request, container, parameters))


async def forward(api: Api, request: Request) -> Response:
    """Connect a client with ports of a pod."""
    _require_create(api, request)
    ports = ",".join(request.query.all("ports"))
    await admit(api, request, "PodPortForwardOptions", {"ports": _numbers(ports)})
    address = _agent_of(api, request, _pod(api, request))
    parameters = [("port", ports)] if ports else []
    return await _upgrade(request, address, _target("portForward", request, "", parameters))


def _numbers(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",") if each]
    except ValueError as error:
        raise bad_request(f"the ports are not numbers: {error}") from error


async def _upgrade(request: Request, address: ServerAddress, target: str) -> Response:
    if not asks_upgrade(request.http.headers):
        raise bad_request("Upgrade request required")
    headers = forwarded_headers(request.http)
    asking = OutgoingRequest(request.http.method, target, headers.items())
    return relay.joined(await relay.reach(address, asking, _AGENT_SECONDS))


def forwarded_headers(http: HttpRequest) -> dict[str, str]:
    """Return the headers for another server, without the client's credentials."""
    passed = relay.passed_headers(http.headers, upgrading=asks_upgrade(http.headers))
    return {
        name: value for name, value in passed.items() if not name.startswith(_CREDENTIAL_PREFIXES)
    }


def _require_create(api: Api, request: Request) -> None:
    """Require the right to create: entering a pod is more than reading, even with GET."""
    if request.verb != "create":
        api.authorizer.require(entering(request))


def entering(request: Request) -> Attributes:
    """Return the attributes of creating the subresource."""
    resource = request.resource
    return Attributes(
        user=request.user,
        verb="create",
        group=resource.group,
        version=resource.version,
        plural=resource.plural,
        subresource=request.subresource,
        namespace=request.namespace,
        name=request.name,
    )


async def admit(api: Api, request: Request, kind: str, options: Mapping[str, Any]) -> None:
    """Ask admission whether the client may be connected."""
    given = {name: value for name, value in options.items() if value}
    document = Document(apiVersion="v1", kind=kind, metadata=ObjectMeta(), content=given)
    attempt = Attempt(request, "CONNECT", document)
    await api.admission.mutate(attempt)
    await api.admission.validate(attempt)


# Logs.


async def log(api: Api, request: Request) -> Response:
    """Return the log of a container; that of a pod without a node is empty."""
    parameters = log_parameters(request.query, request.name)
    pod = _pod(api, request)
    container = container_of(pod, request.query.get("container"))
    if not _node_name(pod):
        return Response(204, b"", TEXT)
    if _is_simulated(api, _node_name(pod)):
        # Most servers never load it.
        from kedge.apiserver.subresources import simulated_pods

        return Response(200, simulated_pods.simulated_log(pod, container, request.query), TEXT)
    address = _agent_of(api, request, pod)
    target = _target("containerLogs", request, container, parameters)
    exchange = await relay.reach(address, OutgoingRequest("GET", target), _AGENT_SECONDS)
    if not 200 <= exchange.status <= 206:
        raise await _refusal(exchange, request.name)
    if websocket.is_wanted(request.http.headers):
        return relay.in_messages(request.http, exchange)
    response = relay.streamed_response(exchange)
    response.content_type, response.headers = "text/plain", []
    return response


def log_parameters(query: Query, name: str) -> Parameters:
    """Return the parameters for the agent; raises 400 and 422."""
    numbers = {
        key: number
        for key in ("tailLines", "limitBytes", "sinceSeconds")
        if (number := integer(query, key)) is not None
    }
    since, stream = query.get("sinceTime"), query.get("stream") or "All"
    if errors := list(_log_errors(numbers, since, stream)):
        raise invalid("", "PodLogOptions", name, errors)
    flags = [(key, "true") for key in ("follow", "previous", "timestamps") if query.flag(key)]
    return [
        *flags,
        *((key, str(number)) for key, number in numbers.items()),
        *([("sinceTime", since)] if since else []),
        ("stream", stream),
    ]


def _log_errors(numbers: Mapping[str, int], since: str, stream: str) -> Iterator[FieldError]:
    if numbers.get("tailLines", 0) < 0:
        why = "must be greater than or equal to 0"
        yield FieldError.invalid("tailLines", numbers["tailLines"], why)
    if numbers.get("limitBytes", 1) < 1:
        yield FieldError.invalid("limitBytes", numbers["limitBytes"], "must be greater than 0")
    if since and "sinceSeconds" in numbers:
        why = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        yield FieldError.forbidden("", why)
    elif numbers.get("sinceSeconds", 1) < 1:
        yield FieldError.invalid("sinceSeconds", numbers["sinceSeconds"], "must be greater than 0")
    if since:
        try:
            parse_time(since)
        except ValueError as error:
            raise bad_request(str(error)) from None
    if stream not in _LOG_STREAMS:
        yield FieldError.not_supported("stream", stream, _LOG_STREAMS)
    elif stream != "All" and "tailLines" in numbers:
        why = "`tailLines` and specific `stream` are mutually exclusive for now"
        yield FieldError.forbidden("", why)


async def _refusal(exchange: Exchange, name: str) -> StatusError:
    """Return the error for a client when the node returns no log."""
    said = (await exchange.whole(_MOST_SAID)).decode(errors="replace")
    match exchange.status:
        case 500:
            return internal(said)
        case 400:
            return bad_request(said)
        case 404:
            message = "the server could not find the requested resource"
            details = {"kind": "pods/log", "name": name}
            return StatusError(404, "NotFound", f"{message} ( pods/log {name})", details=details)
        case 503:
            return StatusError(503, "ServiceUnavailable", said)
        case code:
            return internal(f"the node answered with status {code}: {said}")


# Pods, and where they are.


def _pod(api: Api, request: Request) -> Pod:
    item = api.find(request)
    if item is None:
        raise gone(request)
    return item.document()


def _node_name(pod: Pod) -> str:
    return str(pod.get("spec", {}).get("nodeName", ""))


def container_of(pod: Pod, asked: str) -> str:
    """Return the name of the container; 400 if it is missing or wrong."""
    spec, name = pod.get("spec", {}), pod["metadata"]["name"]
    every = [
        each["name"]
        for kind in ("initContainers", "containers", "ephemeralContainers")
        for each in spec.get(kind) or ()
    ]
    if asked:
        if asked not in every:
            raise bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    usual = spec.get("containers") or []
    if len(usual) == 1:
        return str(usual[0]["name"])
    raise bad_request(
        f"a container name must be specified for pod {name}, choose one of: [{' '.join(every)}]"
    )


def _agent_of(api: Api, request: Request, pod: Pod) -> ServerAddress:
    """Return the address of the agent that runs a pod."""
    name = _node_name(pod)
    if not name:
        raise bad_request(f"pod {request.name} does not have a host assigned")
    return agent(api, name)


def _is_simulated(api: Api, name: str) -> bool:
    """Return whether a node is simulated; a node that does not exist is not."""
    item = api.cache.of(node.RESOURCE).get(node.RESOURCE.key("", name))
    return item is not None and is_simulated(item.labels)


def agent(api: Api, name: str) -> ServerAddress:
    """Return the address of a node's agent; raises 404 and 500."""
    item = api.cache.of(node.RESOURCE).get(node.RESOURCE.key("", name))
    if item is None:
        raise not_found("", "nodes", name)
    if is_simulated(item.labels):
        why = "no container of its pods runs, and it has no kubelet"
        raise bad_request(f"node {name} is simulated: {why}")
    if api.agents is None:
        raise internal(f"node {name} cannot be reached: this server calls no nodes")
    return api.agents.address(item.document())


def _target(
    what: str, request: Request, container: str, parameters: Iterable[tuple[str, str]]
) -> str:
    words = (what, request.namespace, request.name, *([container] if container else ()))
    path = "".join(f"/{quote(word, safe='')}" for word in words)
    query = urlencode(list(parameters))
    return f"{path}?{query}" if query else path
