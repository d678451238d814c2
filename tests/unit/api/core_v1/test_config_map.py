from msgspec.structs import replace

from kedge.api.core_v1.config_map import RESOURCE, SIZE_LIMIT, ConfigMap


def errors(obj: ConfigMap) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(obj)]


def test_a_key_stands_in_one_place_only() -> None:
    obj = ConfigMap(data={"a": "x"}, binaryData={"a": "AA=="})
    assert errors(obj) == ['data[a]: Invalid value: "a": duplicate of key present in binaryData']


def test_keys_must_do_as_file_names() -> None:
    found = errors(ConfigMap(data={"a/b": "", "..": ""}))
    assert [text.split(":")[0] for text in found] == ["data[a/b]", "data[..]"]


def test_size_counts_bytes_of_both_sorts() -> None:
    half = SIZE_LIMIT // 2
    fits = ConfigMap(data={"text": "x" * half}, binaryData={"raw": "AAAA" * (half // 3)})
    assert errors(fits) == []
    assert errors(replace(fits, data={"text": "ä" * half})) == [
        "[]: Too long: may not be more than 1048576 bytes"
    ]


def test_an_immutable_one_can_neither_change_nor_be_freed() -> None:
    old = ConfigMap(data={"a": "x"}, immutable=True)
    found = [
        str(error) for error in RESOURCE.strategy.validate_update(ConfigMap(data={"a": "y"}), old)
    ]
    assert found == [
        "immutable: Forbidden: field is immutable when `immutable` is set",
        "data: Forbidden: field is immutable when `immutable` is set",
    ]
    assert list(RESOURCE.strategy.validate_update(old, ConfigMap(data={"a": "y"}))) == []


def test_the_data_column_counts_both_sorts() -> None:
    obj = ConfigMap(data={"a": "x", "b": "y"}, binaryData={"c": "AA=="})
    assert [c.cell(obj) for c in RESOURCE.presentation.columns if c.name == "Data"] == [3]
