import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.apiserver.authorization import configuration

HEAD = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration"}


def hook(tmp_path: Path, **fields: Any) -> dict[str, Any]:
    (tmp_path / "config").write_text("")
    webhook = {
        "timeout": "3s",
        "subjectAccessReviewVersion": "v1",
        "failurePolicy": "NoOpinion",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": str(tmp_path / "config")},
    }
    return {"type": "Webhook", "name": "hook", "webhook": webhook | fields}


def test_authorizers_are_read_in_order(tmp_path: Path) -> None:
    others = [{"type": "Node", "name": "node"}, {"type": "RBAC", "name": "rbac"}]
    file = configuration.parse(HEAD | {"authorizers": [hook(tmp_path), *others]})
    assert [each.type for each in file.authorizers] == ["Webhook", "Node", "RBAC"]


def test_the_published_chain_is_read(tmp_path: Path) -> None:
    text = Path(__file__).with_name("published_authorizers.yaml").read_text()
    published = yaml.safe_load(text.replace("PATH", str(tmp_path / "config")))
    hook(tmp_path)
    file = configuration.parse(HEAD | {"authorizers": published["authorizers"]})
    assert [each.type for each in file.authorizers] == ["Webhook", "Node", "RBAC"]
    chain = [*published["authorizers"], published["in_cluster"]]
    with pytest.raises(ValueError, match=r'connectionInfo.type: Invalid value: "InClusterConfig"'):
        configuration.parse(HEAD | {"authorizers": chain})


NODE = {"type": "Node", "name": "node"}


@pytest.mark.parametrize(
    ("authorizers", "why"),
    [
        ([], "authorizers: Required value: at least one authorization mode must be defined"),
        ([{"name": "x"}], "authorizers[0].type: Required value"),
        ([{"type": "ABAC", "name": "x"}], 'authorizers[0].type: Unsupported value: "ABAC"'),
        ([NODE, NODE], 'authorizers[1].type: Duplicate value: "Node"'),
        ([{"type": "Node"}], "authorizers[0].name: Required value"),
        ([{"type": "Node", "name": "A"}], 'authorizers[0].name: Invalid value: "A": authorizer na'),
        ([{"type": "Webhook", "name": "x"}], "authorizers[0].webhook: Required value: required wh"),
        ([NODE | {"webhook": {}}], 'authorizers[0].webhook: Invalid value: "non-null": may only'),
    ],
)
def test_what_is_wrong_with_authorizers_is_said(authorizers: list[Any], why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        configuration.parse(HEAD | {"authorizers": authorizers})


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"timeout": "31s"}, 'timeout: Invalid value: "31s": must be > 0s and <= 30s'),
        ({"timeout": ""}, "timeout: Required value"),
        ({"authorizedTTL": "0s"}, "authorizedTTL: Required value"),
        ({"unauthorizedTTL": "-1s"}, 'unauthorizedTTL: Invalid value: "-1s": must be > 0s'),
        ({"subjectAccessReviewVersion": "v2"}, 'subjectAccessReviewVersion: Unsupported value: "v'),
        ({"failurePolicy": ""}, "failurePolicy: Required value"),
        ({"failurePolicy": "Allow"}, 'failurePolicy: Unsupported value: "Allow"'),
        ({"connectionInfo": {}}, "connectionInfo.type: Required value"),
        (
            {"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "x"}},
            'connectionInfo.kubeConfigFile: Invalid value: "x": must be an absolute path',
        ),
        (
            {"matchConditions": [{"expression": "true"}]},
            "matchConditionSubjectAccessReviewVersion: Required value: required if match",
        ),
        (
            {
                "matchConditions": [{"expression": "request.user"}],
                "matchConditionSubjectAccessReviewVersion": "v1",
            },
            'matchConditions[0].expression: Invalid value: "request.user": must evaluate to bool',
        ),
        ({"retries": 3}, "strict decoding error: unknown field"),
    ],
)
def test_what_is_wrong_with_webhooks_is_said(
    tmp_path: Path, fields: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        configuration.parse(HEAD | {"authorizers": [hook(tmp_path, **fields)]})
