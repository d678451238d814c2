from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery.quantity import Format, Quantity, times

MOST_DIGITS = 1000
CANONICAL = """
0 0 0 0 | -0 0 0 0 | 0Ki 0 0 0 | . 0 0 0 | 1 1 1 1000 | 1000m 1 1 1000 | 1.5 1500m 2 1500
0.5 500m 1 500 | .5 500m 1 500 | 0.1 100m 1 100 | 0.001 1m 1 1 | 0.0005 500u 1 1
0.0001 100u 1 1 | 0.5m 500u 1 1 | 1.0001 1000100u 2 1001 | 1n 1n 1 1 | 0.1n 1n 1 1
3.001n 4n 1 1 | 1e3 1e3 1000 1000000 | 12e6 12e6 12000000 12000000000 | 1.2e3 1200 1200 1200000
1e14 100e12 100000000000000 100000000000000000 | 1e2 100 100 100000 | 0.5e0 500e-3 1 500
1.3E+6 1300e3 1300000 1300000000 | 1.1E-9 2e-9 1 1 | 1Ki 1Ki 1024 1024000
1024Ki 1Mi 1048576 1048576000 | 1025Ki 1025Ki 1049600 1049600000
1000Ki 1000Ki 1024000 1024000000 | 1024Mi 1Gi 1073741824 1073741824000
1.5Gi 1536Mi 1610612736 1610612736000 | 64Mi 64Mi 67108864 67108864000
123Mi 123Mi 128974848 128974848000 | 128974848 128974848 128974848 128974848000
1024 1024 1024 1024000 | 1000 1k 1000 1000000 | 1000000 1M 1000000 1000000000
10000T 10P 10000000000000000 10000000000000000000 | 1.1Mi 1153433600m 1153434 1153433600
0.05Gi 53687091200m 53687092 53687091200 | 100.035Ki 102435840m 102436 102435840
.001Ki 1024m 2 1024 | 0.000000000001Ki 2n 1 1 | 129e6 129e6 129000000 129000000000
9Ei 9223372036854775807 9223372036854775807 9223372036854775807000
8Ei 9223372036854775807 9223372036854775807 9223372036854775807000
-9Ei -9223372036854775807 -9223372036854775807 -9223372036854775807000
12E 12E 12000000000000000000 12000000000000000000000 | -1.5 -1500m -2 -1500
-1.1m -1100u -1 -2 | -500m -500m -1 -500 | 512Ki 512Ki 524288 524288000
5Pi 5Pi 5629499534213120 5629499534213120000 | 1E3 1E3 1000 1000000 | +5 +5 5 5000
100.035k 100.035k 100035 100035000 | 1.G 1.G 1000000000 1000000000000
"""
ROUNDED = {
    **dict.fromkeys(["0.0005", "0.0001", "0.5m", "1n", "0.1n", "3.001n", "0.000000000001Ki"], "1m"),
    "1.0001": "1001m",
    "1.1E-9": "1e-3",
    "-1.1m": "-2m",
}
"""Those of them that change when they are put into a list of resources."""
VECTORS = [row.split() for line in CANONICAL.strip().splitlines() for row in line.split(" | ")]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v[0])
def test_amounts_print_and_round_as_upstream_does(vector: list[str]) -> None:
    written, printed, value, milli = vector
    quantity = Quantity.parse(written)
    assert (str(quantity), quantity.value(), quantity.milli()) == (printed, int(value), int(milli))
    assert str(quantity.rounded_to_milli()) == ROUNDED.get(written, printed)


@pytest.mark.parametrize("text", ["+5", "1.", "010", "100.035k", "1E3", "1.G", "1e0", "+3Ki"])
def test_a_spelling_upstream_takes_for_canonical_comes_back_unchanged(text: str) -> None:
    assert str(Quantity.parse(text)) == text


@pytest.mark.parametrize("text", ["+8Ki", "08Ki", "+1000"])
def test_any_other_spelling_is_replaced(text: str) -> None:
    assert str(Quantity.parse(text)) in {"8Ki", "1k"}


@pytest.mark.parametrize(
    "text",
    ["", "1 ", " 1", "1KI", "1Mb", "1MB", "1_000", "1,5", "0x10", "1.2.3", "1e3m", "NaN", "1\n"],
)
def test_strange_characters_are_refused_with_the_expression(text: str) -> None:
    with pytest.raises(ValueError, match=r"quantities must match the regular expression '\^"):
        Quantity.parse(text)


@pytest.mark.parametrize(
    "text", ["1K", "1i", "1mi", "1e", "--1", "1k1", "2Mi5", "-3.01e-", "1e99999999999999999999"]
)
def test_unknown_suffixes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^unable to parse quantity's suffix$"):
        Quantity.parse(text)


@pytest.mark.parametrize("text", ["1e1000000000", "9" * 5000])
def test_amounts_nobody_could_print_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^unable to parse numeric part of quantity$"):
        Quantity.parse(text)


def test_as_many_digits_as_can_be_printed_are_read() -> None:
    whole = "1" * (MOST_DIGITS - 2)
    assert Quantity.parse(f"{whole}.11").value() == int(whole) + 1
    for text in ("1" * (MOST_DIGITS + 1), f"{'1' * MOST_DIGITS}.1"):
        with pytest.raises(ValueError, match=r"^unable to parse numeric part of quantity$"):
            Quantity.parse(text)


@pytest.mark.parametrize("value", [True, False])
def test_a_truth_value_is_no_amount(value: bool) -> None:
    with pytest.raises(ValueError, match=r"quantities must match the regular expression"):
        Quantity.of(value)


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [("3", "2", "1.500000"), ("1", "3", "0.333333"), ("1e400", "2", f"5{'0' * 399}.000000")],
)
def test_ratios_are_printed_with_six_decimals(one: str, other: str, text: str) -> None:
    assert times(Quantity.parse(one), Quantity.parse(other)) == text


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("1023", "1023"),
        ("0", "0"),
        ("-1023", "-1023"),
        ("1024", "1Ki"),
        ("-1024", "-1Ki"),
        ("1025", "1025"),
    ],
)
def test_binary_amounts_below_1024_have_no_suffix(written: str, printed: str) -> None:
    assert str(Quantity.from_value(int(written), Format.BINARY_SI)) == printed


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("+123456789012345678", "+123456789012345678"),
        ("+1234567890123456789", "1234567890123456789"),
        ("+1n", "+1n"),
        ("+1e-12", "1e-9"),
        ("+99999999999999", "+99999999999999"),
        ("+99999999999Ki", "+99999999999Ki"),
        ("+999999999999Ki", "999999999999Ki"),
        ("+99999999Mi", "+99999999Mi"),
        ("+999999999Mi", "999999999Mi"),
    ],
)
def test_a_long_spelling_is_replaced_where_upstream_does(written: str, printed: str) -> None:
    assert str(Quantity.parse(written)) == printed


def test_an_amount_too_small_to_represent_becomes_one_nano() -> None:
    assert str(Quantity.parse("1e-1000000000")) == "1e-9"


@pytest.mark.parametrize(
    ("left", "right", "total"),
    [
        ("1Gi", "512Mi", "1536Mi"),
        ("0", "1Gi", "1Gi"),
        ("1", "1Gi", "1073741825"),
        ("1Gi", "1", "1073741825"),
        ("1G", "1Gi", "2073741824"),
        ("1Mi", "1m", "1048576001m"),
        ("100m", "0.5", "600m"),
        ("1e3", "1k", "2e3"),
        ("+5", "0", "5"),
    ],
)
def test_sums_are_written_as_the_left_amount_was(left: str, right: str, total: str) -> None:
    assert str(Quantity.parse(left) + Quantity.parse(right)) == total


def test_subtracting_from_nothing_takes_the_format_of_the_other() -> None:
    assert str(Quantity.parse("0") - Quantity.parse("2Ki")) == "-2Ki"


def test_amounts_beyond_the_last_suffix_keep_their_size() -> None:
    assert str(Quantity.parse("1000E")) == "1000E"
    assert str(Quantity.from_value(2**70, Format.BINARY_SI)) == "1024Ei"


@pytest.mark.parametrize(
    ("given", "printed"),
    [(1, "1"), (1000, "1k"), (1.5, "1500m"), (1500.0, "1500"), (-2, "-2"), (" 64Mi\n", "64Mi")],
)
def test_json_numbers_and_padded_strings_are_amounts(given: str | float, printed: str) -> None:
    assert str(Quantity.of(given)) == printed


@pytest.mark.parametrize("given", [True, float("nan"), float("inf")])
def test_other_json_values_are_no_amounts(given: float) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        Quantity.of(given)


def test_equality_and_hash_ignore_how_an_amount_is_written() -> None:
    assert len({Quantity.parse(text) for text in ("1", "1000m", "1e0", "1.0")}) == 1
    assert Quantity.parse("1G") < Quantity.parse("1Gi") <= Quantity.parse("1024Mi")
    assert Quantity.parse("1n") > Quantity.parse("0") >= Quantity.parse("-0")
    assert Quantity.parse("1") != 1


UNITS = {suffix: Fraction(1000) ** (i - 3) for i, suffix in enumerate(["n", "u", "m", *" kMGTPE"])}
UNITS = {suffix.strip(): unit for suffix, unit in UNITS.items()}
UNITS |= {f"{suffix}i": Fraction(1024) ** (i + 1) for i, suffix in enumerate("KMGTPE")}
UNITS |= {
    f"{e}{power}": Fraction(10) ** int(power) for e in "eE" for power in ("3", "+2", "-6", "0")
}
NANO, MILLI, ONE = Fraction(1, 10**9), Fraction(1, 1000), Fraction(1)

signs = st.sampled_from(["", "", "-", "+"])
wholes = st.integers(0, 10**12).map(str) | st.sampled_from(["", "0", "00", "010", "8", "1024"])
fractions = st.sampled_from(["", "", ".", ".5", ".125", ".500", ".000", ".0000000001"])
suffixes = st.sampled_from(sorted(UNITS))
spellings = st.tuples(signs, wholes, fractions, suffixes).filter(lambda s: bool(s[1] + s[2]))
quantities = st.builds(Quantity, st.integers(-(10**30), 10**30), st.sampled_from(Format))

Spelling = tuple[str, str, str, str]


def exactly(spelling: Spelling) -> Fraction:
    """The number that is spelled, before any rounding, but no binary one beyond 63 bits."""
    sign, whole, fraction, suffix = spelling
    exact = Fraction(f"0{whole}{fraction.rstrip('.')}") * UNITS[suffix]
    if suffix.endswith("i"):
        exact = min(exact, Fraction(2**63 - 1))
    return -exact if sign == "-" else exact


def away_from_zero(exact: Fraction, unit: Fraction) -> Fraction:
    """The next multiple of the unit."""
    return (ceil if exact > 0 else floor)(exact / unit) * unit


def amount(quantity: Quantity) -> Fraction:
    return quantity.nanos * NANO


@given(spellings)
def test_amounts_are_exact_and_rounded_away_from_zero(spelling: Spelling) -> None:
    exact, quantity = exactly(spelling), Quantity.parse("".join(spelling))
    assert amount(quantity) == away_from_zero(exact, NANO)
    assert amount(quantity.rounded_to_milli()) == away_from_zero(amount(quantity), MILLI)
    assert quantity.milli() * MILLI == away_from_zero(amount(quantity), MILLI)
    assert quantity.value() == away_from_zero(amount(quantity), ONE)


@given(spellings)
def test_printing_loses_nothing(spelling: Spelling) -> None:
    quantity = Quantity.parse("".join(spelling))
    assert Quantity.parse(str(quantity)) == quantity


@given(spellings)
def test_a_spelling_is_kept_if_upstream_takes_it_for_canonical(spelling: Spelling) -> None:
    text, quantity = "".join(spelling), Quantity.parse("".join(spelling))
    canonical = str(Quantity(quantity.nanos, quantity.format))
    assert str(quantity) == (text if is_kept(spelling) else canonical)


def is_kept(spelling: Spelling) -> bool:
    """Whether upstream never looks at what it could print instead."""
    _, whole, fraction, suffix = spelling
    whole, fraction = whole.lstrip("0"), fraction.lstrip(".")
    if suffix.endswith("i"):
        # Fourteen digits are as many as it dares to multiply without looking.
        tens = 3 * ("KMGTPE".index(suffix[0]) + 1)
        return not fraction and int(whole or 0) % 8 != 0 and len(whole) + tens <= 14
    digits = (whole or "0") + fraction
    unit, power = UNITS[suffix], -len(fraction)
    while unit != 1:
        power, unit = (power + 1, unit / 10) if unit > 1 else (power - 1, unit * 10)
    plain = digits[0] != "0" and not digits.endswith("000")
    return plain and len(digits) <= 18 and power >= -9 and power % 3 == 0


@given(quantities)
def test_the_printed_form_is_a_fixed_point(quantity: Quantity) -> None:
    if quantity.format is not Format.BINARY_SI or abs(quantity.value()) < 2**63:
        assert str(Quantity.parse(str(quantity))) == str(quantity)


@given(spellings, spellings)
def test_order_and_sums_are_those_of_the_numbers(a: Spelling, b: Spelling) -> None:
    left, right = Quantity.parse("".join(a)), Quantity.parse("".join(b))
    assert (left < right) == (amount(left) < amount(right)) == (right > left)
    assert (left <= right) == (amount(left) <= amount(right)) == (right >= left)
    assert (left == right) == (amount(left) == amount(right))
    assert amount(left + right) == amount(left) + amount(right)
    assert left + right - right == left


@given(spellings, spellings)
def test_a_sum_is_printed_like_its_left_side_and_forgets_the_spelling(
    a: Spelling, b: Spelling
) -> None:
    left, right = Quantity.parse("".join(a)), Quantity.parse("".join(b))
    total = left + right
    assert total.format is (left if left else right).format
    assert str(total) == str(Quantity(total.nanos, total.format))
