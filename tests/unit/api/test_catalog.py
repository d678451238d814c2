"""The list of all resources."""

from kedge.api.catalog import BUILT_IN, Catalog
from kedge.api.core_v1.config_map import RESOURCE as CONFIG_MAPS
from kedge.api.core_v1.pod.pod import RESOURCE as PODS


def test_no_two_kinds_share_a_path_or_a_place_in_the_store() -> None:
    paths = [(each.group, each.version, each.plural) for each in BUILT_IN]
    assert len(paths) == len(set(paths))
    stored = [each for each in BUILT_IN if each.store_as is None and each.is_stored]
    places = [each.registry for each in stored]
    assert len(places) == len(set(places))


def test_every_second_view_is_of_a_resource_that_is_stored() -> None:
    stored = {id(each) for each in BUILT_IN if each.store_as is None}
    views = [each for each in BUILT_IN if each.store_as is not None]
    assert all(id(view.store_as.resource) in stored for view in views if view.store_as)


def test_no_short_name_leads_to_two_kinds() -> None:
    seen: dict[str, str] = {}
    for each in BUILT_IN:
        for name in each.presentation.short_names:
            assert seen.setdefault(name, each.plural) == each.plural


def test_a_kind_that_comes_or_goes_is_counted() -> None:
    catalog = Catalog([PODS])
    assert catalog.find("", "v1", "pods") is PODS
    assert catalog.of_kind("v1", "Pod") is PODS
    before, stamp = catalog.changes, catalog.stamp("", "v1")
    catalog.add(CONFIG_MAPS)
    assert catalog.changes > before
    assert catalog.stamp("", "v1") > stamp
    catalog.remove(PODS)
    assert catalog.find("", "v1", "pods") is None
    assert catalog.has_version("", "v1")
    catalog.remove(CONFIG_MAPS)
    catalog.remove(CONFIG_MAPS)
    assert not catalog.has_version("", "v1")
    assert catalog.of_kind("v1", "Pod") is None
    assert catalog.stamp("", "v1") == 0
    catalog.add(PODS)
    assert catalog.stamp("", "v1") > stamp
