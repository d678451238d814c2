import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery.quantity import Format, Quantity

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
5Pi 5Pi 5629499534213120 5629499534213120000
"""
VECTORS = [row.split() for line in CANONICAL.strip().splitlines() for row in line.split(" | ")]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v[0])
def test_amounts_print_and_round_as_upstream_does(vector: list[str]) -> None:
    written, printed, value, milli = vector
    quantity = Quantity.parse(written)
    assert (str(quantity), quantity.value(), quantity.milli()) == (printed, int(value), int(milli))


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


@pytest.mark.parametrize(
    ("text", "rounded"),
    [("0.5m", "1m"), ("1.0001", "1001m"), ("-1.1m", "-2m"), ("1.1E-9", "1e-3"), ("+5", "+5")],
)
def test_resource_lists_round_to_milli(text: str, rounded: str) -> None:
    assert str(Quantity.parse(text).rounded_to_milli()) == rounded


def test_equality_and_hash_ignore_how_an_amount_is_written() -> None:
    assert len({Quantity.parse(text) for text in ("1", "1000m", "1e0", "1.0")}) == 1
    assert Quantity.parse("1G") < Quantity.parse("1Gi") <= Quantity.parse("1024Mi")
    assert Quantity.parse("1n") > Quantity.parse("0") >= Quantity.parse("-0")
    assert Quantity.parse("1") != 1


SUFFIXES = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "e3", "E-6"]
texts = st.builds(
    lambda number, fraction, suffix: f"{number}{fraction}{suffix}",
    st.integers(-(10**12), 10**12),
    st.sampled_from(["", ".", ".5", ".125", ".0000000001"]),
    st.sampled_from(SUFFIXES),
)
quantities = st.builds(Quantity, st.integers(-(10**30), 10**30), st.sampled_from(Format))


@given(texts)
def test_printing_loses_nothing(text: str) -> None:
    quantity = Quantity.parse(text)
    assert Quantity.parse(str(quantity)) == quantity


@given(quantities)
def test_the_printed_form_is_a_fixed_point(quantity: Quantity) -> None:
    if quantity.format is not Format.BINARY_SI or abs(quantity.value()) < 2**63:
        assert str(Quantity.parse(str(quantity))) == str(quantity)


@given(quantities, quantities)
def test_subtraction_undoes_addition_and_order_agrees_with_it(a: Quantity, b: Quantity) -> None:
    assert a + b - b == a
    assert (a < b) == ((a - b).nanos < 0)


@given(quantities)
def test_rounding_never_gives_less_than_was_asked(quantity: Quantity) -> None:
    for rounded in (Quantity.from_value(quantity.value()), quantity.rounded_to_milli()):
        assert abs(rounded.nanos) >= abs(quantity.nanos)
    assert abs(quantity.value()) * 1000 >= abs(quantity.milli())
