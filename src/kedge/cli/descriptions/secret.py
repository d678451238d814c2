"""Secret: what it holds by name and size, but never what it says."""

import base64
import binascii

from kedge.cli.descriptions import any_object
from kedge.cli.descriptions.parts import LAST_APPLIED, Fields, RelatedObjects


def describe(secret: Fields, about: RelatedObjects) -> str:
    metadata = dict(secret["metadata"])
    # An annotation of `kubectl apply` repeats the data; it is shown in no description anyway.
    metadata["annotations"] = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if key != LAST_APPLIED
    }
    data = {key: size(value) for key, value in (secret.get("data") or {}).items()}
    return any_object.describe({**secret, "metadata": metadata, "data": data}, about)


def size(encoded: str) -> str:
    try:
        return f"{len(base64.b64decode(encoded or ''))} bytes"
    except binascii.Error:
        return "<not base64>"
