"""What specs of containers have in common."""

import json
from typing import Any, cast

from kedge.supervisor.alike_specs import _MOST, AlikeSpecs, with_shared_names
from kedge.supervisor.spec import ContainerSpec


def decoded(**parts: Any) -> ContainerSpec:
    """A spec as it comes out of a message."""
    whole = {
        "lowers": [],
        "hidden": ["/a", "/b"],
        "concealed": ["/c"],
        "shown": [],
        "seccomp": "IAAA AAQA",
        "env": ["PASSWORD=secret text"],
        "binds": [{"source": "/s", "target": "/t"}],
    }
    return cast(ContainerSpec, json.loads(json.dumps(whole | parts)))


def test_equal_parts_are_one_object() -> None:
    alike, first, second, other = AlikeSpecs(), decoded(), decoded(), decoded(hidden=["/z"])
    for each in (first, second, other):
        alike.share(each)
    assert second == decoded()
    for name in ("hidden", "concealed", "seccomp"):
        assert second[name] is first[name]
    assert other["hidden"] == ["/z"]
    assert other["concealed"] is first["concealed"]


def test_secrets_are_not_remembered() -> None:
    alike, first, second = AlikeSpecs(), decoded(), decoded()
    alike.share(first)
    alike.share(second)
    assert second["env"] is not first["env"]
    assert "secret text" not in repr(vars(alike))


def test_what_is_remembered_is_bounded() -> None:
    alike = AlikeSpecs()
    for number in range(3 * _MOST):
        spec = decoded(hidden=[f"/{number}"])
        alike.share(spec)
        assert spec["hidden"] == [f"/{number}"]
    assert len(alike._known) <= _MOST


def test_names_are_one_object_in_all_messages() -> None:
    first, second = with_shared_names(decoded()), with_shared_names(decoded())
    assert second == decoded()
    names = [sorted([*each, *each["binds"][0]]) for each in (first, second)]
    assert all(one is other for one, other in zip(*names, strict=True))
