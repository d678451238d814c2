"""How long the kernel rules of Services take, in a network namespace of the benchmark's own.

From nothing: all rules of 1,000 Services with 10 endpoints each, computed and written in one batch;
below 1 s is the bar. One changed endpoint: computed and written, with 10 and with 1,000 Services;
the ratio is the bar, because the cost must not grow with the number of Services.

    bench/services.py [--services N] [--endpoints N] [--changes N]
"""

import argparse
import sys
from ipaddress import IPv4Address, IPv4Network
from statistics import median
from time import perf_counter

from kedge.api.core_v1.service_types import Service, ServicePort, ServiceSpec
from kedge.api.discovery_v1.endpoint_slice import Endpoint, EndpointPort, EndpointSlice
from kedge.api.model import ObjectMeta
from kedge.node.network.netlink import Netlink
from kedge.node.network.node_table import NodeTable
from kedge.node.network.ruleset import TableScope
from kedge.node.services.datapath import ServiceDatapath
from kedge.node.services.service_ports import NodePlace, carried_ports
from kedge.node.services.service_rules import service_rules
from kedge.testing.network import run_elsewhere

BAR_SECONDS = 1.0
BAR_RATIO = 3.0
FEW = 10
PLACE = NodePlace("node-1")
SCOPE = TableScope(
    link="kbr1",
    links="kbr",
    network=IPv4Network("10.244.0.0/24"),
    gateway=IPv4Address("10.244.0.1"),
    pods=IPv4Network("10.244.0.0/16"),
    services=(IPv4Network("10.96.0.0/16"),),
    owns_machine=False,
)


def service(number: int) -> Service:
    address = str(IPv4Address("10.96.1.0") + number)
    spec = ServiceSpec(clusterIP=address, ports=[ServicePort(port=80, protocol="TCP")])
    return Service(metadata=ObjectMeta(name=f"s{number}", namespace="default"), spec=spec)


def endpoints(number: int, count: int, changed: int = 0) -> EndpointSlice:
    first = IPv4Address("10.245.0.0") + number * count
    addresses = [str(first + each) for each in range(count)]
    addresses[0] = str(IPv4Address("10.250.0.0") + changed) if changed else addresses[0]
    return EndpointSlice(
        metadata=ObjectMeta(name=f"s{number}"),
        addressType="IPv4",
        ports=[EndpointPort(name="", port=8080, protocol="TCP")],
        endpoints=[Endpoint(addresses=[each], nodeName="node-1") for each in addresses],
    )


def put(datapath: ServiceDatapath, made: Service, slices: EndpointSlice) -> None:
    name = made.metadata.name
    datapath.put(name, service_rules(name, carried_ports(made, [slices], PLACE)))


async def measure(services: int, count: int, changes: int) -> tuple[float, float]:
    """Return the seconds for everything, and for one changed endpoint."""
    objects = [(service(number), endpoints(number, count)) for number in range(services)]
    table, datapath = NodeTable(SCOPE), ServiceDatapath()
    await table.open()
    begun = perf_counter()
    for made, slices in objects:
        put(datapath, made, slices)
    await table.rewrite(datapath.everything)
    datapath.confirm()
    everything = perf_counter() - begun
    one = [await change(table, datapath, count, number) for number in range(1, changes + 1)]
    table.remove()
    return everything, median(one)


async def change(table: NodeTable, datapath: ServiceDatapath, count: int, number: int) -> float:
    made, slices = service(0), endpoints(0, count, number)
    begun = perf_counter()
    put(datapath, made, slices)
    await table.apply(datapath.change)
    datapath.confirm()
    return perf_counter() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=1000)
    parser.add_argument("--endpoints", type=int, default=10)
    parser.add_argument("--changes", type=int, default=200)
    given = parser.parse_args()
    figures: dict[int, tuple[float, float]] = {}

    async def work() -> None:
        with Netlink() as netlink:
            netlink.add_bridge(SCOPE.link)
            netlink.raise_link(netlink.index(SCOPE.link))
        for services in (FEW, given.services):
            figures[services] = await measure(services, given.endpoints, given.changes)

    run_elsewhere(work)
    for services, (everything, one) in figures.items():
        print(
            f"{services:6,} services x {given.endpoints}: everything {everything * 1000:7.1f} ms,"
            f" one changed endpoint {one * 1000:.3f} ms"
        )
    ratio = figures[given.services][1] / figures[FEW][1]
    print(f"one changed endpoint costs {ratio:.2f} times as much with {given.services:,} services")
    return 0 if figures[given.services][0] < BAR_SECONDS and ratio < BAR_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
