"""A valid object of each kind that the cases start from."""

import copy
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from tests.differential.cases import NAMESPACE, Kind

_NAMES: Final = {
    "CustomResourceDefinition": "{plural}.example.com",
    "APIService": "v1.{name}.example.com",
    "IPAddress": "10.252.{range}.{number}",
    "RuntimeClass": "{name}",
}


@cache
def _samples() -> dict[str, Any]:
    text = Path(__file__).with_name("samples.yaml").read_text()
    samples: dict[str, Any] = yaml.safe_load(text)
    return samples


def has_sample(kind: Kind) -> bool:
    return kind.label in _samples()


def name(kind: Kind, wanted: str) -> str:
    """Return a name that the kind accepts; `wanted` may end with a number."""
    number = "".join(each for each in wanted if each.isdigit()) or "1"
    form = _NAMES.get(kind.name, "{name}")
    rest, last = divmod(int(number), 250)
    return form.format(name=wanted, plural=f"{wanted}s", number=last + 1, range=rest % 250)


def sample(kind: Kind, wanted: str = "base") -> dict[str, Any]:
    """Return a whole valid object."""
    content = copy.deepcopy(_samples()[kind.label])
    if kind.name == "CustomResourceDefinition":
        content["spec"]["names"] = {
            "plural": f"{wanted}s",
            "singular": wanted,
            "kind": wanted.capitalize(),
            "listKind": f"{wanted.capitalize()}List",
        }
    if kind.name == "ServiceCIDR" and wanted != "base":
        number = int("".join(each for each in wanted if each.isdigit()) or "1")
        content["spec"]["cidrs"] = [f"10.253.{number % 250}.0/24"]
    if kind.name == "APIService":
        content["spec"]["group"] = f"{wanted}.example.com"
    metadata = {"name": name(kind, wanted), "labels": {"of": wanted}}
    if kind.namespaced:
        metadata["namespace"] = NAMESPACE
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **content}
