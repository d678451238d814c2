"""Metrics that adapters serve: the custom and the external metrics API."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec.structs import asdict

from kedge.api.autoscaling_v2.metrics import CrossVersionObjectReference, MetricIdentifier
from kedge.api.resource import tolerant
from kedge.client.client import Client
from kedge.client.discovery import Discovery
from kedge.controllers.autoscaling.proposal import UnknownUsage
from kedge.machinery.errors import StatusError
from kedge.machinery.quantity import Quantity
from kedge.machinery.selectors import labels_from_object

CUSTOM: Final = "custom.metrics.k8s.io"
EXTERNAL: Final = "external.metrics.k8s.io"
CUSTOM_VERSIONS: Final = (f"{CUSTOM}/v1beta2", f"{CUSTOM}/v1beta1")
MOST_BYTES: Final = 4 << 20
"""The largest answer of an adapter that is read: it is decoded on the event loop."""
MOST_MILLI: Final = (1 << 63) - 1


class _Described(msgspec.Struct, frozen=True):
    name: str = ""


class MetricValue(msgspec.Struct, frozen=True, rename="camel"):
    """One value, as any version of both APIs writes it."""

    value: str | int | float
    described_object: _Described = _Described()

    @property
    def milli(self) -> int:
        """The value in thousandths."""
        return min(Quantity.of(self.value).milli(), MOST_MILLI)


class _MetricValues(msgspec.Struct, frozen=True):
    items: list[MetricValue] = []


class _ApiVersion(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str = ""


class _ApiGroup(msgspec.Struct, frozen=True, rename="camel"):
    versions: list[_ApiVersion] = []
    preferred_version: _ApiVersion = _ApiVersion()


_values = tolerant(msgspec.json.Decoder(_MetricValues))
_group = tolerant(msgspec.json.Decoder(_ApiGroup))


class OutsideMetrics:
    """Reads metrics of pods, of other objects, and of systems outside of the cluster."""

    def __init__(self, client: Client, discovery: Discovery) -> None:
        self._client = client
        self._discovery = discovery

    async def of_pods(
        self, namespace: str, selector: str, metric: MetricIdentifier
    ) -> dict[str, int]:
        """Return the value of each pod, in thousandths."""
        query = {"labelSelector": selector, "metricLabelSelector": selector_text(metric)}
        found = await self._custom(["namespaces", namespace, "pods", "*", metric.name], query)
        if not found:
            raise UnknownUsage("no metrics returned from custom metrics API")
        return {each.described_object.name: each.milli for each in found}

    async def of_object(
        self, namespace: str, target: CrossVersionObjectReference, metric: MetricIdentifier
    ) -> int:
        """Return the value of one object, in thousandths."""
        group = target.apiVersion.rpartition("/")[0]
        if target.kind == "Namespace" and not group:
            # The name is ignored: an autoscaler reads metrics of its own namespace only.
            where = ["metrics", metric.name]
        else:
            where = [await self._resource(group, target.kind), target.name, metric.name]
        query = {"metricLabelSelector": selector_text(metric)}
        found = await self._custom(["namespaces", namespace, *where], query)
        if len(found) != 1:
            raise UnknownUsage(
                "unable to fetch metrics from custom metrics API: the custom metrics API server "
                f"returned {len(found)} results when we asked for exactly one"
            )
        return found[0].milli

    async def external(self, namespace: str, metric: MetricIdentifier) -> int:
        """Return the sum of all values of a metric, in thousandths."""
        query = {"labelSelector": selector_text(metric)}
        path = f"/apis/{EXTERNAL}/v1beta1/" + _joined(["namespaces", namespace, metric.name])
        subject = f"{metric.name}.{EXTERNAL}"
        found = await self._read("external", path, query, subject)
        if not found:
            raise UnknownUsage("no metrics returned from external metrics API")
        return min(sum(each.milli for each in found), MOST_MILLI)

    async def _resource(self, group: str, kind: str) -> str:
        """Return the resource of a kind, with its group."""
        served = self._discovery.known.of_group_kind(group, kind)
        if served is None:
            served = (await self._discovery.served()).of_group_kind(group, kind)
        if served is None:
            name = f"{kind}.{group}" if group else kind
            raise UnknownUsage(
                "unable to fetch metrics from custom metrics API: unable to map kind "
                f'{name} to resource: no matches for kind "{kind}" in group "{group}"'
            )
        return f"{served.plural}.{group}" if group else served.plural

    async def _custom(self, parts: Sequence[str], query: dict[str, str]) -> list[MetricValue]:
        path = f"/apis/{await self._version()}/{_joined(parts)}"
        _, _, resource, name, *_ = parts
        return await self._read("custom", path, query, f"{resource}.{CUSTOM} {name}")

    async def _version(self) -> str:
        """Return the version of the custom metrics API that its adapter prefers."""
        reply = await self._client.fetch(f"/apis/{CUSTOM}", {})
        if reply.status != 200:
            raise UnknownUsage(
                "unable to fetch metrics from custom metrics API: "
                f"no custom metrics API ({CUSTOM}) registered"
            )
        group = _group(reply.body)
        for version in (group.preferred_version, *group.versions):
            if version.group_version in CUSTOM_VERSIONS:
                return version.group_version
        raise UnknownUsage(
            "unable to fetch metrics from custom metrics API: "
            "no known available metric versions found"
        )

    async def _read(
        self, api: str, path: str, query: dict[str, str], subject: str
    ) -> list[MetricValue]:
        """Return the values of an answer; `subject` stands in the texts of errors."""
        try:
            return checked(await self._body(path, query))
        except StatusError as error:
            why = told(error, subject)
        except (ConnectionError, TimeoutError, ValueError) as error:
            why = str(error)
        raise UnknownUsage(f"unable to fetch metrics from {api} metrics API: {why}")

    async def _body(self, path: str, query: dict[str, str]) -> bytes:
        body = bytearray()
        async with self._client.stream(path, query) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > MOST_BYTES:
                    raise ValueError(f"the answer is longer than {MOST_BYTES} bytes")
        return bytes(body)


def checked(body: bytes) -> list[MetricValue]:
    """Decode values; ValueError if one of them is not a quantity."""
    found = _values(body).items
    for each in found:
        Quantity.of(each.value)
    return found


def selector_text(metric: MetricIdentifier) -> str:
    """The labels of a metric, as a query writes them."""
    if metric.selector is None:
        return ""
    conditions = [asdict(each) for each in metric.selector.matchExpressions]
    labels = metric.selector.matchLabels
    try:
        found = labels_from_object({"matchLabels": labels, "matchExpressions": conditions})
    except ValueError as error:
        raise UnknownUsage(str(error)) from error
    return str(found)


_TEXTS: Final = {
    404: "the server could not find the requested resource",
    500: "an error on the server ({body}) has prevented the request from succeeding",
    503: "the server is currently unable to handle the request",
    504: (
        "the server was unable to return a response in the time allotted, but may still be "
        "processing the request"
    ),
}


def told(error: StatusError, subject: str) -> str:
    """Return the text of an error as clients of Kubernetes tell it: a server that does not answer
    with a Status has its texts from the code."""
    if error.reason != "Unknown":
        return str(error)
    text = _TEXTS.get(error.code, "the server rejected our request for an unknown reason")
    body = msgspec.json.encode(str(error)).decode()
    return f"{text.format(body=body)} (get {subject})"


def _joined(parts: Sequence[str]) -> str:
    return "/".join(quote(part, safe="*") for part in parts)
