"""The records of the cluster domain, as Kubernetes' DNS specification 1.1.0 and CoreDNS have them.

`ClusterZone.find` returns the answer to a question, or nothing for names of other domains.
"""

import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from kedge.dns import names
from kedge.dns.cluster_index import ClusterIndex, NamedPort, ServiceEntry
from kedge.dns.message import (
    AAAA,
    AUTHORITATIVE,
    CNAME,
    NOERROR,
    NS,
    NXDOMAIN,
    PTR,
    SERVFAIL,
    SOA,
    SRV,
    TXT,
    A,
    DnsAnswer,
    DnsRecord,
)
from kedge.dns.names import Labels

TTL: Final = 5
VERSION: Final = b"1.1.0"
VERSION_TTL: Final = 28800
MOST_ALIASES: Final = 8
"""Services of type ExternalName that may lead to each other, as in CoreDNS."""
MOST_RECORDS: Final = 4000
"""More records than a message can hold are not collected."""
_ADDRESS_SIZES: Final = {4: A, 16: AAAA}
_SRV: Final = struct.Struct("!3H")
_SOA: Final = struct.Struct("!5I")


class ZoneAnswer(NamedTuple):
    """An answer from the zone."""

    answer: DnsAnswer
    alias: bytes | None = None
    """A name of another domain at which the answer continues."""


class ClusterZone:
    """Answers questions from an index.

    `address` is the address of the DNS Service, `serial` that of the SOA record.
    """

    def __init__(
        self, index: ClusterIndex, domain: str, address: bytes, serial: int, *, synced: bool = True
    ) -> None:
        self.is_synced = synced
        """Whether the index is complete. Until then an unknown name may exist."""
        self._index = index
        self._domain = tuple(domain.encode().split(b"."))
        self._apex = names.from_labels(self._domain)
        self._service_suffix = names.from_labels((b"svc", *self._domain))
        self._server = names.from_labels((b"ns", b"dns", *self._domain))
        self._address = address
        self._serial = serial

    def find(self, labels: Labels, kind: int) -> ZoneAnswer | None:
        """Return the answer for a name in lower case; None if another server has to know it."""
        if labels[-len(self._domain) :] == self._domain:
            if not self.is_synced:
                return ZoneAnswer(DnsAnswer(SERVFAIL))
            return self._within(labels, labels[: -len(self._domain)], kind)
        if labels[-1:] == (b"arpa",):
            return self._reverse(labels, kind)
        return None

    def _within(self, labels: Labels, rest: Labels, kind: int) -> ZoneAnswer:
        match rest:
            case (*below, b"svc"):
                return self._service_name(labels, tuple(below), kind)
            case (*below, b"pod"):
                return ZoneAnswer(self._pod_name(labels, tuple(below), kind))
        return ZoneAnswer(self._fixed_name(labels, rest, kind))

    def _fixed_name(self, labels: Labels, rest: Labels, kind: int) -> DnsAnswer:
        owner = names.from_labels(labels)
        match rest:
            case ():
                return self._apex_records(kind)
            case (b"dns-version",):
                data = bytes((len(VERSION),)) + VERSION
                return self._given(owner, kind, [DnsRecord(owner, TXT, VERSION_TTL, data)])
            case (b"ns", b"dns"):
                return self._given(owner, kind, _addresses(owner, [self._address]))
            case (b"dns",):
                return self._nothing(NOERROR)
        return self._nothing(NXDOMAIN)

    def _apex_records(self, kind: int) -> DnsAnswer:
        if kind == SOA:
            return DnsAnswer(records=[self._soa()], flags=AUTHORITATIVE)
        if kind == NS:
            record = DnsRecord(self._apex, NS, TTL, self._server)
            more = _addresses(self._server, [self._address])
            return DnsAnswer(records=[record], additional=more, flags=AUTHORITATIVE)
        return self._nothing(NOERROR)

    # Services.

    def _service_name(self, labels: Labels, below: Labels, kind: int) -> ZoneAnswer:
        if not below:
            return ZoneAnswer(self._nothing(NOERROR))
        if len(below) == 1:
            return ZoneAnswer(self._namespace(below[0]))
        entry = self._index.service(below[-2:])
        if entry is None or entry.spec is None:
            return ZoneAnswer(self._nothing(NXDOMAIN))
        if entry.spec.target is not None:
            return self._aliased(labels, below[:-2], kind)
        return ZoneAnswer(self._remembered(entry, labels, below[:-2], kind))

    def _remembered(
        self, entry: ServiceEntry, labels: Labels, below: Labels, kind: int
    ) -> DnsAnswer:
        answer = entry.answers.get((below, kind))
        if answer is None:
            answer = self._of_service(entry, labels, below, kind)
            # Only answers with records: they are as many as the Service has names.
            if answer.records:
                entry.answers[below, kind] = answer
        if len(answer.records) > 1:
            return answer._replace(records=_rotated(answer.records))
        return answer

    def _of_service(
        self, entry: ServiceEntry, labels: Labels, below: Labels, kind: int
    ) -> DnsAnswer:
        owner = names.from_labels(labels)
        match below:
            case ():
                return self._whole_service(entry, owner, kind)
            case (port, protocol) if port[:1] == b"_" == protocol[:1]:
                return self._port(entry, owner, (port[1:], protocol[1:]), kind)
            case (protocol,) if protocol[:1] == b"_":
                # A name between others that exist has no records, but exists.
                known = any(each == protocol[1:] for _, each in entry.published.ports)
                return self._nothing(NOERROR if known else NXDOMAIN)
            case (name,):
                return self._endpoint(entry, owner, name, kind)
        return self._nothing(NXDOMAIN)

    def _whole_service(self, entry: ServiceEntry, owner: bytes, kind: int) -> DnsAnswer:
        spec = entry.spec
        assert spec is not None
        addresses: Sequence[bytes] = spec.addresses
        if spec.is_headless:
            addresses = tuple(islice(entry.published.addresses, MOST_RECORDS))
            if not addresses:
                return self._nothing(NXDOMAIN)
        if kind == SRV:
            return self._srv(entry, owner, None)
        return self._given(owner, kind, _addresses(owner, addresses))

    def _endpoint(self, entry: ServiceEntry, owner: bytes, name: bytes, kind: int) -> DnsAnswer:
        addresses = entry.published.by_name.get(name) if _is_headless(entry) else None
        if not addresses:
            return self._nothing(NXDOMAIN)
        found = _addresses(owner, islice(addresses, MOST_RECORDS))
        return self._given(owner, kind, found)

    def _port(
        self, entry: ServiceEntry, owner: bytes, port: tuple[bytes, bytes], kind: int
    ) -> DnsAnswer:
        # Ports without a name have no such name in DNS.
        if not port[0] or port not in entry.published.ports:
            return self._nothing(NXDOMAIN)
        return self._srv(entry, owner, port) if kind == SRV else self._nothing(NOERROR)

    def _srv(
        self, entry: ServiceEntry, owner: bytes, port: tuple[bytes, bytes] | None
    ) -> DnsAnswer:
        headless = _is_headless(entry)
        found = self._endpoint_targets if headless else self._own_targets
        chosen = list(islice(found(entry, port), MOST_RECORDS))
        weight = max(1, 100 // len(chosen)) if chosen else 0
        unique = dict.fromkeys((each.port, each.name) for each in chosen)
        records = [
            DnsRecord(owner, SRV, TTL, _SRV.pack(0, weight, number) + name)
            for number, name in unique
        ]
        hosts = dict.fromkeys((each.name, each.address) for each in chosen)
        more = [record for name, address in hosts for record in _addresses(name, [address])]
        if not records:
            return self._nothing(NOERROR)
        return DnsAnswer(records=records, additional=more, flags=AUTHORITATIVE)

    def _own_targets(
        self, entry: ServiceEntry, port: tuple[bytes, bytes] | None
    ) -> Iterator["_Target"]:
        """Yield the cluster IPs with the ports of the Service."""
        spec = entry.spec
        assert spec is not None
        name = self._name_of(entry)
        for each in _matching(spec.ports, port):
            for address in spec.addresses:
                yield _Target(name, address, each.number)

    def _endpoint_targets(
        self, entry: ServiceEntry, port: tuple[bytes, bytes] | None
    ) -> Iterator["_Target"]:
        """Yield the endpoints with their own ports, which may differ from those of the Service."""
        suffix = self._name_of(entry)
        for each in entry.slices.values():
            numbers = [found.number for found in _matching(each.ports, port) if found.number]
            for endpoint in each.endpoints if numbers else ():
                if entry.is_published(endpoint):
                    name = bytes((len(endpoint.name),)) + endpoint.name + suffix
                    yield from (_Target(name, endpoint.address, number) for number in numbers)

    def _name_of(self, entry: ServiceEntry) -> bytes:
        return names.from_labels(entry.path)[:-1] + self._service_suffix

    # ExternalName.

    def _aliased(self, labels: Labels, below: Labels, kind: int) -> ZoneAnswer:
        """Return the CNAME record of a Service and the records of the name that it leads to."""
        if below:
            return ZoneAnswer(self._nothing(NXDOMAIN))
        records: list[DnsRecord] = []
        for _ in range(MOST_ALIASES):
            target = self._target(labels)
            if target is None:
                break
            records.append(DnsRecord(names.from_labels(labels), CNAME, TTL, target))
            labels = names.to_labels(target)
            if kind == CNAME:
                break
        else:
            return ZoneAnswer(DnsAnswer(SERVFAIL))
        answer = DnsAnswer(records=records, flags=AUTHORITATIVE)
        if kind == CNAME:
            return ZoneAnswer(answer)
        found = self.find(labels, kind)
        if found is None:
            return ZoneAnswer(answer, names.from_labels(labels))
        return ZoneAnswer(
            found.answer._replace(records=[*records, *found.answer.records]), found.alias
        )

    def _target(self, labels: Labels) -> bytes | None:
        """Return the name to which a Service of type ExternalName leads; None for other names."""
        depth = len(self._domain)
        if len(labels) != depth + 3 or labels[-depth - 1 :] != (b"svc", *self._domain):
            return None
        entry = self._index.service(labels[:2])
        return entry.spec.target if entry is not None and entry.spec is not None else None

    # Pods and addresses.

    def _pod_name(self, labels: Labels, below: Labels, kind: int) -> DnsAnswer:
        """Answer for the address in the name, whether a pod has it or not, as CoreDNS does with
        `pods insecure`: nodes do not know the pods of other nodes."""
        if not below:
            return self._nothing(NOERROR)
        if len(below) == 1:
            return self._namespace(below[0])
        if len(below) > 2 or not self._index.has_namespace(below[1]):
            return self._nothing(NXDOMAIN)
        address = names.address_of_dashed(below[0])
        if address is None:
            return self._nothing(NXDOMAIN)
        owner = names.from_labels(labels)
        return self._given(owner, kind, _addresses(owner, [address]))

    def _reverse(self, labels: Labels, kind: int) -> ZoneAnswer | None:
        """Return the names of an address of the cluster; None for other addresses."""
        address = names.address_of_reverse(labels)
        if address is None:
            return None
        found = [self._name_of(entry)] if (entry := self._index.service_at(address)) else []
        for holder, endpoint in self._index.endpoints_at(address):
            label = bytes((len(endpoint.name),)) + endpoint.name
            found.append(label + self._name_of(holder))
        if not found:
            return None
        owner = names.from_labels(labels)
        unique = islice(dict.fromkeys(found), MOST_RECORDS)
        records = [DnsRecord(owner, PTR, TTL, name) for name in unique]
        return ZoneAnswer(self._given(owner, kind, records))

    def _namespace(self, name: bytes) -> DnsAnswer:
        return self._nothing(NOERROR if self._index.has_namespace(name) else NXDOMAIN)

    # Answers.

    def _given(self, owner: bytes, kind: int, records: Iterable[DnsRecord]) -> DnsAnswer:
        """Return the records of the type that was asked for."""
        found = [record for record in records if record.type == kind]
        if not found:
            return self._nothing(NOERROR)
        return DnsAnswer(records=found, flags=AUTHORITATIVE)

    def _nothing(self, rcode: int) -> DnsAnswer:
        """Return an answer without records: the name does not exist, or has none of this type."""
        return DnsAnswer(rcode, authority=[self._soa()], flags=AUTHORITATIVE)

    def _soa(self) -> DnsRecord:
        contact = names.from_labels((b"hostmaster", *self._domain))
        serial = (self._serial + self._index.changes) & 0xFFFFFFFF
        data = self._server + contact + _SOA.pack(serial, 7200, 1800, 86400, TTL)
        return DnsRecord(self._apex, SOA, TTL, data)


class _Target(NamedTuple):
    """A host and port of an SRV record."""

    name: bytes
    address: bytes
    port: int


def _matching(
    ports: Sequence[NamedPort], wanted: tuple[bytes, bytes] | None
) -> Iterator[NamedPort]:
    return (port for port in ports if wanted is None or port[:2] == wanted)


def _is_headless(entry: ServiceEntry) -> bool:
    return entry.spec is not None and entry.spec.is_headless


def _addresses(owner: bytes, addresses: Iterable[bytes]) -> list[DnsRecord]:
    return [DnsRecord(owner, _ADDRESS_SIZES[len(each)], TTL, each) for each in addresses]


def _rotated(records: Sequence[DnsRecord]) -> Sequence[DnsRecord]:
    """Return the records from a random one on, so that clients spread over all addresses."""
    first = random.randrange(len(records))
    return [*records[first:], *records[:first]]
