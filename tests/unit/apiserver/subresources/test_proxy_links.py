"""Links below the path of a proxy: redirects, and pages in pieces of any size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.apiserver.subresources.proxy_links import MOST_TAG, LinkBase, LinkRewriter

P = "/api/v1/namespaces/n/pods/p/proxy"
BASE = LinkBase(P, "10.0.0.1:80", "api:6443")


@pytest.mark.parametrize(
    ("link", "moved"),
    [
        ("/", f"{P}/"),
        ("/x/y/?a=/b#c", f"{P}/x/y/?a=/b#c"),
        ("http://10.0.0.1:80/x", f"{P}/x"),
        ("//10.0.0.1:80/x", f"{P}/x"),
        ("https://api:6443/x", f"https://api:6443{P}/x"),
        (f"{P}/x", f"{P}/x"),
        (f"https://api:6443{P}/x", f"https://api:6443{P}/x"),
        ("http://10.0.0.1:81/x", "http://10.0.0.1:81/x"),
        ("//example.com/x", "//example.com/x"),
        ("http://10.0.0.1:80", "http://10.0.0.1:80"),
        ("x/y", "x/y"),
        ("?x", "?x"),
        ("#x", "#x"),
        ("", ""),
        ("mailto:a@b", "mailto:a@b"),
        ("javascript:/x", "javascript:/x"),
        (" /x", " /x"),
    ],
)
def test_links_to_the_own_server_are_moved_below_the_proxy(link: str, moved: str) -> None:
    assert BASE.moved(link) == moved


PAGES = [
    (b'<a href="/rewriteme">test</a>', b'<a href="%b/rewriteme">test</a>'),
    (b"<A title=it's HREF='/x?a=1&amp;b'>", b"<A title=it's HREF='%b/x?a=1&amp;b'>"),
    (b"<img src=/i.png/><p>", b"<img src=%b/i.png/><p>"),
    (b'<a href = "/x?a>b" id=1>', b'<a href = "%b/x?a>b" id=1>'),
    (b"<a href=http://10.0.0.1:80/y>", b"<a href=%b/y>"),
    (b'<object data="/a" usemap="/b" name="/c">', b'<object data="%b/a" usemap="%b/b" name="/c">'),
    (b'<form method=post action="/f"/>', b'<form method=post action="%b/f"/>'),
    (
        b'<script src="/s.js"></SCRIPT ><q cite=/q>',
        b'<script src="%b/s.js"></SCRIPT ><q cite=%b/q>',
    ),
    (
        b'<script>"<a href=/no>"</script><a href=/y>',
        b'<script>"<a href=/no>"</script><a href=%b/y>',
    ),
    (b"<!-- <a href=/no> --><a href=/y>", b"<!-- <a href=/no> --><a href=%b/y>"),
    (b"<!--><a href=/y>", b"<!--><a href=%b/y>"),
    (b"<p href=/x><abbr href=/x><a data-href=/x>", b"<p href=/x><abbr href=/x><a data-href=/x>"),
    (b"1 < 2 <= 3 <", b"1 < 2 <= 3 <"),
    (b'<a href="/cut', b'<a href="/cut'),
    (b"<a =x href=/y =>", b"<a =x href=%b/y =>"),
    (b"<a href>\xff\xfe<a href=>", b"<a href>\xff\xfe<a href=>"),
]


def rewritten(page: bytes, size: int) -> bytes:
    rewriter = LinkRewriter(BASE)
    pieces = [rewriter.feed(page[at : at + size]) for at in range(0, len(page), size)]
    return b"".join((*pieces, rewriter.end()))


@pytest.mark.parametrize(("page", "expected"), PAGES)
def test_links_of_pages_are_rewritten_and_nothing_else(page: bytes, expected: bytes) -> None:
    expected = expected.replace(b"%b", P.encode())
    for size in (1, 2, 3, 5, 1000):
        assert rewritten(page, size) == expected


@given(
    st.lists(st.sampled_from([b"<", b"a", b" href=/x", b'"', b"'", b">", b"<!--", b"-->", b"="]))
)
def test_the_size_of_the_pieces_does_not_matter(parts: list[bytes]) -> None:
    page = b"".join(parts)
    whole = rewritten(page, 1 << 20)
    assert rewritten(page, 1) == rewritten(page, 3) == whole
    assert whole.replace(P.encode(), b"") == page


def test_the_path_of_the_proxy_cannot_leave_its_attribute() -> None:
    base = LinkBase('/x"><script>', "b", "a")
    assert LinkRewriter(base).feed(b'<a href="/y">') == b'<a href="/x&quot;&gt;&lt;script&gt;/y">'


def test_a_tag_without_end_is_passed_on() -> None:
    rewriter = LinkRewriter(BASE)
    given = b'<a title="' + b"<a" * MOST_TAG
    passed = b"".join(rewriter.feed(given[at : at + 1000]) for at in range(0, len(given), 1000))
    assert len(given) - len(passed) <= MOST_TAG + 1000
    assert passed + rewriter.end() == given
