from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery import names

ALNUM_ENDS = "and must start and end with an alphanumeric character"


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        (names.dns_label, "a" * 63),
        (names.dns_label, "0-a"),
        (names.dns_subdomain, "a.b-c.0"),
        (names.dns_subdomain, "a" * 253),
        (names.dns_subdomain_caseless, "CSI.Example.com"),
        (names.dns_subdomain_with_underscore, "_tcp.a_b.example"),
        (names.dns1035_label, "a-1"),
        (names.wildcard_dns_subdomain, "*.example.com"),
        (names.fully_qualified_name, "a.b.c"),
        (names.fully_qualified_domain, "example.com."),
        (names.qualified_name, "a" * 253 + "/" + "B" * 63),
        (names.qualified_name, "Uppercase_Is.OK-123"),
        (names.annotation_key, "Example.COM/name"),
        (names.label_value, ""),
        (names.label_value, "1.2_3-A"),
        (names.finalizer, "example.com/x"),
        (names.core_finalizer, "foregroundDeletion"),
        (names.domain_prefixed_path, "acme.io/a/b"),
        (names.domain_prefixed_key, "acme.io/foo"),
        (names.c_identifier, "_a1"),
        (names.env_var_name, "1 weird:name"),
        (names.strict_env_var_name, "my.env-name"),
        (names.config_key, "a..b"),
        (names.http_header_name, "X-Header"),
        (names.http_header_value, ""),
        (names.http_header_value, 'text/html;\tq=0.9, "é"'),
        (names.port_name, "http-2"),
        (names.percent, "93%"),
        (names.decimal_integer, "-12"),
        (names.path_segment, "system:node~é"),
        (names.ip_address, "10.9.8.7"),
        (names.ip_address, "2001:DB8:0::1"),
        (names.canonical_ip_address, "2001:db8::1"),
        (names.cidr, "10.0.0.0/8"),
        (names.cidr, "2001:DB8::/32"),
        (names.canonical_cidr, "2001:db8::/32"),
    ],
)
def test_good_values_have_no_problems(rule: Callable[[str], list[str]], value: str) -> None:
    assert rule(value) == []


@pytest.mark.parametrize(
    ("rule", "value", "problems"),
    [
        (
            names.dns_label,
            "A",
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or "
                f"'-', {ALNUM_ENDS} (e.g. 'my-name',  or '123-abc', regex used for validation is "
                "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ],
        ),
        (names.dns_label, "a.b", ["must not contain dots"]),
        (names.dns_label, "a" * 64, ["must be no more than 63 characters"]),
        (
            names.dns_subdomain,
            "a..b",
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric "
                f"characters, '-' or '.', {ALNUM_ENDS} (e.g. 'example.com', regex used for "
                r"validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ],
        ),
        (
            names.dns1035_label,
            "1a",
            [
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start "
                "with an alphabetic character, and end with an alphanumeric character (e.g. "
                "'my-name',  or 'abc-123', regex used for validation is "
                "'[a-z]([-a-z0-9]*[a-z0-9])?')"
            ],
        ),
        (
            names.fully_qualified_name,
            "a.b",
            ["should be a domain with at least three segments separated by dots"],
        ),
        (
            names.fully_qualified_domain,
            "a.",
            ["should be a domain with at least two segments separated by dots"],
        ),
        (
            names.core_finalizer,
            "mine",
            ["name is neither a standard finalizer name nor is it fully qualified"],
        ),
        (
            names.domain_prefixed_path,
            "acme.io",
            ['must be a domain-prefixed path (such as "acme.io/foo")'],
        ),
        (
            names.domain_prefixed_path,
            "acme.io/a b",
            ["Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"],
        ),
        (
            names.domain_prefixed_key,
            "foo",
            ['must be a domain-prefixed key (such as "acme.io/foo")'],
        ),
        (
            names.env_var_name,
            "a=b",
            [
                "a valid environment variable name must consist only of printable ASCII characters "
                "other than '='"
            ],
        ),
        (names.env_var_name, "", ["environment variable name must be non-empty"]),
        (names.config_key, "..", ["must not be '..'"]),
        (names.config_key, "..a", ["must not start with '..'"]),
        (names.path_segment, "..", ["may not be '..'"]),
        (names.path_segment, "a\0b", ["may not contain the NUL character"]),
        (names.path_segment, "a/b%", ["may not contain '/'", "may not contain '%'"]),
        (
            names.port_name,
            "-80--much-too-long",
            [
                "must be no more than 15 characters",
                "must not contain consecutive hyphens",
                "must not begin or end with a hyphen",
            ],
        ),
        (names.port_name, "80", ["must contain at least one letter (a-z)"]),
        (
            names.port_name,
            "",
            [
                "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
                "must contain at least one letter (a-z)",
            ],
        ),
        (names.decimal_integer, "007", ["must be a valid decimal integer in canonical form"]),
        (names.decimal_integer, "", ["must be non-empty"]),
        (
            names.ip_address,
            "10.9.8",
            ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"],
        ),
        (
            names.ip_address,
            "fe80::1%eth0",
            ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"],
        ),
        (names.ip_address, "010.9.8.7", ["must not have leading 0s"]),
        (names.ip_address, "::ffff:1.2.3.4", ["must not be an IPv4-mapped IPv6 address"]),
        (
            names.canonical_ip_address,
            "2001:DB8::1",
            ['must be in canonical form ("2001:db8::1")'],
        ),
        (
            names.cidr,
            "10.0.0.0",
            ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"],
        ),
        (
            names.cidr,
            "10.0.0.0/255.0.0.0",
            ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"],
        ),
        (names.cidr, "10.0.0.0/08", ["must not have leading 0s in IP or prefix length"]),
        (names.cidr, "10.0.0.1/8", ["must not have bits set beyond the prefix length"]),
        (names.cidr, "::ffff:1.2.3.0/120", ["must not have an IPv4-mapped IPv6 address"]),
    ],
)
def test_problems_are_told_in_upstreams_words(
    rule: Callable[[str], list[str]], value: str, problems: list[str]
) -> None:
    assert rule(value) == problems


QUALIFIED = (
    f"must consist of alphanumeric characters, '-', '_' or '.', {ALNUM_ENDS} (e.g. 'MyName',  or "
    "'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ("", ["name part must be non-empty", f"name part {QUALIFIED}"]),
        ("/a", ["prefix part must be non-empty"]),
        ("a.io/" + "b" * 64, ["name part must be no more than 63 bytes"]),
        ("a" * 254 + "/b", ["prefix part must be no more than 253 bytes"]),
        (
            "a/b/c",
            [
                f"a valid label key {QUALIFIED} with an optional DNS subdomain prefix and '/' "
                "(e.g. 'example.com/MyName')"
            ],
        ),
    ],
)
def test_problems_of_label_keys_name_the_part(value: str, problems: list[str]) -> None:
    assert names.qualified_name(value) == problems


@pytest.mark.parametrize(
    "rule", [names.dns_label, names.dns_subdomain, names.qualified_name, names.label_value]
)
def test_a_newline_at_the_end_is_noticed(rule: Callable[[str], list[str]]) -> None:
    assert rule("a\n")


def test_lengths_are_counted_in_bytes() -> None:
    assert names.label_value("é" * 40)[0] == "must be no more than 63 bytes"


@pytest.mark.parametrize(("port", "good"), [(0, False), (1, True), (65535, True), (65536, False)])
def test_ports_are_within_sixteen_bits(port: int, good: bool) -> None:
    assert names.port_number(port) == ([] if good else ["must be between 1 and 65535, inclusive"])


@given(st.text(alphabet="ab-.0", max_size=70), st.integers())
def test_a_good_prefix_generates_good_names(base: str, seed: int) -> None:
    name = names.generate_name(base, Random(seed))
    assert len(name) <= 63
    assert name.startswith(base[:58])
    assert set(name[-5:]) <= set("bcdfghjklmnpqrstvwxz2456789")
    if not base.endswith("-") and base[:58] == base and names.dns_subdomain(base) == []:
        assert names.dns_subdomain(name) == []


def test_a_prefix_may_end_with_a_dash() -> None:
    assert names.generate_name_prefix("web-", names.dns_label) == []
    assert names.generate_name_prefix("-", names.dns_label) != []
    assert names.generate_name_prefix("Web-", names.dns_label) != []
    assert names.generate_name_prefix("..", names.path_segment) == []


@pytest.mark.parametrize(
    ("key", "needs"),
    [
        ("a'b", True),
        ("foo.bar/more'complicated]example[with'characters\"to-escape", True),
        ("a[" + "b" * 315, True),
        ("a[" + "b" * 316, False),
        ("a[" + "é" * 158, False),
        ("plain", False),
        ("a b", False),
        ("a'\\b", False),
        ("a'\nb", False),
        ("", False),
    ],
)
def test_some_keys_can_only_be_written_with_escapes(key: str, needs: bool) -> None:
    assert names.needs_escapes(key) is needs
