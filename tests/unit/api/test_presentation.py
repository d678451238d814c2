from kedge.api.core_v1.config_map import ConfigMap
from kedge.api.model import ObjectMeta
from kedge.api.presentation import Age, Presentation, age_column

CREATED = "2026-01-01T00:00:00Z"
OBJECT = ConfigMap(metadata=ObjectMeta(name="a", creationTimestamp=CREATED))


def test_a_kind_without_columns_shows_name_and_creation() -> None:
    shown = Presentation[ConfigMap]()
    assert {column.name: column.cell(OBJECT) for column in shown.columns} == {
        "Name": "a",
        "Created At": CREATED,
    }


def test_an_age_is_left_to_be_computed() -> None:
    age = age_column().cell(OBJECT)
    assert age == Age(CREATED)
    assert isinstance(age, Age)
    assert age.around("5m") == "5m"
