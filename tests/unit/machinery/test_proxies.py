"""Which requests take which proxy: the rules of Go's httpproxy."""

import pytest

from kedge.machinery.proxies import (
    InvalidProxy,
    ProxyAddress,
    ProxyRules,
    ProxyVariable,
    from_environment,
    is_excepted,
    parse,
)

PROXY = {"HTTPS_PROXY": "http://proxy.example:3128"}


def test_each_scheme_has_its_proxy() -> None:
    rules = from_environment({"HTTPS_PROXY": "http://secure:1", "HTTP_PROXY": "http://plain:2"})
    assert str(rules.find("https://example.com/v2/")) == "http://secure:1 ($HTTPS_PROXY)"
    assert str(rules.find("http://example.com/v2/")) == "http://plain:2 ($HTTP_PROXY)"
    assert from_environment({}).find("https://example.com") is None
    assert from_environment(PROXY).find("http://example.com") is None


def test_upper_case_comes_first_and_an_empty_variable_is_none() -> None:
    both = {"HTTPS_PROXY": "http://upper:1", "https_proxy": "http://lower:1"}
    assert str(from_environment(both).find("https://a.b")) == "http://upper:1 ($HTTPS_PROXY)"
    lower = {**both, "HTTPS_PROXY": ""}
    assert str(from_environment(lower).find("https://a.b")) == "http://lower:1 ($https_proxy)"
    assert from_environment({"https_proxy": "http://p", "no_proxy": "a.b"}).exceptions == "a.b"


def test_all_proxy_stands_for_each_variable_that_is_not_set() -> None:
    every = {"ALL_PROXY": "http://all:1"}
    assert str(from_environment(every).find("https://a.b")) == "http://all:1 ($ALL_PROXY)"
    assert str(from_environment(every | PROXY).find("https://a.b")).startswith("http://proxy.ex")
    assert str(from_environment(every | PROXY).find("http://a.b")) == "http://all:1 ($ALL_PROXY)"
    short = from_environment({"ALL_PROXY": "proxy:3128"})
    assert str(short.find("https://a.b")) == "http://proxy:3128 ($ALL_PROXY)"
    for other in ("socks5h://localhost:1080", "SOCKS5://localhost:1080"):
        assert from_environment({"ALL_PROXY": other}) == ProxyRules()


def test_an_invalid_all_proxy_fails_only_what_needs_it() -> None:
    rules = from_environment({"ALL_PROXY": "http://u:pa[ss@proxy:3128"})
    assert rules.find("https://localhost") is None
    [said] = rules.described()
    assert said.startswith("no usable proxy: $ALL_PROXY is not the address")
    with pytest.raises(InvalidProxy, match=r"\$ALL_PROXY"):
        rules.find("https://a.b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://p.example:3128", ProxyAddress("http", "p.example", 3128)),
        ("p.example:3128", ProxyAddress("http", "p.example", 3128)),
        ("p.example", ProxyAddress("http", "p.example", 80)),
        ("https://p.example", ProxyAddress("https", "p.example", 443)),
        ("http://me:a%40b@p:1/", ProxyAddress("http", "p", 1, "me", "a@b")),
        ("me:secret@p:1", ProxyAddress("http", "p", 1, "me", "secret")),
        ("http://[::1]:8080", ProxyAddress("http", "::1", 8080)),
    ],
)
def test_a_proxy_is_a_url_or_a_host(text: str, expected: ProxyAddress) -> None:
    assert parse(ProxyVariable("", text)) == expected


@pytest.mark.parametrize(
    "text", ["socks5://p:1", "http://", "http://p:x", "http://[::1", "ftp://p"]
)
def test_what_is_no_http_proxy_is_refused_by_the_name_of_its_variable(text: str) -> None:
    with pytest.raises(InvalidProxy, match=r"\$HTTPS_PROXY"):
        from_environment({"HTTPS_PROXY": text}).find("https://a.b")


def test_no_password_is_shown() -> None:
    rules = from_environment({"HTTPS_PROXY": "http://me:secret@p:1", "NO_PROXY": "a.b"})
    found = rules.find("https://example.com")
    assert found is not None
    assert found.authorization == "Basic bWU6c2VjcmV0"
    assert "secret" not in f"{found} {rules.described()}"
    assert rules.described() == ["proxy http://p:1 ($HTTPS_PROXY)", "no proxy for a.b"]
    with pytest.raises(InvalidProxy) as refused:
        parse(ProxyVariable("HTTPS_PROXY", "socks5://me:secret@p:1"))
    assert "secret" not in str(refused.value)


EXCEPTIONS = (
    "exact.example, .below.example,*.star.example , ported.example:8443,192.0.2.1,192.0.2.2:81,"
    "10.1.0.0/16, 2001:db8::/32,[2001:dba::1]:80,[2001:dbb::1],:99,,10.9.9.9/x"
)


@pytest.mark.parametrize(
    ("host", "port", "expected"),
    [
        ("localhost", 443, True),
        ("127.0.0.1", 443, True),
        ("127.9.9.9", 443, True),
        ("::1", 443, True),
        ("LOCALHOST", 443, True),
        ("exact.example", 443, True),
        ("EXACT.example", 443, True),
        ("a.b.exact.example", 443, True),
        ("notexact.example", 443, False),
        ("below.example", 443, False),
        ("a.below.example", 443, True),
        ("star.example", 443, False),
        ("a.star.example", 443, True),
        ("ported.example", 443, False),
        ("ported.example", 8443, True),
        ("a.ported.example", 8443, True),
        ("192.0.2.1", 443, True),
        ("192.0.2.1", 80, True),
        ("192.0.2.2", 80, False),
        ("192.0.2.2", 81, True),
        ("10.1.2.3", 443, True),
        ("10.2.2.3", 443, False),
        ("10.9.9.9", 443, False),
        ("::ffff:10.1.2.3", 443, True),
        ("2001:db8::5", 443, True),
        ("2001:db9::5", 443, False),
        ("2001:dba::1", 80, True),
        ("2001:dba::1", 443, False),
        ("2001:dbb::1", 443, True),
        ("x.192.0.2.1", 443, False),
        ("other.example", 99, False),
        ("", 443, False),
    ],
)
def test_hosts_that_need_no_proxy(host: str, port: int, expected: bool) -> None:
    assert is_excepted(EXCEPTIONS, host, port) is expected


def test_a_star_excepts_everything() -> None:
    assert is_excepted("a.b, *", "example.com", 443)
    assert from_environment({**PROXY, "NO_PROXY": "*"}).find("https://example.com") is None
    assert not is_excepted("*.", "example.com", 443)
