"""Manifests: the objects written down in files, in directories and on standard input."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from kedge.apiserver.body import JSON_FAULT, Body, read_json, read_yaml
from kedge.cli.failure import Failure
from kedge.machinery.errors import StatusError

SUFFIXES: Final = (".json", ".yaml", ".yml")
"""Which files of a directory are read."""


class Manifest(NamedTuple):
    """An object as it was written down."""

    document: dict[str, Any]
    source: str
    """Where it was."""

    @property
    def kind(self) -> str:
        return str(self.document["kind"])

    @property
    def api_version(self) -> str:
        return str(self.document["apiVersion"])

    @property
    def name(self) -> str:
        return str(_metadata(self.document).get("name") or "")

    @property
    def namespace(self) -> str:
        return str(_metadata(self.document).get("namespace") or "")


def read(names: Iterable[str], stdin: TextIO, *, recursive: bool = False) -> list[Manifest]:
    """All objects in the files and directories; `-` is standard input."""
    found = [
        manifest
        for name in names
        for path in _files(name, recursive=recursive)
        for manifest in parse(_text(path, stdin), "STDIN" if path == "-" else path)
    ]
    if not found:
        raise Failure("no objects passed: the files hold none")
    return found


def parse(text: str, source: str) -> Iterator[Manifest]:
    """The objects of one text, those of lists included; Failure if one of them is no object."""
    for number, body in enumerate(_bodies(text, source), start=1):
        where = f"{source}: document {number}" if number > 1 else source
        if body.duplicates:
            raise Failure(f"{where}: {', '.join(body.duplicates)}")
        yield from _objects(body.document, source, where)


def _objects(document: dict[str, Any], source: str, where: str) -> Iterator[Manifest]:
    for key in ("apiVersion", "kind"):
        if not isinstance(document.get(key), str) or not document[key]:
            raise Failure(f"{where}: {key} not set")
    items = document.get("items")
    if document["kind"].endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            if not isinstance(item, dict):
                raise Failure(f"{where}: items[{index}] is no object")
            yield from _objects(item, source, f"{where}: items[{index}]")
        return
    if not isinstance(document.get("metadata", {}), dict | None):
        raise Failure(f"{where}: metadata is no mapping")
    yield Manifest(document, source)


def _metadata(document: dict[str, Any]) -> dict[str, Any]:
    return document.get("metadata") or {}


def _bodies(text: str, source: str) -> Iterator[Body]:
    try:
        if text.lstrip().startswith("{") and (several := _json_documents(text)):
            yield from (read_json(each.encode()) for each in several)
        else:
            yield from (read_yaml(each.encode()) for each in yaml_documents(text))
    except StatusError as error:
        raise Failure(f"error parsing {source}: {_kubectl_message(error.message)}") from error


def _kubectl_message(message: str) -> str:
    """Return a message of the server about a document as kubectl words it."""
    if message.startswith("yaml: "):
        return f"error converting YAML to JSON: {message}"
    if message.startswith(JSON_FAULT):
        found = message.removeprefix(JSON_FAULT).partition(" into Go value")[0]
        return (
            f"error unmarshaling JSON: while decoding JSON: {found} into Go value of type"
            " map[string]interface {}"
        )
    return message


def _json_documents(text: str) -> list[str]:
    """The JSON documents that follow each other; none if it is something else, such as YAML."""
    decoder = json.JSONDecoder()
    found: list[str] = []
    position = 0
    while rest := text[position:].lstrip():
        begin = len(text) - len(rest)
        try:
            _, position = decoder.raw_decode(text, begin)
        except ValueError:
            return []
        found.append(text[begin:position])
    return found


def yaml_documents(text: str) -> Iterator[str]:
    """The documents between lines that begin with three dashes; empty ones are left out."""
    lines: list[str] = []
    for line in [*text.splitlines(keepends=True), "---"]:
        if not line.startswith("---"):
            lines.append(line)
            continue
        if any(each.strip() and not each.lstrip().startswith("#") for each in lines):
            yield "".join(lines)
        rest = line[3:]
        lines = [rest] if rest.strip() else []


def _files(name: str, *, recursive: bool) -> Iterator[str]:
    if name == "-":
        yield name
    elif name.startswith(("http://", "https://")):
        raise Failure(f"{name} is not a file: download it, and give the file with -f")
    elif not Path(name).is_dir():
        yield name
    else:
        yield from _files_below(name, recursive=recursive)


def _files_below(directory: str, *, recursive: bool) -> Iterator[str]:
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        if entry.is_dir() and recursive:
            yield from _files_below(entry.path, recursive=True)
        elif entry.is_file() and entry.name.endswith(SUFFIXES):
            yield entry.path


def _text(path: str, stdin: TextIO) -> str:
    try:
        return stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Failure(f"cannot read {path}: it is not UTF-8") from error
