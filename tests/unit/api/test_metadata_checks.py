"""How often the metadata of an update is checked."""

from kedge.api.catalog import Catalog
from kedge.api.metadata_checks import _ANY_FINALIZER, _BY_KIND, _UNCHECKED_STATUS, checks_of


def test_kinds_that_are_not_listed_check_the_change_once_more() -> None:
    assert checks_of("apps", "Deployment") == ("U", "U", False)


def test_the_order_is_that_of_the_kind() -> None:
    assert checks_of("", "ConfigMap").main == "UM"
    assert checks_of("", "Namespace").main == "MU"


def test_custom_resources_take_any_finalizer() -> None:
    assert checks_of("example.com", "Pod", custom=True).any_finalizer


def test_each_listed_kind_exists() -> None:
    known = {f"{each.kind}.{each.group}" if each.group else each.kind for each in Catalog()}
    assert {*_BY_KIND, *_UNCHECKED_STATUS, *_ANY_FINALIZER} <= known
