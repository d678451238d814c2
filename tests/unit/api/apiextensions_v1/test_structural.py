from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kedge.api.apiextensions_v1.json_schema import JSONSchemaProps
from kedge.api.apiextensions_v1.structural import validate_structural

CASES = yaml.safe_load(Path(__file__).with_name("structural.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_a_schema_says_of_each_field_once_what_it_is(case: dict[str, Any]) -> None:
    schema = msgspec.convert(case["schema"], JSONSchemaProps)
    assert [str(error) for error in validate_structural(schema, "schema")] == case["errors"]
