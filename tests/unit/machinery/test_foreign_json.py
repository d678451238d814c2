from kedge.machinery.foreign_json import without_nulls


def test_elements_of_lists_keep_their_place() -> None:
    assert without_nulls({"a": [None, {"b": None}, 1], "c": None}) == {"a": [None, {}, 1]}
