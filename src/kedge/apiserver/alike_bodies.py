"""AlikeBodies: keeps bodies of alike objects without the parts that are the same in all of them.

The pods of one Deployment differ in their names, addresses and times: 0.4 to 1.1 of 5 KB. An object
is shortened when it has not changed for a while, once, which takes about as long as to decode it;
to make the body again is one join of bytes, and takes a fraction of a microsecond.
"""

from typing import Final

import msgspec

SEPARATOR: Final = b',"'
"""Bodies are compared piece by piece. Finer pieces save a little more, and take three times as
long to compare."""
LEAST: Final = 512
"""Shorter bodies are kept as they are: a shortened one is an object more."""
MOST: Final = 32 << 10
"""Longer bodies are kept as they are: to compare them takes long."""
MOST_PIECES: Final = 2 << 10
"""Bodies of more pieces are kept as they are, for the same reason: one can have ten thousand."""
MOST_OWN: Final = 0.6
"""The share of a body that may be its own; a shortened one with more saves too little."""
USES: Final = 256
"""How many objects are compared with one of them. The next ones are compared with a later one,
whose times are closer to theirs."""
FORMS: Final = 16
"""The different sets of pieces in which objects may differ from one; each takes as much memory as a
body."""
FAMILIES: Final = 4 << 10
"""Families whose last example is known."""
MOST_BYTES: Final = 32 << 20
"""How large the examples may be together, with the sets of pieces. Most of them are parts of
objects that are kept anyway, but a tenant may delete its objects."""
PLACE_BYTES: Final = 96
"""Memory of a place in a set of pieces: a number, the part before the piece, and references."""


class SharedForm(msgspec.Struct, frozen=True, gc=False):
    """The equal parts of bodies that differ in the same places."""

    parts: tuple[bytes, ...]
    """The shared parts; every second one is empty, for a piece of the body's own."""
    size: int
    """How many bytes they have together."""


class ShortBody(msgspec.Struct, frozen=True, gc=False):
    """A body without what it shares with others."""

    own: bytes
    """The own pieces, with a NUL between them: JSON has none."""
    form: SharedForm

    @property
    def size(self) -> int:
        """How many bytes the body has, or a few more."""
        return len(self.own) + self.form.size

    def whole(self) -> bytes:
        """Return the body."""
        # Not by a format: it is parsed each time, and its result grows step by step.
        parts = list(self.form.parts)
        parts[1::2] = self.own.split(b"\0")
        return b"".join(parts)


class _Example:
    """The body with which those of a family are compared."""

    __slots__ = ("body", "forms", "size", "uses")

    def __init__(self, body: bytes) -> None:
        # Not its pieces: they take more memory, and the body is that of a kept object.
        self.body = body
        self.uses = 0
        self.forms: dict[tuple[int, ...], SharedForm | None] = {}
        """By the places of the pieces that differ."""
        self.size = len(body)
        """Bytes that it keeps."""

    def keep(self, places: tuple[int, ...], form: SharedForm | None) -> SharedForm | None:
        self.forms[places] = form
        self.size += PLACE_BYTES * len(places) + (0 if form is None else form.size)
        return form


class AlikeBodies:
    """Remembers an example of each family: objects that one owner has named after itself."""

    def __init__(self) -> None:
        self._examples: dict[tuple[str, int], _Example] = {}
        self._size = 0
        """Bytes that the examples keep."""

    def shortened(self, key: str, body: bytes) -> ShortBody | None:
        """Return a body without what it shares with others of its family; None if that saves too
        little, or if it is the first of them."""
        if not LEAST <= len(body) <= MOST:
            return None
        pieces = body.split(SEPARATOR)
        if len(pieces) > MOST_PIECES:
            return None
        family = key.rpartition("-")[0], len(pieces)
        example = self._examples.pop(family, None)
        if example is not None:
            self._size -= example.size
        if example is None or example.uses >= USES or len(example.forms) >= FORMS:
            self._remember(family, _Example(body))
            return None
        short = _compared(body, pieces, example)
        self._remember(family, example)
        return short

    def _remember(self, family: tuple[str, int], example: _Example) -> None:
        """As the latest: the one that was not used for longest is forgotten first."""
        self._examples[family] = example
        self._size += example.size
        while len(self._examples) > FAMILIES or self._size > MOST_BYTES:
            self._size -= self._examples.pop(next(iter(self._examples))).size


def _compared(body: bytes, pieces: list[bytes], example: _Example) -> ShortBody | None:
    example.uses += 1
    others = example.body.split(SEPARATOR)
    pairs = enumerate(zip(pieces, others, strict=True))
    places = tuple([place for place, (piece, other) in pairs if piece != other])
    own = b"\0".join([pieces[place] for place in places])
    # Without own pieces it is the body of the same object. One of another program may have a NUL.
    is_separable = own.count(b"\0") == len(places) - 1
    if not places or not is_separable or len(own) > MOST_OWN * len(body):
        return None
    if places in example.forms:
        form = example.forms[places]
    else:
        form = example.keep(places, _form(others, places))
    return None if form is None else ShortBody(own, form)


def _form(pieces: list[bytes], places: tuple[int, ...]) -> SharedForm | None:
    """Return the texts between the places; None if one of them has a NUL itself."""
    for place in places:
        pieces[place] = b"\0"
    texts = SEPARATOR.join(pieces).split(b"\0")
    if len(texts) != len(places) + 1:
        return None  # another program has stored a NUL
    parts = [b""] * (2 * len(places) + 1)
    parts[::2] = texts
    return SharedForm(tuple(parts), sum(map(len, texts)))
