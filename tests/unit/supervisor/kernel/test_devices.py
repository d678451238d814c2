import struct

import pytest

from kedge.supervisor.kernel import devices
from kedge.supervisor.spec import DeviceNode

READ, WRITE, MAKE = 2, 4, 1
BLOCK, CHARACTER = 1, 2


def allows(code: bytes, kind: int, access: int, major: int, minor: int) -> bool:
    """Run the program as the kernel would; only what it is made of is known here."""
    context = (access << 16 | kind, major, minor)
    registers = [0] * 11
    place = 0
    while True:
        operation, both, offset, immediate = struct.unpack_from("<BBhi", code, 8 * place)
        target, source = both & 15, both >> 4
        place += 1
        if operation == 0x61:
            registers[target] = context[offset // 4]
        elif operation == 0xBC:
            registers[target] = registers[source]
        elif operation == 0xB4:
            registers[target] = immediate
        elif operation == 0x54:
            registers[target] &= immediate
        elif operation == 0x74:
            registers[target] >>= immediate
        elif operation == 0x56:
            place += offset if registers[target] != immediate else 0
        else:
            assert operation == 0x95
            return bool(registers[0])


@pytest.mark.parametrize(
    ("kind", "access", "numbers", "expected"),
    [
        (CHARACTER, READ | WRITE, (1, 3), True),
        (CHARACTER, READ, (136, 77), True),
        (BLOCK, MAKE, (8, 0), True),
        (BLOCK, READ, (8, 0), False),
        (BLOCK, READ, (1, 3), False),
        (CHARACTER, READ, (10, 229), True),
        (CHARACTER, READ | WRITE, (10, 229), False),
        (CHARACTER, READ, (10, 228), False),
    ],
)
def test_a_device_may_be_used_as_one_of_the_rules_says(
    kind: int, access: int, numbers: tuple[int, int], expected: bool
) -> None:
    code = devices.program([*devices.ALWAYS, "c 10:229 r"])
    assert allows(code, kind, access, *numbers) is expected


def test_a_rule_names_the_numbers_of_the_machine_s_device() -> None:
    node = DeviceNode(source="/dev/null", target="/dev/mine", permissions="rw")
    assert devices.rule(node) == "c 1:3 rw"
