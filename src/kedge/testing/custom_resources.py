"""Definitions of custom resources in tests."""

from typing import Any, NoReturn


def no_webhook(definition: Any, forms: Any) -> NoReturn:
    """Stand in for the converters of definitions that have no webhook."""
    raise AssertionError("the definition has no conversion webhook")
