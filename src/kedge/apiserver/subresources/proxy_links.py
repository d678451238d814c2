"""Links in what a proxied server answers: redirects and HTML are moved below the proxy's path."""

import re
from typing import Final

import msgspec

MOST_TAG: Final = 8 << 10
"""Bytes of one tag. A longer one is passed on unchanged: it would have to be kept in memory."""

_URL: Final = re.compile(r"(?:([a-zA-Z][a-zA-Z0-9+.-]*+):)?(?://([^/?#]*+))?([^?#]*+)(.*+)", re.S)

_LINKS: Final = {
    b"a": (b"href",),
    b"applet": (b"codebase",),
    b"area": (b"href",),
    b"audio": (b"src",),
    b"base": (b"href",),
    b"blockquote": (b"cite",),
    b"body": (b"background",),
    b"button": (b"formaction",),
    b"command": (b"icon",),
    b"del": (b"cite",),
    b"embed": (b"src",),
    b"form": (b"action",),
    b"frame": (b"longdesc", b"src"),
    b"head": (b"profile",),
    b"html": (b"manifest",),
    b"iframe": (b"longdesc", b"src"),
    b"img": (b"longdesc", b"src", b"usemap"),
    b"input": (b"src", b"usemap", b"formaction"),
    b"ins": (b"cite",),
    b"link": (b"href",),
    b"object": (b"classid", b"codebase", b"data", b"usemap"),
    b"q": (b"cite",),
    b"script": (b"src",),
    b"source": (b"src",),
    b"video": (b"poster", b"src"),
}
"""The elements and attributes that hold URLs, as upstream lists them."""
_RAW: Final = frozenset(
    (b"iframe", b"noembed", b"noframes", b"script", b"style", b"textarea", b"title", b"xmp")
)
"""Elements whose content is text, whatever it looks like."""

# A tag of any length is matched in linear time: every quantifier is possessive.
_START: Final = re.compile(rb"<([a-zA-Z][^\s/>]*+)")
_ATTRIBUTE: Final = re.compile(
    rb"""[\s/]*+([^\s/>=]*+)(\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>"'][^\s>]*+)|(?=>)))?+"""
)
_TAG: Final = re.compile(
    rb"""<[a-zA-Z][^\s/>]*+(?:[\s/]++|[^\s/>=]++|=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+|(?=>)))*+>"""
)
_RAW_ENDS: Final = {name: re.compile(rb"</" + name + rb"(?=[\s/>])", re.I) for name in _RAW}


class LinkBase(msgspec.Struct, frozen=True):
    """The URLs at which a proxied server is known."""

    prefix: str
    """The path of the proxy, without a slash at its end."""
    backend: str
    """Host and port of the server."""
    asked: str
    """The Host header of the request."""

    def moved(self, link: str) -> str:
        """Return a URL as the client has to ask for it. Relative paths and URLs of other hosts
        stay as they are."""
        found = _URL.fullmatch(link)
        if found is None:
            return link
        scheme, host, path, rest = found.groups(default="")
        has_host = found[2] is not None
        if (has_host and host not in (self.backend, self.asked)) or not path.startswith("/"):
            return link
        if scheme and not has_host:
            return link
        start = f"{scheme}:" if scheme else ""
        kept = f"{start}//{host}" if has_host and host == self.asked != self.backend else ""
        below = "" if path.startswith(self.prefix) else self.prefix
        return f"{kept}{below}{path}{rest}"


class LinkRewriter:
    """Rewrites the links of an HTML page that arrives in pieces. Everything but the values of
    link attributes stays as it is, byte for byte."""

    def __init__(self, base: LinkBase) -> None:
        self._base = base
        self._rest = b""
        """Bytes whose meaning depends on the next piece; never more than MOST_TAG."""
        self._end: re.Pattern[bytes] | None = None
        """The end of the comment or of the text that is passed on unchanged."""

    def feed(self, piece: bytes) -> bytes:
        """Return what can be passed on now."""
        page, self._rest = self._rest + piece, b""
        done: list[bytes] = []
        at = 0
        while at < len(page):
            at = self._skip(page, at, done) if self._end else self._next(page, at, done)
        return b"".join(done)

    def end(self) -> bytes:
        """Return the rest, after the last piece."""
        return self._rest

    def _keep(self, page: bytes, at: int) -> int:
        self._rest = page[at:]
        return len(page)

    def _skip(self, page: bytes, at: int, done: list[bytes]) -> int:
        """Pass on text up to its end."""
        assert self._end is not None
        found = self._end.search(page, at)
        if found is not None:
            self._end = None
            done.append(page[at : found.end()])
            return found.end()
        # The end may be cut in two: the longest is `</textarea` and a character.
        safe = max(at, len(page) - 12)
        done.append(page[at:safe])
        return self._keep(page, safe)

    def _next(self, page: bytes, at: int, done: list[bytes]) -> int:
        """Pass on text up to the next tag, and the tag."""
        start = page.find(b"<", at)
        if start < 0:
            done.append(page[at:])
            return len(page)
        done.append(page[at:start])
        if page.startswith(b"<!--", start):
            self._end = _COMMENT_END
            # `<!-->` is a whole comment.
            done.append(page[start : start + 2])
            return start + 2
        tag = _TAG.match(page, start)
        if tag is not None:
            done.append(self._tag(tag[0]))
            return tag.end()
        left = len(page) - start
        if left >= 4 and not page[start + 1 : start + 2].isalpha():
            done.append(b"<")
            return start + 1
        if left <= MOST_TAG:
            return self._keep(page, start)
        # All of it: to look for tags from every `<` on would take quadratic time.
        done.append(page[start:])
        return len(page)

    def _tag(self, tag: bytes) -> bytes:
        start = _START.match(tag)
        assert start is not None
        name = start[1].lower()
        if name in _RAW:
            self._end = _RAW_ENDS[name]
        links = _LINKS.get(name)
        return tag if links is None else self._moved(tag, start.end(), links)

    def _moved(self, tag: bytes, at: int, links: tuple[bytes, ...]) -> bytes:
        """Return a tag with its links rewritten."""
        done = [tag[:at]]
        while at < len(tag) - 1:
            found = _ATTRIBUTE.match(tag, at)
            if found is None or found.end() == at:
                break
            value = next((group for group in (3, 4, 5) if found[group] is not None), 0)
            if value and found[1].lower() in links:
                done += (tag[at : found.start(value)], self._value(found[value]))
                at = found.end(value)
            done.append(tag[at : found.end()])
            at = found.end()
        return b"".join((*done, tag[at:]))

    def _value(self, value: bytes) -> bytes:
        """Return the value of an attribute. Its characters stay escaped as they are: only the
        beginning changes."""
        link = value.decode("latin-1")
        moved = self._base.moved(link)
        if moved == link:
            return value
        # Not above: its table of entities takes 350 KB.
        from html import escape

        path = _URL.fullmatch(link)
        kept = len(path[3] + path[4]) if path is not None else 0
        return escape(moved[: len(moved) - kept]).encode("latin-1", "replace") + value[-kept:]


_COMMENT_END: Final = re.compile(rb"--!?>")
