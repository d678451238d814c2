"""Amounts of details as people read them."""

import pytest

from kedge.cli.usage.detail_columns import amount, cells
from kedge.machinery.quantity import Quantity


@pytest.mark.parametrize(
    ("detail", "used", "shown"),
    [
        ("ephemeral-storage", "0", "0 B"),
        ("ephemeral-storage", "999", "999 B"),
        ("ephemeral-storage", "999600", "1.0 MB"),
        ("ephemeral-storage", "12345678", "12 MB"),
        ("ephemeral-inodes", "12", "12"),
        ("disk-read", "1234", "1.2 kB/s"),
        ("disk-reads", "1234m", "1.2/s"),
        ("oom-kills", "3m", "<0.1/s"),
        ("oom-kills", "0", "0.0/s"),
        ("cpu-throttled", "505m", "50%"),
        ("cpu-throttled", "4m", "<1%"),
        ("cpu-throttled", "0", "0%"),
        ("network-receive", "5E", "5000 PB/s"),
    ],
)
def test_an_amount_has_its_unit(detail: str, used: str, shown: str) -> None:
    assert amount(detail, Quantity.parse(used)) == shown


def test_a_detail_that_is_not_known_is_a_dash() -> None:
    assert cells({}) == ["-"] * 6
