"""Seccomp filters: the default one and profiles in files, compiled to classic BPF.

The default filter lists the calls that the well-known runtimes do not allow, whereas these list the
calls that they do. The result is the same for every call in the table of names, and the program is
a third as long: the kernel runs it for each system call. A list of refusals alone would allow the
calls of a newer kernel; so calls above the highest number in the table fail with ENOSYS, and the C
library falls back to older ones.

A filter sees numbers and registers, never memory: another thread could change memory between the
check and the call. So a call is refused as a whole if its flags are in memory (clone3).
"""

import json
import os
import platform
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

_ARCHITECTURES: Final = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_OTHER_ABI: Final = 0x4000_0000
"""System call numbers from here on belong to the x32 ABI."""

ALLOW: Final = 0x7FFF_0000
_ERRNO: Final = 0x0005_0000
_KILL_PROCESS: Final = 0x8000_0000
_ACTIONS: Final = {
    "SCMP_ACT_ALLOW": ALLOW,
    "SCMP_ACT_LOG": 0x7FFC_0000,
    "SCMP_ACT_TRACE": 0x7FF0_0000,
    "SCMP_ACT_ERRNO": _ERRNO,
    "SCMP_ACT_TRAP": 0x0003_0000,
    "SCMP_ACT_KILL": 0,
    "SCMP_ACT_KILL_THREAD": 0,
    "SCMP_ACT_KILL_PROCESS": _KILL_PROCESS,
}
_WITH_NUMBER: Final = ("SCMP_ACT_ERRNO", "SCMP_ACT_TRACE")
EPERM: Final = 1
ENOSYS: Final = 38

_LOAD: Final = 0x20
_AND: Final = 0x54
_JUMP: Final = 0x05
_EQUAL: Final = 0x15
_GREATER: Final = 0x25
_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06
_NUMBER: Final = 0
_ARCHITECTURE: Final = 4
_ARGUMENTS: Final = 16
_MOST_INSTRUCTIONS: Final = 4096

_NAMESPACES: Final = 0x7E02_0000
"""The flags of clone that create namespaces; clone cannot create a time namespace."""
_PERSONALITIES: Final = (0x0, 0x8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF)
_VSOCK: Final = 40

FORBIDDEN: Final[Mapping[str, str]] = {
    "": "add_key create_module get_kernel_syms io_uring_enter io_uring_register io_uring_setup "
    "kexec_file_load kexec_load keyctl migrate_pages move_pages nfsservctl pivot_root query_module "
    "request_key swapoff swapon sysfs _sysctl uselib userfaultfd ustat",
    "SYS_ADMIN": "fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr "
    "move_mount open_tree open_tree_attr quotactl quotactl_fd setdomainname sethostname setns "
    "umount2 unshare",
    "SYS_ADMIN BPF": "bpf",
    "SYS_ADMIN PERFMON": "perf_event_open",
    "SYS_ADMIN SYSLOG": "syslog",
    "DAC_READ_SEARCH": "open_by_handle_at",
    "SYS_BOOT": "reboot",
    "SYS_CHROOT": "chroot",
    "SYS_MODULE": "delete_module finit_module init_module",
    "SYS_NICE": "get_mempolicy mbind set_mempolicy set_mempolicy_home_node",
    "SYS_PACCT": "acct",
    "SYS_PTRACE": "kcmp pidfd_getfd process_madvise",
    "SYS_RAWIO": "ioperm iopl",
    "SYS_TIME": "clock_settime settimeofday",
    "SYS_TTY_CONFIG": "vhangup",
}
"""Calls that need one of the capabilities named with them."""


class InvalidSeccompProfile(ValueError):
    """The profile cannot be compiled to a filter."""


class SyscallArgument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A condition on an argument of a call."""

    index: int
    value: int = 0
    value_two: int = 0
    op: str = "SCMP_CMP_EQ"


class SyscallRuleCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The conditions for a rule to apply."""

    caps: Sequence[str] = ()
    arches: Sequence[str] = ()
    min_kernel: str = ""


class SyscallRule(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A rule for some calls."""

    names: Sequence[str] = ()
    action: str = "SCMP_ACT_ALLOW"
    errno_ret: int | None = None
    args: Sequence[SyscallArgument] | None = None
    includes: SyscallRuleCondition = SyscallRuleCondition()
    excludes: SyscallRuleCondition = SyscallRuleCondition()


class SyscallProfile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A profile in the JSON format of the container runtimes."""

    default_action: str
    default_errno_ret: int | None = None
    syscalls: Sequence[SyscallRule] = ()


@cache
def default(capabilities: frozenset[str], machine: str = "") -> bytes:
    """Return the default filter."""
    machine = machine or platform.machine()
    rules = [SyscallRule(names=_forbidden(capabilities), action="SCMP_ACT_ERRNO")]
    if "SYS_ADMIN" not in capabilities:
        # Without clone3 the C library falls back to clone, whose flags a filter can read. The flags
        # of clone3 are in memory, where a filter cannot.
        rules.append(SyscallRule(names=["clone3"], action="SCMP_ACT_ERRNO", errno_ret=ENOSYS))
        rules += [_refuse("clone", 0, bit, masked=True) for bit in _bits(_NAMESPACES)]
    personality = [SyscallArgument(index=0, value=each) for each in _PERSONALITIES]
    rules += [SyscallRule(names=["personality"], args=[each]) for each in personality]
    rules.append(SyscallRule(names=["personality"], action="SCMP_ACT_ERRNO"))
    rules.append(_refuse("socket", 0, _VSOCK))
    return compile_profile(
        SyscallProfile(default_action="SCMP_ACT_ALLOW", syscalls=rules), machine, newer=ENOSYS
    )


def load(path: str, capabilities: Collection[str]) -> bytes:
    """Return the filter of a profile in a file."""
    try:
        with open(path, "rb") as file:
            profile = msgspec.json.decode(file.read(), type=SyscallProfile)
    except (OSError, msgspec.DecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidSeccompProfile(f'cannot load seccomp profile "{path}": {reason}') from error
    machine = platform.machine()
    fitting = [rule for rule in profile.syscalls if _is_meant(rule, capabilities, machine)]
    return compile_profile(msgspec.structs.replace(profile, syscalls=fitting), machine)


def _forbidden(capabilities: Collection[str]) -> list[str]:
    return [
        name
        for needed, names in FORBIDDEN.items()
        if not set(needed.split()) & set(capabilities)
        for name in names.split()
    ]


def _refuse(name: str, index: int, value: int, *, masked: bool = False) -> SyscallRule:
    if masked:
        condition = SyscallArgument(
            index=index, value=value, value_two=value, op="SCMP_CMP_MASKED_EQ"
        )
    else:
        condition = SyscallArgument(index=index, value=value)
    return SyscallRule(names=[name], action="SCMP_ACT_ERRNO", args=[condition])


def _bits(mask: int) -> Iterable[int]:
    return (1 << place for place in range(mask.bit_length()) if mask >> place & 1)


def _is_meant(rule: SyscallRule, capabilities: Collection[str], machine: str) -> bool:
    names = {f"CAP_{name}" for name in capabilities}
    here = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    wanted, unwanted = rule.includes, rule.excludes
    if not set(wanted.caps) <= names or set(unwanted.caps) & names:
        return False
    if (wanted.arches and here not in wanted.arches) or here in unwanted.arches:
        return False
    return not wanted.min_kernel or _kernel(os.uname().release) >= _kernel(wanted.min_kernel)


def _kernel(text: str) -> tuple[int, ...]:
    head = text.partition("-")[0].split(".")[:2]
    return tuple(int(part) for part in head if part.isdigit())


@cache
def _numbers(machine: str) -> dict[str, int]:
    text = Path(__file__).with_name("syscalls.json").read_text()
    found: dict[str, int] = json.loads(text).get(machine, {})
    return found


def compile_profile(profile: SyscallProfile, machine: str, *, newer: int = 0) -> bytes:
    """Return the program; `newer` is the error for calls that the table does not know, 0 for the
    profile's default action."""
    if machine not in _ARCHITECTURES:
        raise InvalidSeccompProfile(f"there are no filters for system calls on {machine}")
    numbers = _numbers(machine)
    # The architecture comes first, because the same number is another call in another ABI: 32-bit
    # programs on x86_64 could make any call under an allowed number. The x32 ABI has the same
    # architecture and differs only in a bit of the number; runtimes refuse it as a whole.
    code = [
        _op(_LOAD, _ARCHITECTURE),
        _op(_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _op(_RETURN, _KILL_PROCESS),
        _op(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        code += [_op(_AT_LEAST, _OTHER_ABI, 0, 1), _op(_RETURN, _ERRNO | ENOSYS)]
    if newer:
        code += [_op(_GREATER, max(numbers.values()), 0, 1), _op(_RETURN, _ERRNO | newer)]
    fallback = _op(_RETURN, _action(profile.default_action, profile.default_errno_ret))
    for name, rules in _by_name(profile.syscalls).items():
        # An unknown name is not an error: profiles are written for many architectures.
        if name in numbers:
            code += _call(numbers[name], rules, fallback)
    code.append(fallback)
    if len(code) > _MOST_INSTRUCTIONS:
        raise InvalidSeccompProfile("the seccomp profile has too many rules")
    return b"".join(code)


def _by_name(rules: Sequence[SyscallRule]) -> dict[str, list[SyscallRule]]:
    found: dict[str, list[SyscallRule]] = {}
    for rule in rules:
        for name in rule.names:
            found.setdefault(name, []).append(rule)
    return found


def _call(number: int, rules: Sequence[SyscallRule], fallback: bytes) -> list[bytes]:
    """Yield the instructions for one call: the first rule whose conditions hold decides."""
    body: list[bytes] = []
    for rule in rules:
        conditions = [_condition(each) for each in rule.args or ()]
        verdict = _op(_RETURN, _action(rule.action, rule.errno_ret))
        body += _all_of(conditions, verdict)
        if not conditions:
            break
    else:
        body.append(fallback)
    # A conditional jump reaches 255 instructions; a body may be longer, so it is passed over by an
    # unconditional one. A body ends in a verdict or in the fallback and never runs into the next:
    # the accumulator may hold an argument by then and no longer the number.
    return [_op(_EQUAL, number, 1, 0), _op(_JUMP, len(body)), *body]


_Step = tuple[int, int, str, str]
"""An instruction with its operand and its targets if true and if false: next, yes or no."""


def _condition(argument: SyscallArgument) -> list[_Step]:
    """Return the instructions for a condition on a 64-bit argument, in two halves: BPF has 32-bit
    words."""
    # Both architectures are little-endian: the lower half comes first. Comparisons begin with the
    # higher half, which decides unless it is equal. A mask changes the accumulator, so that each
    # half is loaded again.
    low = _ARGUMENTS + 8 * argument.index
    high = low + 4
    value_low, value_high = _halves(argument.value)
    two_low, two_high = _halves(argument.value_two)
    go, yes, no = "next", "yes", "no"
    load_low, load_high = (_LOAD, low, go, go), (_LOAD, high, go, go)
    steps: dict[str, list[_Step]] = {
        "EQ": [load_high, (_EQUAL, value_high, go, no), load_low, (_EQUAL, value_low, yes, no)],
        "NE": [load_high, (_EQUAL, value_high, go, yes), load_low, (_EQUAL, value_low, no, yes)],
        "MASKED_EQ": [
            load_high,
            (_AND, value_high, go, go),
            (_EQUAL, two_high, go, no),
            load_low,
            (_AND, value_low, go, go),
            (_EQUAL, two_low, yes, no),
        ],
        "GT": [
            load_high,
            (_GREATER, value_high, yes, go),
            (_EQUAL, value_high, go, no),
            load_low,
            (_GREATER, value_low, yes, no),
        ],
        "GE": [
            load_high,
            (_GREATER, value_high, yes, go),
            (_EQUAL, value_high, go, no),
            load_low,
            (_AT_LEAST, value_low, yes, no),
        ],
        "LT": [
            load_high,
            (_GREATER, value_high, no, go),
            (_EQUAL, value_high, go, yes),
            load_low,
            (_AT_LEAST, value_low, no, yes),
        ],
        "LE": [
            load_high,
            (_GREATER, value_high, no, go),
            (_EQUAL, value_high, go, yes),
            load_low,
            (_GREATER, value_low, no, yes),
        ],
    }
    operation = argument.op.removeprefix("SCMP_CMP_")
    if operation not in steps or not 0 <= argument.index < 6:
        raise InvalidSeccompProfile(
            f"the seccomp profile has a condition that is not known: {argument.op}"
        )
    return steps[operation]


def _halves(value: int) -> tuple[int, int]:
    return value & 0xFFFF_FFFF, value >> 32 & 0xFFFF_FFFF


def _all_of(conditions: Sequence[Sequence[_Step]], verdict: bytes) -> list[bytes]:
    """Yield the instructions that return the verdict if all conditions hold, or continue behind
    it."""
    end = sum(map(len, conditions)) + 1
    code: list[bytes] = []
    for steps in conditions:
        done = len(code) + len(steps)
        for operation, operand, *ways in steps:
            places = {"next": len(code) + 1, "yes": done, "no": end}
            true, false = (places[way] - len(code) - 1 for way in ways)
            code.append(_op(operation, operand, true, false))
    return [*code, verdict]


def _action(name: str, number: int | None) -> int:
    if name not in _ACTIONS:
        raise InvalidSeccompProfile(f"the seccomp profile has an action that is not known: {name}")
    extra = (EPERM if number is None else number) if name in _WITH_NUMBER else 0
    return _ACTIONS[name] | extra


def _op(code: int, operand: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, true, false, operand)
