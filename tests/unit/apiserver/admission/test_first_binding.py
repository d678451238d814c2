from typing import Any, cast

from kedge.apiserver.admission.first_binding import FirstBinding


def test_policies_are_loaded_once_and_not_before_there_is_a_binding() -> None:
    bindings: list[str] = []
    loaded: list[str] = []

    def load() -> str:
        loaded.append("policies")
        return "policies"

    policies = FirstBinding(cast(Any, bindings), load)
    assert policies.get() is None
    assert loaded == []
    bindings.append("first")
    assert policies.get() == "policies"
    bindings.clear()
    assert policies.get() == "policies"
    assert loaded == ["policies"]
