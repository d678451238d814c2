"""Rules about variables that name objects."""

import argparse

import pytest

from kedge.settings.device_access import DeviceAccessRule, parse_device_access, used_objects

TEXT = "FPGA_BITSTREAM_ID_*=bitstreams.fpga.intel.com"
RULE = DeviceAccessRule("FPGA_BITSTREAM_ID_*", "bitstreams", "fpga.intel.com")


def test_a_rule_is_read_and_written() -> None:
    assert parse_device_access(TEXT) == RULE
    assert str(RULE) == TEXT


@pytest.mark.parametrize("text", ["", "A", "A=", "=b.c", "A=bitstreams", "A=.c"])
def test_other_texts_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="such as 'FPGA_BITSTREAM_ID"):
        parse_device_access(text)


def test_matching_variables_name_objects() -> None:
    variables = {"FPGA_BITSTREAM_ID_2": "b", "FPGA_BITSTREAM_ID_1": "a", "FPGA_REGION_1": "r"}
    found = [(each.variable, each.name) for each in used_objects([RULE], variables)]
    assert found == [("FPGA_BITSTREAM_ID_1", "a"), ("FPGA_BITSTREAM_ID_2", "b")]


def test_an_empty_value_names_nothing() -> None:
    assert list(used_objects([RULE], {"FPGA_BITSTREAM_ID_1": ""})) == []
