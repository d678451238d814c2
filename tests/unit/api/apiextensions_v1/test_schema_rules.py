from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kedge.api.apiextensions_v1.json_schema import JSONSchemaProps
from kedge.api.apiextensions_v1.schema_rules import validate_schema

CASES = yaml.safe_load(Path(__file__).with_name("schema_rules.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_rules_of_schemas(case: dict[str, Any]) -> None:
    schema = msgspec.convert(case["schema"], JSONSchemaProps)
    found = validate_schema(schema, "schema", status=case.get("status", False))
    assert [str(error) for error in found] == case["errors"]
