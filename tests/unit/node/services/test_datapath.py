"""The difference between the rules that the kernel has and those that it should have."""

from collections import Counter
from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from kedge.node.network.nftables.attributes import read_messages
from kedge.node.network.nftables.batch import Batch
from kedge.node.network.ruleset import ENDPOINTS, SERVICES
from kedge.node.services.datapath import ServiceDatapath
from kedge.node.services.service_ports import CarriedPort, EndpointChoice, EndpointTarget
from kedge.node.services.service_rules import ServiceRules, pinned_rules, service_rules

NAMES = {3: "chain", 5: "-chain", 6: "rule", 8: "-rules", 9: "set", 11: "-set", 12: "+", 14: "-"}


def rules(name: str, address: int, *endpoints: int, affinity: int = 0) -> ServiceRules:
    targets = tuple(EndpointTarget(IPv4Address(each), 80) for each in endpoints)
    port = CarriedPort(
        name="",
        protocol="TCP",
        cluster_addresses=(IPv4Address(address),),
        external_addresses=(),
        balancer_addresses=(),
        port=80,
        node_port=0,
        choice=EndpointChoice(targets, ()),
        is_internal_local=False,
        is_external_local=False,
        affinity_seconds=affinity,
    )
    return service_rules(name, [port])


def steps(made: Batch) -> list[str]:
    return [NAMES[kind & 0xFF] for kind, _, _ in read_messages(made.packed()) if kind > 0xFF]


def written(datapath: ServiceDatapath) -> list[str]:
    made = steps(datapath.change("t"))
    datapath.confirm()
    return made


def test_a_new_service_adds_a_chain_and_elements() -> None:
    datapath = ServiceDatapath()
    datapath.put("a", rules("a", 1, 11, 12))
    assert written(datapath) == ["chain", "rule", "+", "+"]
    assert written(datapath) == []


def test_a_changed_endpoint_changes_one_element() -> None:
    datapath = ServiceDatapath()
    datapath.put("a", rules("a", 1, 11, 12))
    datapath.put("b", rules("b", 2, 11, 12))
    datapath.confirm()
    datapath.put("a", rules("a", 1, 11, 13))
    made = datapath.change("t")
    assert steps(made) == ["-", "+"]
    assert len(made.packed()) < 300
    datapath.confirm()
    datapath.put("a", rules("a", 1, 11, 13))
    assert written(datapath) == []


def test_a_chain_goes_with_the_last_service_that_uses_it() -> None:
    datapath = ServiceDatapath()
    datapath.put("a", rules("a", 1, 11))
    datapath.put("b", rules("b", 2, 11))
    datapath.confirm()
    datapath.remove("a")
    assert written(datapath) == ["-", "-"]
    datapath.remove("b")
    assert written(datapath) == ["-", "-", "-rules", "-chain"]
    datapath.remove("never there")
    assert written(datapath) == []


def test_affinity_leaves_no_sets_behind() -> None:
    datapath = ServiceDatapath()
    datapath.put("a", rules("a", 1, 11, 12, affinity=30))
    assert Counter(written(datapath))["set"] == 2
    datapath.put("a", rules("a", 1, 11, 12))
    counted = Counter(written(datapath))
    assert (counted["-set"], counted["-chain"]) == (2, 3)


def test_a_service_that_comes_and_goes_between_writes_leaves_no_trace() -> None:
    datapath = ServiceDatapath()
    datapath.put("a", rules("a", 1, 11, affinity=30))
    datapath.remove("a")
    assert written(datapath) == []
    assert datapath.everything().elements == {}


def test_the_lowest_rank_and_then_the_first_name_gets_an_address() -> None:
    datapath = ServiceDatapath()
    datapath.put("b", rules("b", 1, 12, 13))
    datapath.put("a", rules("a", 1))
    target = EndpointTarget(IPv4Address(9), 9)
    assert SERVICES not in datapath.everything().elements, "a has no endpoints, and refuses"
    datapath.put("pinned", pinned_rules(IPv4Address(1), "TCP", 80, target))
    elements = datapath.everything().elements
    assert len(elements[ENDPOINTS]) == 1
    datapath.confirm()
    datapath.remove("pinned")
    datapath.remove("a")
    datapath.change("t")
    assert len(datapath.everything().elements[ENDPOINTS]) == 2
    assert datapath.names() == ["b"]


@st.composite
def _histories(draw: st.DrawFn) -> list[tuple[str, int, list[int], int, bool]]:
    change = st.tuples(
        st.sampled_from("abc"),
        st.integers(1, 3),
        st.lists(st.integers(10, 14), unique=True),
        st.sampled_from([0, 0, 30]),
        st.booleans(),
    )
    return draw(st.lists(change, max_size=12))


@given(_histories())
def test_changes_lead_to_the_same_as_everything_at_once(
    history: list[tuple[str, int, list[int], int, bool]],
) -> None:
    """Whatever was written in between, a later state is reached."""
    stepwise, at_once = ServiceDatapath(), ServiceDatapath()
    for name, address, endpoints, affinity, is_written in history:
        made = rules(name, address, *endpoints, affinity=affinity)
        stepwise.put(name, made)
        at_once.put(name, made)
        if is_written:
            stepwise.change("t")
            stepwise.confirm()
    stepwise.change("t")
    stepwise.confirm()
    assert stepwise.everything() == at_once.everything()
    assert steps(stepwise.change("t")) == []
    for name in "abc":
        stepwise.remove(name)
    stepwise.change("t")
    stepwise.confirm()
    assert stepwise.everything() == ServiceDatapath().everything()
