"""Rules for names: each returns the errors of a value, in Kubernetes' words.

No problems, an empty list: `if problems := dns_label(name): ...`.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

Rule = Callable[[str], list[str]]

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_UNDERSCORE_LABEL: Final = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_UNDERSCORE_SUBDOMAIN: Final = rf"{_UNDERSCORE_LABEL}(\.{_UNDERSCORE_LABEL})*"
_RFC1035_LABEL: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_WILDCARD: Final = rf"\*\.{_SUBDOMAIN}"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_QUALIFIED})?"
_C_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"
_ENV_VAR: Final = "[-._a-zA-Z][-._a-zA-Z0-9]*"
_HTTP_HEADER: Final = "[-A-Za-z0-9]+"
_HTTP_PATH: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_CONFIG_KEY: Final = "[-._a-zA-Z0-9]+"
_PERCENT: Final = "[0-9]+%"


def _said(rule: str, expression: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} ({f'e.g. {shown}' if shown else ''}regex used for validation is '{expression}')"


_ENDS_PLAIN: Final = "and must start and end with an alphanumeric character"
_BAD_LABEL: Final = _said(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    + _ENDS_PLAIN,
    _LABEL,
    "my-name",
    "123-abc",
)
_BAD_SUBDOMAIN: Final = _said(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    f"'-' or '.', {_ENDS_PLAIN}",
    _SUBDOMAIN,
    "example.com",
)
_BAD_CASELESS_SUBDOMAIN: Final = _said(
    f"an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', {_ENDS_PLAIN}",
    _SUBDOMAIN,
    "Example.com",
)
_BAD_UNDERSCORE_SUBDOMAIN: Final = _said(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    f"'_', '-' or '.', {_ENDS_PLAIN}",
    _UNDERSCORE_SUBDOMAIN,
    "example.com",
)
_BAD_RFC1035_LABEL: Final = _said(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character",
    _RFC1035_LABEL,
    "my-name",
    "abc-123",
)
_BAD_WILDCARD: Final = _said(
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, "
    "which must consist of lower case alphanumeric characters, '-' or '.' "
    "and end with an alphanumeric character",
    _WILDCARD,
    "*.example.com",
)
_BAD_QUALIFIED: Final = _said(
    f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS_PLAIN}",
    _QUALIFIED,
    "MyName",
    "my.name",
    "123-abc",
)
_BAD_LABEL_VALUE: Final = _said(
    "a valid label must be an empty string or consist of alphanumeric characters, "
    f"'-', '_' or '.', {_ENDS_PLAIN}",
    _LABEL_VALUE,
    "MyValue",
    "my_value",
    "12345",
)
_BAD_C_IDENTIFIER: Final = _said(
    "a valid C identifier must start with alphabetic character or '_', "
    "followed by a string of alphanumeric characters or '_'",
    _C_IDENTIFIER,
    "my_name",
    "MY_NAME",
    "MyName",
)
_BAD_ENV_VAR: Final = _said(
    "a valid environment variable name must consist of alphabetic characters, digits, "
    "'_', '-', or '.', and must not start with a digit",
    _ENV_VAR,
    "my.env-name",
    "MY_ENV.NAME",
    "MyEnvName1",
)
_BAD_HTTP_HEADER: Final = _said(
    "a valid HTTP header must consist of alphanumeric characters or '-'",
    _HTTP_HEADER,
    "X-Header-Name",
)
_BAD_HTTP_VALUE: Final = "a valid HTTP header value must not contain control characters"
_BAD_CONFIG_KEY: Final = _said(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)
_BAD_PERCENT: Final = _said(
    "a valid percent string must be a numeric string followed by an ending '%'",
    _PERCENT,
    "1%",
    "93%",
)

_is_label: Final = re.compile(_LABEL).fullmatch
_is_subdomain: Final = re.compile(_SUBDOMAIN).fullmatch
_is_caseless_subdomain: Final = re.compile(_SUBDOMAIN, re.IGNORECASE | re.ASCII).fullmatch
_is_underscore_subdomain: Final = re.compile(_UNDERSCORE_SUBDOMAIN).fullmatch
_is_rfc1035_label: Final = re.compile(_RFC1035_LABEL).fullmatch
_is_wildcard: Final = re.compile(_WILDCARD).fullmatch
_is_qualified: Final = re.compile(_QUALIFIED).fullmatch
_is_qualified_key: Final = re.compile(
    rf"((?=[^/]{{1,253}}/){_SUBDOMAIN}/)?(?=[^/]{{1,63}}\Z){_QUALIFIED}"
).fullmatch
_is_label_value: Final = re.compile(_LABEL_VALUE).fullmatch
_is_c_identifier: Final = re.compile(_C_IDENTIFIER).fullmatch
_is_env_var: Final = re.compile(_ENV_VAR).fullmatch
_is_printable_env_var: Final = re.compile("[ -<>-~]*").fullmatch
_is_http_header: Final = re.compile(_HTTP_HEADER).fullmatch
_has_control: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]").search
_is_http_path: Final = re.compile(_HTTP_PATH).fullmatch
_is_config_key: Final = re.compile(_CONFIG_KEY).fullmatch
_is_percent: Final = re.compile(_PERCENT).fullmatch
_is_port_name: Final = re.compile("[-a-z0-9]+").fullmatch
_has_letter: Final = re.compile("[a-z]").search
_is_decimal_integer: Final = re.compile("0|-?[1-9][0-9]*").fullmatch
_has_plain_octets: Final = re.compile(r"(.*:)?([0-9]+\.){3}[0-9]+").fullmatch


def dns_label(value: str) -> list[str]:
    """A lower-case RFC 1123 label: namespaces, containers, volumes, most services."""
    if len(value) <= 63 and _is_label(value):
        return []
    problems = _too_long(value, 63, "characters")
    if not _is_label(value):
        problems.append("must not contain dots" if _is_subdomain(value) else _BAD_LABEL)
    return problems


def dns_subdomain(value: str) -> list[str]:
    """A lower-case RFC 1123 subdomain: most objects."""
    if len(value) <= 253 and _is_subdomain(value):
        return []
    problems = _too_long(value, 253, "characters")
    if not _is_subdomain(value):
        problems.append(_BAD_SUBDOMAIN)
    return problems


def dns_subdomain_caseless(value: str) -> list[str]:
    """An RFC 1123 subdomain in any case: CSI and DRA drivers."""
    problems = _too_long(value, 253, "bytes")
    if not _is_caseless_subdomain(value):
        problems.append(_BAD_CASELESS_SUBDOMAIN)
    return problems


def dns_subdomain_with_underscore(value: str) -> list[str]:
    """An RFC 1123 subdomain whose labels may hold underscores: search paths of DNS."""
    problems = _too_long(value, 253, "characters")
    if not _is_underscore_subdomain(value):
        problems.append(_BAD_UNDERSCORE_SUBDOMAIN)
    return problems


def dns1035_label(value: str) -> list[str]:
    """An RFC 1035 label, which starts with a letter: API groups' plurals, older services."""
    problems = _too_long(value, 63, "characters")
    if not _is_rfc1035_label(value):
        problems.append(_BAD_RFC1035_LABEL)
    return problems


def wildcard_dns_subdomain(value: str) -> list[str]:
    """A subdomain below `*.`: hosts of an Ingress."""
    problems = _too_long(value, 253, "characters")
    if not _is_wildcard(value):
        problems.append(_BAD_WILDCARD)
    return problems


def fully_qualified_name(value: str) -> list[str]:
    """A subdomain of at least three parts. That it is not empty is for the caller to require."""
    if problems := dns_subdomain(value):
        return [",".join(problems)]
    if value.count(".") < 2:
        return ["should be a domain with at least three segments separated by dots"]
    return []


def fully_qualified_domain(value: str) -> list[str]:
    """A domain of at least two labels, perhaps with a dot behind; not empty, see above."""
    value = value.removesuffix(".")
    if problems := dns_subdomain(value):
        return [",".join(problems)]
    if "." not in value:
        return ["should be a domain with at least two segments separated by dots"]
    for label in value.split("."):
        if problems := dns_label(label):
            return [",".join(problems)]
    return []


def qualified_name(value: str) -> list[str]:
    """A name with an optional domain and slash before it: label keys, resources, conditions."""
    if _is_qualified_key(value):
        return []
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        return [
            f"a valid label key {_BAD_QUALIFIED} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        ]
    problems = _prefix_problems(prefix) if slash else []
    if not name:
        problems.append("name part must be non-empty")
    problems += _prefixed("name part ", _too_long(name, 63, "bytes"))
    if not _is_qualified(name):
        problems.append(f"name part {_BAD_QUALIFIED}")
    return problems


def _prefix_problems(prefix: str) -> list[str]:
    if not prefix:
        return ["prefix part must be non-empty"]
    if len(prefix) <= 253 and _is_subdomain(prefix):
        return []
    problems = _too_long(prefix, 253, "bytes")
    if not _is_subdomain(prefix):
        problems.append(_BAD_SUBDOMAIN)
    return _prefixed("prefix part ", problems)


def annotation_key(value: str) -> list[str]:
    """A qualified name whose domain may be in any case."""
    return qualified_name(value.lower())


_LONGEST_KEY: Final = 253 + 1 + 63


def needs_escapes(key: str) -> bool:
    """Whether a key is valid only in kedge and needs escapes in field paths.

    The escapes use a backslash, so the key itself cannot contain one.
    """
    return (
        not _ESCAPED_CHARACTERS.isdisjoint(key)
        and "\\" not in key
        and key.isprintable()
        and len(key.encode()) <= _LONGEST_KEY
    )


_ESCAPED_CHARACTERS: Final = frozenset("[]'")


def label_value(value: str) -> list[str]:
    """Return the errors of a label value; an empty value is allowed."""
    if len(value) <= 63 and _is_label_value(value):
        return []
    problems = _too_long(value, 63, "bytes")
    if not _is_label_value(value):
        problems.append(_BAD_LABEL_VALUE)
    return problems


def finalizer(value: str) -> list[str]:
    """The name of a finalizer of any object."""
    return qualified_name(value)


_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def core_finalizer(value: str) -> list[str]:
    """Return the errors of a finalizer of the core group, beyond those of a qualified name."""
    if "/" in value or value in _STANDARD_FINALIZERS:
        return []
    return ["name is neither a standard finalizer name nor is it fully qualified"]


def domain_prefixed_path(value: str) -> list[str]:
    """A domain, a slash and a path; not empty, which is for the caller to require."""
    host, _, path = value.partition("/")
    if not host or not path:
        return ['must be a domain-prefixed path (such as "acme.io/foo")']
    problems = dns_subdomain(host)
    if not _is_http_path(path):
        problems.append(_said("Invalid path", _HTTP_PATH))
    return problems


def domain_prefixed_key(value: str) -> list[str]:
    """A qualified name that does have a domain; not empty, which is for the caller to require."""
    if problems := qualified_name(value):
        return problems
    return [] if "/" in value else ['must be a domain-prefixed key (such as "acme.io/foo")']


def c_identifier(value: str) -> list[str]:
    """An identifier of the C language, of any length."""
    return [] if _is_c_identifier(value) else [_BAD_C_IDENTIFIER]


def env_var_name(value: str) -> list[str]:
    """An environment variable: anything printable but an equals sign."""
    if not value:
        return ["environment variable name must be non-empty"]
    if _is_printable_env_var(value):
        return []
    return [
        "a valid environment variable name must consist only of printable ASCII characters "
        "other than '='"
    ]


def strict_env_var_name(value: str) -> list[str]:
    """An environment variable as a shell would take it, dots and dashes apart."""
    problems = [] if _is_env_var(value) else [_BAD_ENV_VAR]
    return problems + _climbs(value)


def config_key(value: str) -> list[str]:
    """A key of a ConfigMap or Secret, which may become a file."""
    problems = _too_long(value, 253, "characters")
    if not _is_config_key(value):
        problems.append(_BAD_CONFIG_KEY)
    return problems + _climbs(value)


def http_header_name(value: str) -> list[str]:
    """The name of a header in an HTTP probe."""
    return [] if _is_http_header(value) else [_BAD_HTTP_HEADER]


def http_header_value(value: str) -> list[str]:
    """Validate the value of a header: a control character could end it and start another header."""
    return [_BAD_HTTP_VALUE] if _has_control(value) else []


def port_name(value: str) -> list[str]:
    """An IANA service name, as RFC 6335 has it but in lower case."""
    problems = _too_long(value, 15, "characters")
    if not _is_port_name(value):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _has_letter(value):
        problems.append("must contain at least one letter (a-z)")
    if "--" in value:
        problems.append("must not contain consecutive hyphens")
    if value.startswith("-") or value.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def in_range(value: int, least: int, most: int) -> list[str]:
    """A number within bounds, both included."""
    if least <= value <= most:
        return []
    return [f"must be between {least} and {most}, inclusive"]


def port_number(value: int) -> list[str]:
    """A port one can listen on."""
    return in_range(value, 1, 65535)


def user_id(value: int) -> list[str]:
    """A Unix user or group."""
    return in_range(value, 0, 2**31 - 1)


def percent(value: str) -> list[str]:
    """A whole percentage."""
    return [] if _is_percent(value) else [_BAD_PERCENT]


def decimal_integer(value: str) -> list[str]:
    """A whole number written the one usual way."""
    if not value:
        return ["must be non-empty"]
    if _is_decimal_integer(value):
        return []
    return ["must be a valid decimal integer in canonical form"]


def path_segment(value: str) -> list[str]:
    """A name that can be one part of a URL's path: roles, and the weakest rule there is."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return path_segment_prefix(value)


def path_segment_prefix(value: str) -> list[str]:
    """The beginning of such a name. Kubernetes allows the NUL character, which no key of a store
    can hold here."""
    forbidden = [f"may not contain '{char}'" for char in "/%" if char in value]
    return [*forbidden, "may not contain the NUL character"] if "\0" in value else forbidden


def ip_address(value: str) -> list[str]:
    """An address as the older kinds take it: any spelling without ambiguity."""
    try:
        address = ipaddress.ip_address(_without_leading_zeros(value))
    except ValueError:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    if address.version == 6 and "%" in value:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    problems = []
    if _without_leading_zeros(value) != value:
        problems.append("must not have leading 0s")
    elif _is_mapped(address):
        problems.append("must not be an IPv4-mapped IPv6 address")
    return problems


def canonical_ip_address(value: str) -> list[str]:
    """An address as the newer kinds take it: in the one form of RFC 5952."""
    if problems := ip_address(value):
        return problems
    canonical = str(ipaddress.ip_address(value))
    return [] if value == canonical else [f'must be in canonical form ("{canonical}")']


def cidr(value: str) -> list[str]:
    """A network: an address whose bits beyond the prefix are zero, and the prefix's length."""
    address, _, bits = value.partition("/")
    plain = f"{_without_leading_zeros(address)}/{_without_zeros(bits)}"
    try:
        network = ipaddress.ip_interface(plain)
    except ValueError:
        network = None
    if network is None or "%" in value or not (bits.isascii() and bits.isdigit()):
        return ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]
    if plain != value:
        return ["must not have leading 0s in IP or prefix length"]
    if _is_mapped(network.ip):
        return ["must not have an IPv4-mapped IPv6 address"]
    if network.ip != network.network.network_address:
        return ["must not have bits set beyond the prefix length"]
    return []


def canonical_cidr(value: str) -> list[str]:
    """A network in the one form of RFC 5952."""
    if problems := cidr(value):
        return problems
    canonical = str(ipaddress.ip_network(value))
    return [] if value == canonical else [f'must be in canonical form ("{canonical}")']


GENERATED_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Neither vowels nor look-alikes, so that no generated name is a word."""
GENERATED_LENGTH: Final = 5
LONGEST_GENERATED_BASE: Final = 63 - GENERATED_LENGTH


def generate_name(base: str, random: Random) -> str:
    """`base`, shortened to leave room, and five random characters."""
    suffix = random.choices(GENERATED_ALPHABET, k=GENERATED_LENGTH)
    return base[:LONGEST_GENERATED_BASE] + "".join(suffix)


def generate_name_prefix(value: str, rule: Rule) -> list[str]:
    """Whether names generated from `value` could satisfy `rule`."""
    if rule is path_segment:
        return path_segment_prefix(value)
    # A dash at the end will not stay the end. Upstream's mask takes one more character with it.
    masked = value[:-2] + "a" if len(value) > 1 and value.endswith("-") else value
    return rule(masked)


def _too_long(value: str, limit: int, unit: str) -> list[str]:
    """Upstream counts bytes whatever it calls them."""
    if len(value) <= limit and (value.isascii() or len(value.encode(errors="replace")) <= limit):
        return []
    return [f"must be no more than {limit} {unit}"]


def _prefixed(prefix: str, problems: Iterable[str]) -> list[str]:
    return [prefix + problem for problem in problems]


def _climbs(value: str) -> list[str]:
    """Return the errors of a value that would leave its directory as a file name."""
    if value in (".", ".."):
        return [f"must not be '{value}'"]
    return ["must not start with '..'"] if value.startswith("..") else []


def _without_leading_zeros(address: str) -> str:
    """`address` with its decimal octets as Python insists on them."""
    if not _has_plain_octets(address):
        return address
    head, colon, octets = address.rpartition(":")
    return head + colon + ".".join(_without_zeros(octet) for octet in octets.split("."))


def _without_zeros(digits: str) -> str:
    return digits.lstrip("0") or digits[-1:]


def _is_mapped(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None
