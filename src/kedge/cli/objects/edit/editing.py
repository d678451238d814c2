"""Let a person change an object, and write the result."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kedge.cli.failure import Failure
from kedge.cli.objects.complaints import complaint
from kedge.cli.objects.connection import FIELD_MANAGER, ApiSession, document_in
from kedge.cli.objects.targets import ObjectTarget, kind_of
from kedge.cli.output import outputs
from kedge.client.client import path_of
from kedge.machinery import yaml_text
from kedge.machinery.errors import StatusError

_HEAD = """\
# Please edit the object below. Lines beginning with a '#' will be ignored,
# and an empty file will abort the edit. If an error occurs while saving this file will be
# reopened with the relevant failures.
#
"""


async def edit(there: ApiSession, words: Sequence[str], editor: str) -> int:
    """Edit each object in turn."""
    for target in await there.targets(words):
        if not target.name:
            plural = target.resource.plural
            raise Failure(f"name one of the {plural}, as in {plural}/NAME")
        await _edit(there, target, editor)
    return 0


async def _edit(there: ApiSession, target: ObjectTarget, editor: str) -> None:
    """Open the editor until the server takes the text, or the person leaves it as it is."""
    namespace = there.within(target.resource)
    # Whole, with nulls: they mean something in custom resources, and the text is written back.
    reply = await there.client.send("GET", path_of(target.resource, namespace, target.name))
    before = document_in(reply.body)
    first = outputs.yaml_text(outputs.without_managers(before)) + "\n"
    shown, reason = first, ""
    said = f"{kind_of(target.resource)}/{target.name}"
    while True:
        text = edited(editor, _HEAD + _commented(reason) + shown)
        body = without_comments(text)
        if not body.strip() or body == first:
            print("Edit cancelled, no changes made.")
            return
        if body == shown and reason:
            raise Failure(f"{said} was not changed: {reason}; the text is in {_kept(text)}")
        shown = body
        try:
            document = parsed(body)
            _check_same(before, document)
            await there.client.send(
                "PUT",
                path_of(target.resource, namespace, target.name),
                {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"},
                body=msgspec.json.encode(document),
            )
        except StatusError as error:
            reason = complaint(error)
        except ValueError as error:
            reason = str(error)
        else:
            print(f"{said} edited")
            return


def edited(editor: str, text: str) -> str:
    """Return the text after a person has edited it."""
    with tempfile.TemporaryDirectory(prefix="kedge-edit-") as place:
        file = Path(place) / "object.yaml"
        file.write_text(text)
        try:
            code = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
        except OSError as error:
            raise Failure(
                f"there was a problem with the editor {editor!r}: {error.strerror}: set KUBE_EDITOR"
                " or EDITOR to another one"
            ) from error
        if code:
            raise Failure(f"the editor {editor!r} ended with exit code {code}: nothing was changed")
        return file.read_text()


def without_comments(text: str) -> str:
    """Return the text without lines that begin with #."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#"))


def parsed(text: str) -> dict[str, Any]:
    """Return the document of a text; raises ValueError."""
    try:
        document = yaml_text.read(text)
    except ValueError as error:
        raise ValueError(f"the text is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise ValueError("the text is not an object")
    return document


def _check_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Refuse another kind or name: that would write to another object."""
    for field in ("apiVersion", "kind"):
        if before.get(field) != after.get(field):
            raise ValueError(f"{field} cannot be changed")
    for field in ("name", "namespace"):
        if before["metadata"].get(field) != (after.get("metadata") or {}).get(field):
            raise ValueError(f"metadata.{field} cannot be changed")


def _commented(reason: str) -> str:
    return "".join(f"# {line}\n" for line in reason.splitlines()) + ("#\n" if reason else "")


def _kept(text: str) -> str:
    """Keep a text that was not written, for the person to use again."""
    descriptor, path = tempfile.mkstemp(prefix="kedge-edit-", suffix=".yaml")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    return path
