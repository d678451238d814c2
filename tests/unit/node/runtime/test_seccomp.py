import json
import platform
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.node.runtime import seccomp
from kedge.node.runtime.capabilities import ALL, DEFAULT
from kedge.node.runtime.seccomp import SyscallArgument, SyscallProfile, SyscallRule, compile_profile

ALLOWED, KILLED = 0x7FFF_0000, 0x8000_0000
EPERM, ENOSYS = 0x5_0001, 0x5_0026
X86, ARM = 0xC000_003E, 0xC000_00B7
NUMBERS = json.loads(Path(seccomp.__file__).with_name("syscalls.json").read_text())


def verdict(program: bytes, number: int, *arguments: int, architecture: int = X86) -> int:
    """What the kernel would do with a call."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<IIQ6Q", number, architecture, 0, *padded)
    accumulator = place = 0
    while True:
        code, true, false, operand = struct.unpack_from("<HBBI", program, 8 * place)
        place += 1
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, operand)[0]
        elif code == 0x54:
            accumulator &= operand
        elif code == 0x05:
            place += operand
        elif code == 0x06:
            return int(operand)
        else:
            holds = {
                0x15: accumulator == operand,
                0x25: accumulator > operand,
                0x35: accumulator >= operand,
            }[code]
            place += true if holds else false


def call(program: bytes, name: str, *arguments: int, machine: str = "x86_64") -> int:
    architecture = X86 if machine == "x86_64" else ARM
    return verdict(program, NUMBERS[machine][name], *arguments, architecture=architecture)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_default_forbids_what_touches_the_machine(machine: str) -> None:
    program = seccomp.default(DEFAULT, machine)
    for name in ("mount", "unshare", "setns", "keyctl", "bpf", "kexec_load", "init_module"):
        assert call(program, name, machine=machine) == EPERM
    for name in ("reboot", "swapon", "clock_settime", "userfaultfd", "perf_event_open"):
        assert call(program, name, machine=machine) == EPERM
    for name in ("read", "execve", "chroot", "ptrace", "mknodat", "setuid", "prctl", "seccomp"):
        assert call(program, name, machine=machine) == ALLOWED


def test_capabilities_open_the_calls_that_need_them() -> None:
    program = seccomp.default(ALL, "x86_64")
    for name in ("mount", "unshare", "clone3", "bpf", "reboot", "clock_settime", "init_module"):
        assert call(program, name) == ALLOWED
    assert call(program, "keyctl") == EPERM
    assert call(seccomp.default(frozenset(), "x86_64"), "chroot") == EPERM


def test_new_processes_are_allowed_and_new_namespaces_are_not() -> None:
    program = seccomp.default(DEFAULT, "x86_64")
    assert call(program, "clone", 0x003D_0F00) == ALLOWED
    assert call(program, "clone", 0x1000_0000 | 17) == EPERM
    assert call(program, "clone3") == ENOSYS


def test_arguments_decide_where_the_name_does_not() -> None:
    program = seccomp.default(DEFAULT, "x86_64")
    assert call(program, "personality", 0xFFFF_FFFF) == ALLOWED
    assert call(program, "personality", 0x4_0000) == EPERM
    assert call(program, "socket", 2) == ALLOWED
    assert call(program, "socket", 40) == EPERM


def test_other_architectures_and_unknown_calls_do_not_slip_through() -> None:
    program = seccomp.default(DEFAULT, "x86_64")
    assert verdict(program, 0, architecture=0x4000_0003) == KILLED
    assert verdict(program, 0x4000_0000) == ENOSYS
    assert verdict(program, 5000) == ENOSYS


OPERATIONS = {
    "EQ": lambda value, bound: value == bound,
    "NE": lambda value, bound: value != bound,
    "GT": lambda value, bound: value > bound,
    "GE": lambda value, bound: value >= bound,
    "LT": lambda value, bound: value < bound,
    "LE": lambda value, bound: value <= bound,
}
words = st.sampled_from([0, 1, 2, 1 << 31, 1 << 32, (1 << 32) + 1, (1 << 64) - 1]) | st.integers(
    0, (1 << 64) - 1
)


@given(st.sampled_from(sorted(OPERATIONS)), words, words)
def test_conditions_compare_all_64_bits(operation: str, value: int, bound: int) -> None:
    condition = SyscallArgument(index=2, value=bound, op=f"SCMP_CMP_{operation}")
    rule = SyscallRule(names=["read"], action="SCMP_ACT_ERRNO", args=[condition])
    profile = SyscallProfile(default_action="SCMP_ACT_ALLOW", syscalls=[rule])
    program = compile_profile(profile, "x86_64")
    expected = EPERM if OPERATIONS[operation](value, bound) else ALLOWED
    assert call(program, "read", 0, 0, value) == expected
    assert call(program, "write", 0, 0, value) == ALLOWED


def test_all_conditions_of_a_rule_must_hold_and_any_rule_will_do() -> None:
    both = [SyscallArgument(index=0, value=1), SyscallArgument(index=1, value=2, op="SCMP_CMP_GE")]
    rules = [
        SyscallRule(names=["read"], args=both),
        SyscallRule(names=["read"], args=[SyscallArgument(index=0, value=9)]),
    ]
    profile = SyscallProfile(default_action="SCMP_ACT_ERRNO", default_errno_ret=38, syscalls=rules)
    program = compile_profile(profile, "x86_64")
    assert call(program, "read", 1, 5) == ALLOWED
    assert call(program, "read", 1, 1) == ENOSYS
    assert call(program, "read", 9, 0) == ALLOWED
    assert call(program, "open") == ENOSYS


def test_a_profile_in_a_file_is_read_as_runtimes_read_it(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    rules = [
        {"names": ["read", "no_such_call"], "action": "SCMP_ACT_ALLOW"},
        {"names": ["mount"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
        {"names": ["write"], "action": "SCMP_ACT_ALLOW", "args": None, "comment": "x"},
    ]
    path.write_text(json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules}))
    machine = "x86_64" if platform.machine() == "x86_64" else "aarch64"
    program = seccomp.load(str(path), DEFAULT)
    verdicts = [call(program, name, machine=machine) for name in ("read", "write", "mount")]
    assert verdicts == [ALLOWED, ALLOWED, EPERM]
    assert call(seccomp.load(str(path), ALL), "mount", machine=machine) == ALLOWED


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot load seccomp profile"),
        ('{"defaultAction": "SCMP_ACT_DANCE"}', "an action that is not known: SCMP_ACT_DANCE"),
    ],
)
def test_a_profile_that_cannot_be_used_says_why(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(content)
    with pytest.raises(seccomp.InvalidSeccompProfile, match=words):
        seccomp.load(str(path), DEFAULT)
