"""What commands print."""

import json

import yaml

from kedge.cli.cluster.cluster_status import ClusterStatus
from kedge.cli.output import printers

STATUS = ClusterStatus(
    name="blue", status="Stopped", state="/s", context="kedge-blue", store_bytes=5
)


def test_a_table_has_columns_as_wide_as_their_cells() -> None:
    assert printers.table([("NAME", "STATUS"), ("production", "Ready"), ("b", "")]) == (
        "NAME         STATUS\nproduction   Ready\nb"
    )


def test_facts_are_aligned() -> None:
    assert printers.facts([("Name", "blue"), ("Status", "Ready")]) == (
        "Name:    blue\nStatus:  Ready"
    )


def test_json_and_yaml_say_the_same() -> None:
    as_json = json.loads(printers.document(STATUS, "json"))
    assert yaml.safe_load(printers.document(STATUS, "yaml")) == as_json
    assert as_json["storeBytes"] == 5


def test_sizes_are_readable() -> None:
    assert [printers.size(n) for n in (0, 1023, 1536, 5 * 2**20, 3 * 2**30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 MiB",
        "3.0 GiB",
    ]
