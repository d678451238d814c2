import pytest

from kedge.api.apps_v1 import rolling


@pytest.mark.parametrize(
    ("value", "errors"),
    [
        (1, []),
        ("25%", []),
        (-1, ["p: Invalid value: -1: must be greater than or equal to 0"]),
        (
            "25",
            [
                'p: Invalid value: "25": a valid percent string must be a numeric string followed '
                "by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
            ],
        ),
        ("101%", ['p: Invalid value: "101%": must not be greater than 100%']),
    ],
)
def test_an_amount_is_a_number_or_a_share(value: int | str, errors: list[str]) -> None:
    found = (*rolling.validate_amount(value, "p"), *rolling.validate_share(value, "p"))
    assert [str(error) for error in found] == errors


def test_nothing_can_be_said_in_several_ways() -> None:
    assert [each for each in (0, "0%", "0", None, "x") if not rolling.is_zero(each)] == []
    assert [each for each in (1, "1%", "10") if rolling.is_zero(each)] == []


@pytest.mark.parametrize(
    ("value", "whole", "up", "down"),
    [(None, 7, 0, 0), (3, 7, 3, 3), ("0%", 7, 0, 0), ("25%", 7, 2, 1), ("100%", 7, 7, 7)],
)
def test_a_share_is_rounded_the_way_that_is_asked_for(
    value: int | str | None, whole: int, up: int, down: int
) -> None:
    assert rolling.count(value, whole, up=True) == up
    assert rolling.count(value, whole, up=False) == down


def test_a_percentage_beyond_32_bits_counts_as_the_largest_number() -> None:
    for value in ("9" * 10 + "%", "9" * 5000 + "%"):
        assert rolling.count(value, 100, up=True) == 2**31 - 1
        assert not rolling.is_zero(value)
        assert len([*rolling.validate_share(value, "p")]) == 1
    assert rolling.count("0" * 5000 + "50%", 3, up=True) == 2
    assert rolling.count("100%", 2**31 - 1, up=True) == 2**31 - 1
