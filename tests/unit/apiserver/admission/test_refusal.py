"""The error of a plugin that refuses a write."""

import pytest

from kedge.api.core_v1 import config_map
from kedge.api.core_v1.config_map import ConfigMap
from kedge.api.model import ObjectMeta
from kedge.apiserver.admission.refusal import refused
from kedge.testing.admission import attempt


@pytest.mark.parametrize(("name", "shown"), [("a", '"a"'), ("", '"Unknown"')])
def test_the_object_is_named_as_far_as_its_name_is_known(name: str, shown: str) -> None:
    obj = ConfigMap(metadata=ObjectMeta(name=name, namespace="default"))
    error = refused(attempt(config_map.RESOURCE, "CREATE", obj), "because")
    assert error.code == 403
    assert str(error) == f"configmaps {shown} is forbidden: because"


def test_the_name_in_the_request_counts_first() -> None:
    write = attempt(config_map.RESOURCE, "UPDATE", ConfigMap(metadata=ObjectMeta(name="a")))
    write.request.name = "b"
    assert str(refused(write, "because")).startswith('configmaps "b"')
