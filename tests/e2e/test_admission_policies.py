"""Admission policies refuse and change what kubectl writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Kubectl

POLICIES = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: few-NAMESPACE}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}
  variables: [{name: most, expression: int(params.data.most)}]
  validations:
  - expression: object.spec.replicas <= variables.most
    messageExpression: >-
      'at most %d replicas, not %d'.format([variables.most, object.spec.replicas])
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: few-NAMESPACE}
spec:
  policyName: few-NAMESPACE
  validationActions: [Deny]
  paramRef: {name: limits, parameterNotFoundAction: Deny}
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: label-NAMESPACE}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: "Object{metadata: Object.metadata{labels: {'team': 'a'}}}"
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: label-NAMESPACE}
spec: {policyName: label-NAMESPACE}
"""


@pytest.fixture
def bound(any_kubectl: Kubectl) -> Iterator[Kubectl]:
    """kubectl, in a namespace whose Deployments are limited and labelled."""
    text = POLICIES.replace("NAMESPACE", any_kubectl.namespace)
    any_kubectl("create configmap limits --from-literal=most=2")
    any_kubectl("apply -f -", input=text)
    yield any_kubectl
    any_kubectl("delete -f -", input=text)


def test_policies_refuse_and_change(bound: Kubectl) -> None:
    refused = bound("create deployment many --image=host --replicas=3", check=False)
    name = bound.namespace
    assert (
        f"ValidatingAdmissionPolicy 'few-{name}' with binding 'few-{name}' denied request: "
        "at most 2 replicas, not 3"
    ) in refused.stderr
    bound("create deployment few --image=host --replicas=0")
    assert bound.json("get deployment few")["metadata"]["labels"]["team"] == "a"
