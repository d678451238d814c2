"""Validation of the conversion webhook of a CustomResourceDefinition.

Upstream validates an internal form of the definition, whose paths the messages name.
"""

from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kedge.api.apiextensions_v1.definition import (
    CustomResourceDefinition,
    WebhookClientConfig,
    WebhookConversion,
    is_established,
)
from kedge.api.builtin.webhooks import client_config_errors, review_version_errors
from kedge.machinery.errors import FieldError

_CLIENT: Final = "spec.conversion.webhookClientConfig"
_VERSIONS: Final = "spec.conversion.conversionReviewVersions"


def conversion_errors(webhook: WebhookConversion) -> Iterator[FieldError]:
    """Yield the errors of a webhook that is in use."""
    client = webhook.clientConfig
    if client is None:
        yield FieldError.required(_CLIENT, "required when strategy is set to Webhook")
    else:
        yield from client_config_errors(_written(client), _CLIENT)
    yield from review_version_errors(webhook.conversionReviewVersions, _VERSIONS)


def _written(client: WebhookClientConfig) -> dict[str, Any]:
    """Return the fields that are written, which an empty one is, too."""
    given: dict[str, Any] = msgspec.to_builtins(client)
    return {name: value for name, value in given.items() if value is not None}


def bundle_errors(
    new: CustomResourceDefinition, old: CustomResourceDefinition
) -> Iterator[FieldError]:
    """Yield the error of a bundle that is no certificate. One that was wrong before may stay.
    Until the kind is served any may: tools write the certificate after the definition."""
    bundle = _bundle(new)
    if not bundle or not is_established(old):
        return
    before = _bundle(old)
    if _fault(bundle) and not (before and _fault(before)):
        yield FieldError.invalid(f"{_CLIENT}.caBundle", bundle, _fault(bundle))


def _bundle(crd: CustomResourceDefinition) -> str:
    conversion = crd.spec.conversion
    if conversion is None or conversion.strategy != "Webhook" or conversion.webhook is None:
        return ""
    client = conversion.webhook.clientConfig
    return client.caBundle if client is not None else ""


def _fault(bundle: str) -> str:
    """Return why a bundle is no certificate; empty if it is one."""
    import ssl  # few definitions have a bundle, and clients read this module, too

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=b64decode(bundle).decode())
    except (ssl.SSLError, ValueError):
        return "unable to load root certificates: unable to parse bytes as PEM block"
    return ""
