"""YAML text to plain documents and back, as Kubernetes reads and writes it.

This is the only module that uses the YAML library, for the server, the commands, the client and
the node. It bounds the time and the depth of parsing for any text.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import yaml

from kedge.machinery.shape import integral
from kedge.machinery.short_cache import short_cache

MAX_DEPTH: Final = 100
"""How deeply a document may be nested; no schema comes near, and every later walk is recursive."""
MAX_NODES: Final = 1 << 18
"""How many values a document may have, those that aliases and merge keys repeat included.

A body of the largest size that the server takes (3 MiB) has fewer at twelve bytes per value."""
_MAX_TAG_DIRECTIVES: Final = 16
_MAX_DIGITS: Final = 400
"""More than any number that JSON's readers agree upon; conversion takes the square of them."""

_PARSER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = object()
"""Stands for the key `<<`, which no document can contain as a value."""


class YamlError(ValueError):
    """The text is not YAML, or not YAML that has a meaning in JSON, or too much of it."""


def read(data: bytes | str, *, depth: int = MAX_DEPTH) -> Any:
    """Return the document in the text; None if it is empty."""
    return read_strictly(data, depth=depth)[0]


def read_strictly(data: bytes | str, *, depth: int = MAX_DEPTH) -> tuple[Any, list[str]]:
    """Return the document, and a complaint for each key that stands in one mapping twice.

    PyYAML's own constructors are not used. Its composer (the C one too) recurses with the text, so
    100,000 brackets overflow the stack of the process; merge keys are expanded into lists of
    pairs before they can be counted, so a few hundred bytes fill the memory. Its events do
    neither: libyaml's parser keeps its states in a list of its own, and emits each event as soon
    as it has read it. So values are counted while the text is being read, and reading ends at
    the first event beyond a limit. (Without that libyaml alone takes 16 s for 100,000 brackets,
    since each token looks at every open bracket.)
    """
    text = _decoded(data)
    # Each directive is compared with all before it, before the first event is handed out.
    if len(_TAG_DIRECTIVES.findall(text)) > _MAX_TAG_DIRECTIVES:
        raise YamlError(f"more than {_MAX_TAG_DIRECTIVES} %TAG directives")
    composer = _Composer(depth)
    try:
        for event in yaml.parse(text, Loader=_PARSER):
            composer.take(event)
    except yaml.YAMLError as error:
        raise YamlError(_one_line(error)) from None
    return composer.document, composer.duplicates


def compose(text: str) -> yaml.Node | None:
    """Return the text as nodes, for callers that change a few values and keep the formatting.

    The composer recurses, which is safe because the depth was checked before.
    """
    read_strictly(text)
    root: yaml.Node | None = yaml.compose(text, Loader=_PARSER)
    return root


_TAG_DIRECTIVES: Final = re.compile(r"^%TAG", re.MULTILINE)


def _decoded(data: bytes | str) -> str:
    """Return the text of the bytes: UTF-8, or UTF-16 if a byte order mark says so, as in YAML."""
    if isinstance(data, str):
        return data
    utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        return data.decode("utf-16" if utf16 else "utf-8")
    except UnicodeDecodeError as error:
        raise YamlError(f"yaml: invalid text encoding: {error}") from None


def _one_line(error: yaml.YAMLError) -> str:
    """Return the error in the form of Go's library: `yaml: line 2: what is wrong`.

    Go's library does not name the first line, and gives the line before the one at which the parser
    (but not the scanner) stops.
    """
    if isinstance(error, yaml.reader.ReaderError):
        return f"yaml: {error.reason}"
    problem = getattr(error, "problem", None) or str(error)
    line = _mark_line(getattr(error, "problem_mark", None))
    if line and isinstance(error, yaml.scanner.ScannerError):
        line += 1
    line = line or _mark_line(getattr(error, "context_mark", None))
    return f"yaml: line {line}: {problem}" if line else f"yaml: {problem}"


def _mark_line(mark: yaml.Mark | None) -> int:
    return mark.line if mark else 0


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


class _Open:
    """A mapping or list that has begun and not ended."""

    __slots__ = ("anchor", "before", "depth", "keys", "merged", "pending", "value")

    def __init__(self, value: Any, anchor: str | None, before: int) -> None:
        self.value = value
        self.anchor = anchor
        self.before = before
        """How many values the document had before this one."""
        self.depth = 1
        """How deep the value is, itself included."""
        self.pending: Any = None
        """The key whose value comes next; None if a key comes next."""
        self.keys: set[str] | None = set() if type(value) is dict else None
        """The keys of a mapping that were written, not merged."""
        self.merged: list[Any] = []
        """The sources of merge keys, in order."""


class _Composer:
    """Makes a document of events, iteratively, within a budget of values."""

    def __init__(self, depth: int) -> None:
        self.document: Any = None
        self.duplicates: list[str] = []
        self._depth = depth
        self._count = 0
        self._documents = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int, int]] = {}
        """The value of each anchor, its number of values, and its depth."""

    def take(self, event: yaml.Event) -> None:
        match event:
            case yaml.ScalarEvent():
                self._spend(1)
                self._scalar(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._begin(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._end()
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise YamlError("yaml: expected a single document, but found another")

    def _spend(self, count: int) -> None:
        self._count += count
        if self._count > MAX_NODES:
            raise YamlError(
                f"yaml: document contains excessive aliasing or more than {MAX_NODES} values"
            )

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        if event.tag is None:
            value = resolved(event.value) if event.implicit[0] else event.value
            if value == "<<" and event.implicit[0] and self._awaits_key():
                self._open[-1].pending = _MERGE
                return
        else:
            value = _tagged(event.tag, event.value, _line(event))
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1, 0)
        self._place(value, 0, _line(event))

    def _awaits_key(self) -> bool:
        return (
            bool(self._open)
            and self._open[-1].keys is not None
            and (self._open[-1].pending is None)
        )

    def _begin(self, event: yaml.CollectionStartEvent) -> None:
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", f"{_TAG}{'map' if is_mapping else 'seq'}"):
            raise YamlError(f"yaml: line {_line(event)}: cannot represent {event.tag}")
        if self._awaits_key():
            line = _line(event)
            raise YamlError(f"yaml: line {line}: a mapping or a list cannot be a key")
        if len(self._open) >= self._depth:
            raise YamlError(f"yaml: exceeded max depth of {self._depth}")
        self._open.append(_Open({} if is_mapping else [], event.anchor, self._count))
        self._spend(1)

    def _end(self) -> None:
        ended = self._open.pop()
        value: Any = ended.value
        for source in ended.merged:
            # Pairs cost something even if the mapping has the key: a list may name a source often.
            self._spend(len(source))
            for key, inner in source.items():
                if key not in value:
                    # Counted with all that is in it: a merged value is a copy of its own.
                    value[key] = self._copied(inner, ended)
        if ended.anchor is not None:
            self._anchors[ended.anchor] = (value, self._count - ended.before, ended.depth)
        self._place(value, ended.depth, 0)

    def _alias(self, event: yaml.AliasEvent) -> None:
        line = _line(event)
        known = self._anchors.get(event.anchor or "")
        if known is None:
            if any(each.anchor == event.anchor for each in self._open):
                raise YamlError(f"yaml: anchor '{event.anchor}' value contains itself")
            raise YamlError(f"yaml: unknown anchor '{event.anchor}' referenced")
        value, count, depth = known
        if (self._open and self._open[-1].pending is _MERGE) or self._is_in_merge_list():
            # Only read, at the end of the mapping; what it adds is counted there.
            self._spend(1)
            self._place(value, 0, line)
            return
        if len(self._open) + depth > self._depth:
            raise YamlError(f"yaml: exceeded max depth of {self._depth}")
        self._spend(count)
        self._place(_copy(value), depth, line)

    def _is_in_merge_list(self) -> bool:
        return (
            len(self._open) > 1 and self._open[-1].keys is None and self._open[-2].pending is _MERGE
        )

    def _copied(self, value: Any, holder: _Open) -> Any:
        if type(value) is not dict and type(value) is not list:
            return value
        depth = _depth_of(value)
        if len(self._open) + 1 + depth > self._depth:
            raise YamlError(f"yaml: exceeded max depth of {self._depth}")
        holder.depth = max(holder.depth, 1 + depth)
        self._spend(_size_of(value, MAX_NODES - self._count))
        return _copy(value)

    def _place(self, value: Any, depth: int, line: int) -> None:
        """Add a complete value of this depth to its parent."""
        if not self._open:
            self.document = value
            return
        holder = self._open[-1]
        if depth >= holder.depth and holder.pending is not _MERGE:
            holder.depth = depth + 1
        if holder.keys is None:
            holder.value.append(value)
        elif holder.pending is None:
            key = _key(value)
            if key in holder.keys:
                name = json.dumps(key, ensure_ascii=False)
                self.duplicates.append(f"line {line}: key {name} already set in map")
            holder.keys.add(key)
            holder.pending = key
        elif holder.pending is _MERGE:
            holder.merged += _merge_sources(value)
            holder.pending = None
        else:
            holder.value[holder.pending] = value
            holder.pending = None


def _merge_sources(value: Any) -> list[dict[str, Any]]:
    sources = value if type(value) is list else [value]
    if not all(type(source) is dict for source in sources):
        raise YamlError("yaml: map merge requires map or sequence of maps as the value")
    return sources


# The values here are at most MAX_DEPTH deep, so these may recurse.


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy(inner) for key, inner in value.items()}
    if type(value) is list:
        return [_copy(inner) for inner in value]
    return value


def _depth_of(value: Any) -> int:
    if type(value) is not dict and type(value) is not list:
        return 0
    inner = value.values() if type(value) is dict else value
    return 1 + max(map(_depth_of, inner), default=0)


def _size_of(value: Any, most: int) -> int:
    """Return how many values there are in one; about `most` if there are more."""
    count, waiting = 0, [value]
    while waiting and count <= most:
        count += 1
        inner = waiting.pop()
        if type(inner) is dict:
            waiting += inner.values()
        elif type(inner) is list:
            waiting += inner
    return count


# Scalars. The rules are those of the YAML library of Kubernetes (goyaml.v2 in sigs.k8s.io/yaml):
# YAML 1.1, but numbers of base 60 are text, and so are times, which JSON does not know.

_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE"), True),
    **dict.fromkeys(("on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE"), False),
    **dict.fromkeys(("off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_INTEGER: Final = re.compile(r"[-+]?(0b[01]+|0o[0-7]+|0[0-7]*|[1-9][0-9]*|0x[0-9a-fA-F]+)")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_NUMERIC_STARTS: Final = frozenset("+-.0123456789")


def resolved(text: str) -> Any:
    """Return the value of a plain scalar."""
    if text[:1] not in _NUMERIC_STARTS:
        return _WORDS.get(text, text)
    digits = text.replace("_", "") if text[0] != "." else text
    if _INTEGER.fullmatch(digits):
        return _integer(digits)
    if _FLOAT.fullmatch(digits):
        return _finite(digits)
    if _NOT_FINITE.fullmatch(text):
        raise YamlError(f"unsupported value: {text}")
    return text


def _integer(digits: str) -> int | float:
    _check_length(digits)
    sign = -1 if digits.startswith("-") else 1
    bare = digits.lstrip("+-")
    if bare[:2] in ("0b", "0o", "0x"):
        number = int(bare, 0)
    else:
        number = int(bare, 8 if bare.startswith("0") else 10)
    return sign * number


def _finite(digits: str) -> float:
    _check_length(digits)
    number = float(digits)
    if not math.isfinite(number):
        raise YamlError(f"unsupported value: {digits[:40]}")
    # As JSON, which YAML is converted to, 2.0 is the integer 2.
    return integral(number)


def _check_length(digits: str) -> None:
    if len(digits) > _MAX_DIGITS:
        raise YamlError(f"a number of {len(digits)} digits is out of range")


def _tagged(tag: str, text: str, line: int) -> Any:
    """Return the value of a scalar with an explicit tag."""
    name = tag.removeprefix(_TAG)
    if tag == "!" or name == "str":
        return text
    kinds: dict[str, Any] = {"null": type(None), "bool": bool, "int": int, "float": (int, float)}
    if name not in kinds or tag == name:
        raise YamlError(f"yaml: line {line}: cannot represent {tag}")
    value = resolved(text)
    if not isinstance(value, kinds[name]) or (type(value) is bool and name != "bool"):
        raise YamlError(f"yaml: line {line}: cannot decode {text[:40]!r} as a !!{name}")
    return float(value) if name == "float" else value


def _key(value: Any) -> str:
    match value:
        case str():
            return value
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


# Writing. PyYAML needs 4 s for 1 MB: it looks at each character of each scalar four times, and asks
# about twenty expressions what a scalar would be taken for. Here a scalar costs one expression.


def write(document: Any, *, sort: bool = True) -> str:
    """Return the document as YAML, as kubectl prints it."""
    return "".join(pieces(document, sort=sort))


def pieces(document: Any, *, sort: bool = True) -> Iterator[str]:
    """Yield the document's lines, a few at a time."""
    if not document or not isinstance(document, dict | list):
        yield f"{_scalar(document, 0, 0)}\n"
    else:
        yield from _lines(document, "", sort, "")


def _lines(value: Any, indent: str, sort: bool, first: str) -> Iterator[str]:
    """Yield a mapping or list at this indentation; `first` stands before its first line instead."""
    lead = first or indent
    if isinstance(value, dict):
        items: Iterable[tuple[str, Any]] = sorted(value.items()) if sort else value.items()
        for key, inner in items:
            text = _key_text(key)
            if len(text) > _MAX_SIMPLE_KEY:
                yield f"{lead}? {text}\n"
                lead, text = indent, ""
            yield from _member(f"{lead}{text}:", inner, indent, sort)
            lead = indent
        return
    for inner in value:
        if inner and isinstance(inner, dict | list):
            yield from _lines(inner, f"{indent}  ", sort, f"{lead}- ")
        else:
            yield f"{lead}- {_scalar(inner, len(indent) + 2, len(lead) + 2)}\n"
        lead = indent


def _member(head: str, inner: Any, indent: str, sort: bool) -> Iterator[str]:
    if inner and isinstance(inner, dict):
        yield f"{head}\n"
        yield from _lines(inner, f"{indent}  ", sort, "")
    elif inner and isinstance(inner, list):
        # Lists stand as far to the left as the key that they belong to.
        yield f"{head}\n"
        yield from _lines(inner, indent, sort, "")
    else:
        yield f"{head} {_scalar(inner, len(indent) + 2, len(head) + 1)}\n"


def _scalar(value: Any, indent: int, column: int) -> str:
    """Return a value that begins at a column; further lines of it begin at the indentation."""
    match value:
        case str():
            text = _text(value, indent)
            is_long = column + len(text) > _WIDTH and " " in text and "\n" not in text
            return _folded(text, indent, column) if is_long else text
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _float(value)
        case Mapping():
            return "{}"
        case list() | tuple():
            return "[]"
        case _:
            raise TypeError(f"cannot represent {type(value).__name__}")


def _folded(text: str, indent: int, column: int) -> str:
    """Break a long line at its blanks, where libyaml and Go's port of it break it: at the first
    single blank beyond the width. Readers make one blank of the break again."""
    style, margin = text[0], "\n" + " " * indent
    first, last = (1, len(text) - 2) if style in "'\"" else (-1, -1)
    folded, start, at = "", 0, 0
    while (at := text.find(" ", max(at, start + _WIDTH + 1 - column))) >= 0:
        is_followed = text[at + 1 : at + 2] == " "
        if text[at - 1] != " " and at not in (first, last) and (style == '"' or not is_followed):
            # A blank at the beginning of a line would be lost, so it is escaped.
            folded += text[start:at] + margin + ("\\" if is_followed else "")
            start, column = at + 1, indent + is_followed
        at += 1
    return folded + text[start:]


def _float(value: float) -> str:
    text = repr(value)
    # Readers of YAML 1.1 take 1e+16 for text.
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


_WIDTH: Final = 80
"""Columns beyond which long text is broken."""
_MAX_SIMPLE_KEY: Final = 128
"""Readers look only so far for the colon that makes a text a key."""
_PRINTABLE: Final = r" !-~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd"
_BLOCK: Final = re.compile(rf"(?:[{_PRINTABLE}]*\n)*[{_PRINTABLE}]*")
_PLAIN: Final = re.compile(
    # The first character begins nothing else;
    rf"(?!---|\.\.\.|[-?:](?:[ ]|$))[^{re.escape(' #,[]{}&*!|>%@`')}'\"]"
    # a colon ends no key, and a hash begins no comment.
    r"(?:(?<! )#|:(?! |$)|[ ]|[^ #:])*"
)
_ONLY_PRINTABLE: Final = re.compile(rf"[{_PRINTABLE}]*")
_UNPRINTABLE: Final = re.compile(r"[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]")
_LIKE_NUMBER: Final = re.compile(
    r"[-+]?([0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|(?!\.$)[0-9_.]+)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"
)
"""Numbers of base 60 and times: text to this reader, and not to others."""


@short_cache(4096)
def _key_text(key: str) -> str:
    return _text(key, 0) if "\n" not in key else _quoted(key)


def _text(value: str, indent: int) -> str:
    if "\n" in value:
        return _block(value, indent) if _fits_block(value) else _quoted(value)
    if not value or value in _WORDS or value in ("<<", "="):
        return _quoted(value)
    if value[0] in _NUMERIC_STARTS and _is_like_a_number(value):
        return _quoted(value)
    if not _ONLY_PRINTABLE.fullmatch(value):
        return _quoted(value)
    if value[0] != " " and value[-1] != " " and _PLAIN.fullmatch(value):
        return value
    return "'" + value.replace("'", "''") + "'"


def _is_like_a_number(value: str) -> bool:
    if _LIKE_NUMBER.fullmatch(value):
        return True
    try:
        return type(resolved(value)) is not str
    except YamlError:
        return True


def _fits_block(value: str) -> bool:
    return " \n" not in value and value[-1] != " " and _BLOCK.fullmatch(value) is not None


def _block(value: str, indent: int) -> str:
    """Return lines of text as lines."""
    hint = "2" if value[0] in " \n" else ""
    if not value.endswith("\n"):
        hint += "-"
    elif value == "\n" or value.endswith("\n\n"):
        hint += "+"
    margin = " " * max(indent, 2)
    lines = value.removesuffix("\n").split("\n")
    return f"|{hint}\n" + "\n".join(f"{margin}{line}" if line else "" for line in lines)


def _quoted(value: str) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
