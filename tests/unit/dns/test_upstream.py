import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest

from kedge.dns import upstream as module
from kedge.dns.answer_cache import AnswerCache
from kedge.dns.message import NXDOMAIN, REFUSED, SERVFAIL, TRUNCATED, A, DnsAnswer
from kedge.dns.response import UpstreamQuestion
from kedge.dns.upstream import TRY_SECONDS, Upstream
from kedge.dns.upstream_servers import SocketAddress, UpstreamServers
from kedge.dns.upstream_sockets import QueryOutcome
from kedge.testing.clock import FakeClock

QUESTION = UpstreamQuestion(b"\7example\3com\0", A)
ONE, TWO = (("192.0.2.1", 53), ("192.0.2.2", 53))


@dataclass
class SentQuery:
    """A query that was sent, and the way back."""

    kind: str
    server: SocketAddress
    query: dns.message.Message
    outcome: QueryOutcome
    is_closed: bool = False

    def close(self) -> None:
        self.is_closed = True

    def answer(self, address: str = "", rcode: int = 0, flags: int = 0, edns: bool = True) -> None:
        made = dns.message.make_response(self.query)
        made.set_rcode(dns.rcode.Rcode(rcode))
        made.flags |= flags
        if not edns:
            made.use_edns(False)
        if address:
            name = made.question[0].name
            made.answer.append(dns.rrset.from_text(name, 60, "IN", "A", address))
        self.outcome.received(self, made.to_wire())


@dataclass
class Network:
    """Takes the place of sockets."""

    clock: FakeClock
    servers: list[str] = field(default_factory=lambda: ["192.0.2.1", "192.0.2.2"])
    sent: list[SentQuery] = field(default_factory=list)
    unreachable: set[SocketAddress] = field(default_factory=set)

    def carrier(self, kind: str) -> Callable[[SocketAddress, bytes, QueryOutcome], SentQuery]:
        def send(server: SocketAddress, message: bytes, outcome: QueryOutcome) -> SentQuery:
            if server in self.unreachable:
                raise OSError("unreachable")
            self.sent.append(SentQuery(kind, server, dns.message.from_wire(message), outcome))
            return self.sent[-1]

        return send

    def upstream(self) -> Upstream:
        servers = UpstreamServers(lambda: self.servers, [], self.clock)
        return Upstream(
            servers,
            AnswerCache(self.clock),
            self.clock,
            datagram=self.carrier("udp"),
            stream=self.carrier("tcp"),
        )


@pytest.fixture
def network() -> Network:
    return Network(FakeClock())


@pytest.fixture
async def upstream(network: Network) -> AsyncIterator[Upstream]:
    made = network.upstream()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.run())
        yield made
        running.cancel()


@dataclass
class Client:
    """Asks, and keeps the answers."""

    upstream: Upstream
    answers: list[DnsAnswer] = field(default_factory=list)

    def ask(self, question: UpstreamQuestion = QUESTION, source: str = "10.244.0.5") -> None:
        self.upstream.ask(question, source, self.answers.append)

    @property
    def addresses(self) -> list[bytes]:
        return [record.data for record in self.answers[-1].records]


@pytest.fixture
def client(upstream: Upstream) -> Client:
    return Client(upstream)


async def test_an_answer_is_passed_on_and_kept(network: Network, client: Client) -> None:
    client.ask()
    [sent] = network.sent
    assert (sent.kind, sent.server) == ("udp", ONE)
    sent.answer("198.51.100.7")
    assert client.addresses == [bytes([198, 51, 100, 7])]
    assert sent.is_closed
    client.ask()
    assert (len(network.sent), len(client.answers)) == (1, 2)


async def test_clients_with_the_same_question_share_a_query(
    network: Network, client: Client
) -> None:
    for _ in range(module.MOST_WAITING + 1):
        client.ask()
    assert [each.rcode for each in client.answers] == [REFUSED]
    [sent] = network.sent
    sent.answer("198.51.100.7")
    assert len(client.answers) == module.MOST_WAITING + 1


async def test_the_next_server_is_asked_and_a_late_answer_counts(
    network: Network, client: Client
) -> None:
    client.ask()
    await network.clock.advance(TRY_SECONDS + 0.3)
    assert [each.server for each in network.sent] == [ONE, TWO]
    assert not network.sent[0].is_closed
    network.sent[0].answer("198.51.100.7")
    assert client.addresses == [bytes([198, 51, 100, 7])]
    assert all(each.is_closed for each in network.sent)


async def test_without_an_answer_the_query_fails_before_the_clients_give_up(
    network: Network, client: Client
) -> None:
    client.ask()
    await network.clock.advance(4.9)
    assert [each.rcode for each in client.answers] == [SERVFAIL]
    assert [each.server for each in network.sent] == [ONE, TWO, ONE]


async def test_a_refusal_leads_to_the_next_server_at_once(network: Network, client: Client) -> None:
    client.ask()
    network.sent[0].outcome.refused(network.sent[0])
    network.sent[1].answer(rcode=SERVFAIL)
    assert [each.server for each in network.sent] == [ONE, TWO, ONE]
    network.sent[2].answer("198.51.100.7")
    assert client.addresses == [bytes([198, 51, 100, 7])]


async def test_an_error_of_every_server_is_passed_on(network: Network, client: Client) -> None:
    client.ask()
    for number in range(3):
        network.sent[number].answer(rcode=REFUSED)
    assert [each.rcode for each in client.answers] == [REFUSED]


async def test_a_name_that_does_not_exist_is_final(network: Network, client: Client) -> None:
    client.ask()
    network.sent[0].answer(rcode=NXDOMAIN)
    assert [each.rcode for each in client.answers] == [NXDOMAIN]


async def test_no_resolver_or_none_that_can_be_reached(network: Network, client: Client) -> None:
    network.unreachable = {ONE, TWO}
    client.ask()
    assert [each.rcode for each in client.answers] == [SERVFAIL]
    network.servers = []
    await network.clock.advance(6)
    client.ask()
    assert [each.rcode for each in client.answers] == [SERVFAIL] * 2


async def test_while_all_servers_are_down_one_question_tries_them(
    network: Network, client: Client
) -> None:
    network.servers = ["192.0.2.1"]
    names = [UpstreamQuestion(bytes([1, 97 + each, 0]), A) for each in range(4)]
    client.ask(names[0])
    await network.clock.advance(4.9)
    client.ask(names[1])
    await network.clock.advance(4.9)
    sent = len(network.sent)
    client.ask(names[2])
    client.ask(names[3])
    assert len(network.sent) == sent + 1
    assert [each.rcode for each in client.answers] == [SERVFAIL] * 3


async def test_forged_messages_are_ignored_and_counted(network: Network, client: Client) -> None:
    client.ask()
    sent = network.sent[0]
    forged = dns.message.make_response(sent.query)
    forged.id ^= 1
    for _ in range(module.MOST_FORGED):
        sent.outcome.received(sent, forged.to_wire())
    assert not client.answers
    sent.outcome.received(sent, b"")
    assert [each.rcode for each in client.answers] == [SERVFAIL]


async def test_a_truncated_answer_is_asked_for_over_tcp(network: Network, client: Client) -> None:
    client.ask()
    network.sent[0].answer("198.51.100.7", flags=dns.flags.TC)
    assert (network.sent[1].kind, network.sent[1].server) == ("tcp", ONE)
    network.sent[1].answer("198.51.100.8")
    assert client.addresses == [bytes([198, 51, 100, 8])]
    assert not client.answers[0].flags & TRUNCATED


@pytest.mark.parametrize("failure", ["refused", "slow", "unreachable"])
async def test_without_tcp_the_truncated_answer_has_to_do(
    network: Network, client: Client, failure: str
) -> None:
    client.ask()
    if failure == "unreachable":
        network.unreachable = {ONE}
    network.sent[0].answer("198.51.100.7", flags=dns.flags.TC)
    if failure == "refused":
        network.sent[1].outcome.refused(network.sent[1])
    await network.clock.advance(2)
    assert client.answers[0].flags & TRUNCATED
    assert client.addresses == [bytes([198, 51, 100, 7])]
    network.unreachable = set()
    client.ask()
    assert network.sent[-1].kind == "udp", "a truncated answer was kept"


async def test_a_server_that_does_not_know_edns(network: Network, client: Client) -> None:
    client.ask()
    network.sent[0].answer(rcode=1, edns=False)
    assert network.sent[1].server == ONE
    assert network.sent[1].query.edns == -1
    network.sent[1].answer("198.51.100.7", edns=False)
    assert client.addresses == [bytes([198, 51, 100, 7])]


def numbered(number: int) -> UpstreamQuestion:
    return UpstreamQuestion(b"\5" + f"{number:05}".encode() + b"\0", A)


async def test_a_client_may_have_so_many_questions(network: Network, client: Client) -> None:
    for number in range(module.MOST_PER_SOURCE + 5):
        client.ask(numbered(number))
    assert [each.rcode for each in client.answers] == [REFUSED] * 5
    for each in network.sent[:]:
        each.answer("198.51.100.7")
    client.ask(numbered(5000))
    assert len(network.sent) == module.MOST_PER_SOURCE + 1


async def test_a_few_clients_cannot_use_up_the_questions_of_all(
    network: Network, client: Client
) -> None:
    for number in range(module.MOST_QUERIES):
        client.ask(numbered(number), f"10.244.1.{number // module.MOST_PER_SOURCE}")
    assert len(network.sent) == module.MOST_QUERIES
    assert not client.answers
    for number in range(20):
        client.ask(numbered(1000 + number), "10.244.2.1")
    assert len(network.sent) == module.MOST_QUERIES + 20
    # The questions of those who have most are given up instead.
    assert [each.rcode for each in client.answers] == [REFUSED] * 20
    for number in range(module.MOST_PER_SOURCE):
        client.ask(numbered(2000 + number), "10.244.1.0")
    assert len(network.sent) < module.MOST_QUERIES + 30


async def test_when_all_clients_have_as_many_questions_the_next_is_refused(
    network: Network, client: Client
) -> None:
    for number in range(module.MOST_QUERIES):
        client.ask(numbered(number), f"10.244.{number // 200}.{number % 200}")
    client.ask(numbered(1000), "10.244.9.9")
    assert len(network.sent) == module.MOST_QUERIES
    assert [each.rcode for each in client.answers] == [REFUSED]


async def test_the_end_of_the_agent_is_the_end_of_all_queries(network: Network) -> None:
    made = network.upstream()
    client = Client(made)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.run())
        await network.clock.advance(0)
        client.ask()
        running.cancel()
    assert network.sent[0].is_closed
    assert [each.rcode for each in client.answers] == [SERVFAIL]
    network.sent[0].answer("198.51.100.7")
    network.sent[0].outcome.refused(network.sent[0])
    assert len(client.answers) == 1
