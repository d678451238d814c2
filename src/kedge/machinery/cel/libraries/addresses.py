"""IP addresses and networks in CIDR notation."""

import ipaddress
import math
import re
from typing import Any, ClassVar, Final

from kedge.machinery.cel.errors import CelError
from kedge.machinery.cel.functions import (
    Functions,
    first_traversed,
    first_traversed_twice,
    function,
    library,
    method,
)
from kedge.machinery.cel.libraries.address_faults import address_fault
from kedge.machinery.cel.types import BOOL, CIDR, INT, IP, STRING
from kedge.machinery.errors import quoted

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class IpValue:
    """An address as a value of expressions."""

    __slots__ = ("address",)

    cel_type: ClassVar[str] = IP.name

    def __init__(self, address: Address) -> None:
        self.address = address

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IpValue) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def cel_size(self) -> int:
        """Return how many bytes the address has."""
        return len(self.address.packed)


class CidrValue:
    """A network as a value: an address, which may have bits beyond the prefix, and a length."""

    __slots__ = ("address", "length")

    cel_type: ClassVar[str] = CIDR.name

    def __init__(self, address: Address, length: int) -> None:
        self.address = address
        self.length = length

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, CidrValue)
            and self.address == other.address
            and self.length == other.length
        )

    def __hash__(self) -> int:
        return hash((self.address, self.length))

    def __str__(self) -> str:
        return f"{self.address}/{self.length}"

    def cel_size(self) -> int:
        """Return how many bytes the prefix takes."""
        return math.ceil(self.length / 8)

    def masked(self) -> "CidrValue":
        """Return the network without bits beyond the prefix."""
        return CidrValue(_masked(self.address, self.length), self.length)

    def contains(self, address: Address) -> bool:
        """Tell whether an address is in the network."""
        if address.version != self.address.version:
            return False
        return _masked(address, self.length) == _masked(self.address, self.length)


def _masked(address: Address, length: int) -> Address:
    bits = address.max_prefixlen
    mask = ((1 << length) - 1) << (bits - length)
    number = int(address) & mask
    if address.version == 4:
        return ipaddress.IPv4Address(number)
    return ipaddress.IPv6Address(number)


_FOUR: Final = re.compile(r"[0-9.]+").fullmatch


def _parsed(text: str) -> Address:
    """Return the address that a text spells; ValueError in Go's words."""
    if len(text) > 100:
        raise ValueError("unable to parse IP")
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(address_fault(text)) from None


def address_of(text: str) -> IpValue:
    """Return the address that a text spells, or raise a CelError in upstream's words."""
    try:
        address = _parsed(text.partition("%")[0] if ":" in text else text)
    except ValueError as error:
        why = f"IP Address {quoted(text)} parse error during conversion from string"
        raise CelError(f"{why}: ParseAddr({quoted(text)}): {error}") from None
    if "%" in text:
        raise CelError(f"IP address {quoted(text)} with zone value is not allowed")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise CelError(f"IPv4-mapped IPv6 address {quoted(text)} is not allowed")
    return IpValue(address)


def cidr_of(text: str) -> CidrValue:
    """Return the network that a text spells, or raise a CelError in upstream's words."""
    try:
        address, length = _split(text)
    except ValueError as error:
        why = "network address parse error during conversion from string"
        raise CelError(f"{why}: {why}: {error}") from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise CelError(f"IPv4-mapped IPv6 address {quoted(text)} is not allowed")
    return CidrValue(address, length)


def _split(text: str) -> tuple[Address, int]:
    shown = f"netip.ParsePrefix({quoted(text)})"
    before, slash, length = text.rpartition("/")
    if not slash:
        raise ValueError(f"{shown}: no '/'")
    try:
        address = _parsed(before)
    except ValueError as error:
        raise ValueError(f"{shown}: ParseAddr({quoted(before)}): {error}") from None
    if "%" in before:
        raise ValueError(f"{shown}: IPv6 zones cannot be present in a prefix")
    if not re.fullmatch("0|[1-9][0-9]{0,5}", length):
        raise ValueError(f"{shown}: bad bits after slash: {quoted(length)}")
    if int(length) > address.max_prefixlen:
        raise ValueError(f"{shown}: prefix length out of range")
    return address, int(length)


def _is_ip(text: str) -> bool:
    try:
        address_of(text)
    except CelError:
        return False
    return True


def _is_cidr(text: str) -> bool:
    try:
        cidr_of(text)
    except CelError:
        return False
    return True


def _contains_ip(network: CidrValue, other: Any) -> bool:
    if isinstance(other, str):
        try:
            other = address_of(other)
        except CelError:
            raise CelError("no such overload") from None
    return network.contains(other.address)


def _contains_cidr(network: CidrValue, other: Any) -> bool:
    if isinstance(other, str):
        try:
            other = cidr_of(other)
        except CelError:
            raise CelError("no such overload") from None
    return network.length <= other.length and network.contains(other.address)


def _contains_price(network: CidrValue, other: Any) -> int:
    price = math.ceil(network.cel_size() * 2 * 0.1)
    return price + (math.ceil(len(other) * 0.1) if isinstance(other, str) else 0)


def _contains_cidr_price(network: CidrValue, other: Any) -> int:
    return _contains_price(network, other) + math.ceil(network.cel_size() * 0.1) + 1


def _link_local_multicast(value: IpValue) -> bool:
    if value.address.version == 4:
        return value.address.packed[:3] == b"\xe0\x00\x00"
    return value.address.packed[0] == 0xFF and value.address.packed[1] & 0x0F == 2


def _global_unicast(value: IpValue) -> bool:
    address = value.address
    if address.version == 4 and int(address) == 0xFFFFFFFF:
        return False
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
    )


_TEXT: Final = (STRING,)
_ADDRESS: Final = (IP,)
_NETWORK: Final = (CIDR,)

ADDRESSES: Final[Functions] = library(
    ip=(
        function("string_to_ip", _TEXT, IP, address_of, first_traversed),
        method("cidr_ip", _NETWORK, IP, lambda network: IpValue(network.address)),
    ),
    isIP=(function("is_ip", _TEXT, BOOL, _is_ip, first_traversed),),
    ip__isCanonical=(
        function(
            "ip_is_canonical",
            _TEXT,
            BOOL,
            lambda text: str(address_of(text).address) == text,
            first_traversed_twice,
        ),
    ),
    string=(
        function("ip_to_string", _ADDRESS, STRING, lambda value: str(value.address)),
        function("cidr_to_string", _NETWORK, STRING, str),
    ),
    family=(method("ip_family", _ADDRESS, INT, lambda value: value.address.version),),
    isUnspecified=(
        method("ip_is_unspecified", _ADDRESS, BOOL, lambda value: value.address.is_unspecified),
    ),
    isLoopback=(method("ip_is_loopback", _ADDRESS, BOOL, lambda value: value.address.is_loopback),),
    isLinkLocalMulticast=(
        method("ip_is_link_local_multicast", _ADDRESS, BOOL, _link_local_multicast),
    ),
    isLinkLocalUnicast=(
        method(
            "ip_is_link_local_unicast", _ADDRESS, BOOL, lambda value: value.address.is_link_local
        ),
    ),
    isGlobalUnicast=(method("ip_is_global_unicast", _ADDRESS, BOOL, _global_unicast),),
    cidr=(function("string_to_cidr", _TEXT, CIDR, cidr_of, first_traversed),),
    isCIDR=(function("is_cidr", _TEXT, BOOL, _is_cidr, first_traversed),),
    containsIP=(
        method("cidr_contains_ip_string", (CIDR, STRING), BOOL, _contains_ip, _contains_price),
        method("cidr_contains_ip_ip", (CIDR, IP), BOOL, _contains_ip, _contains_price),
    ),
    containsCIDR=(
        method(
            "cidr_contains_cidr_string", (CIDR, STRING), BOOL, _contains_cidr, _contains_cidr_price
        ),
        method("cidr_contains_cidr", (CIDR, CIDR), BOOL, _contains_cidr, _contains_cidr_price),
    ),
    prefixLength=(method("cidr_prefix_length", _NETWORK, INT, lambda network: network.length),),
    masked=(method("cidr_masked", _NETWORK, CIDR, CidrValue.masked),),
)
