"""The parameters of a policy: where they are looked up."""

from typing import Any, cast

import pytest

from kedge.api.core_v1 import config_map, namespace
from kedge.apiserver.policies.policy_params import ConfigurationError, params_of


def test_without_a_kind_or_a_reference_there_is_one_evaluation_without_parameters() -> None:
    nothing = cast(Any, None)
    assert [*params_of(None, {"name": "a"}, "default", nothing)] == [None]
    assert [*params_of(config_map.RESOURCE, None, "default", nothing)] == [None]


@pytest.mark.parametrize(
    ("resource", "reference", "where", "why"),
    [
        (
            config_map.RESOURCE,
            {"name": "a"},
            "",
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped "
            "resources",
        ),
        (
            namespace.RESOURCE,
            {"name": "a", "namespace": "b"},
            "default",
            "paramRef.namespace must not be provided for a cluster-scoped `paramKind`",
        ),
    ],
)
def test_a_namespace_that_does_not_fit_is_an_error(
    resource: Any, reference: dict[str, str], where: str, why: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        params_of(resource, reference, where, cast(Any, None))
    assert str(error.value) == why
