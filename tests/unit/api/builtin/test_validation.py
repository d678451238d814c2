"""What is refused, in upstream's words."""

import base64
from collections.abc import Iterable
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kedge.api.builtin import validation
from kedge.api.model import Document, ObjectMeta
from kedge.machinery.errors import FieldError


def of(content: dict[str, Any], name: str = "x") -> Document:
    return Document(metadata=ObjectMeta(name=name), content=content)


def said(errors: Iterable[FieldError]) -> list[str]:
    return [str(error) for error in errors]


SERVICE = {"service": {"name": "web", "port": {"number": 80}}}


def ingress_with(path: dict[str, Any]) -> Document:
    return of({"spec": {"rules": [{"host": "a.io", "http": {"paths": [path]}}]}})


def test_ingress_needs_rules_or_a_backend() -> None:
    assert said(validation.ingress(of({"spec": {}}))) == [
        "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"
    ]
    assert said(validation.ingress(of({"spec": {"defaultBackend": SERVICE}}))) == []


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ({"path": "/"}, "pathType: Required value: pathType must be specified"),
        (
            {"pathType": "Regex", "path": "/"},
            'pathType: Unsupported value: "Regex": supported values: '
            '"Exact", "ImplementationSpecific", "Prefix"',
        ),
        ({"pathType": "Prefix"}, 'path: Invalid value: "": must be an absolute path'),
        ({"pathType": "Exact", "path": "/a//b"}, "must not contain '//'"),
        ({"pathType": "Exact", "path": "/a/.."}, "cannot end with '/..'"),
    ],
)
def test_ingress_paths(path: dict[str, Any], error: str) -> None:
    (found,) = said(validation.ingress(ingress_with({"backend": SERVICE, **path})))
    assert found.startswith("spec.rules[0].http.paths[0].")
    assert found.endswith(error)


def test_ingress_path_may_be_absent_if_the_implementation_knows() -> None:
    path = {"pathType": "ImplementationSpecific", "backend": SERVICE}
    assert said(validation.ingress(ingress_with(path))) == []


@pytest.mark.parametrize(
    ("backend", "error"),
    [
        ({}, 'backend: Invalid value: "": resource or service backend is required'),
        (
            {"service": {"name": "a", "port": {"name": "b", "number": 1}}},
            'backend: Invalid value: "": cannot set both port name & port number',
        ),
        ({"service": {"name": "a"}}, "backend: Required value: port name or number is required"),
        ({"service": {"port": {"number": 1}}}, "backend.service.name: Required value"),
    ],
)
def test_ingress_backends(backend: dict[str, Any], error: str) -> None:
    path = {"pathType": "Prefix", "path": "/", "backend": backend}
    assert said(validation.ingress(ingress_with(path))) == [f"spec.rules[0].http.paths[0].{error}"]


def test_ingress_host_is_a_name() -> None:
    rule = {"host": "10.0.0.1"}
    (found,) = said(validation.ingress(of({"spec": {"rules": [rule]}})))
    assert found == (
        'spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address'
    )
    assert said(validation.ingress(of({"spec": {"rules": [{"host": "*.a.io"}]}}))) == []


def test_ingress_class_needs_a_controller_that_stays() -> None:
    assert said(validation.ingress_class(of({"spec": {}}))) == ["spec.controller: Required value"]
    old, new = of({"spec": {"controller": "a.io/b"}}), of({"spec": {"controller": "a.io/c"}})
    assert said(validation.ingress_class_update(new, old)) == [
        'spec.controller: Invalid value: "a.io/c": field is immutable'
    ]


def test_class_parameters_have_a_namespace_exactly_if_their_scope_does() -> None:
    def with_parameters(**more: str) -> list[str]:
        parameters = {"kind": "K", "name": "n", **more}
        spec = {"controller": "a.io/b", "parameters": parameters}
        return said(validation.ingress_class(of({"spec": spec})))

    assert with_parameters(scope="Cluster") == []
    assert with_parameters(scope="Namespace") == [
        "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"
    ]
    assert with_parameters(scope="Cluster", namespace="a") == [
        "spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"
    ]


def test_network_policy_peers_and_ports() -> None:
    rule = {
        "from": [{}, {"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}],
        "ports": [{"port": 90, "endPort": 80}, {"endPort": 1}],
    }
    assert said(validation.network_policy(of({"spec": {"ingress": [rule]}}))) == [
        "spec.ingress[0].ports[0].endPort: Invalid value: 90: "
        "must be greater than or equal to `port`",
        "spec.ingress[0].ports[1].endPort: Invalid value: 1: "
        "may not be specified when `port` is not specified",
        "spec.ingress[0].from[0]: Required value: must specify a peer",
        "spec.ingress[0].from[1]: Forbidden: may not specify both ipBlock and another peer",
    ]


def test_exceptions_lie_within_the_block() -> None:
    block = {"cidr": "10.0.0.0/16", "except": ["10.0.1.0/24", "10.1.0.0/24", "10.0.0.0/16"]}
    spec = {"egress": [{"to": [{"ipBlock": block}]}]}
    at = "spec.egress[0].to[0].ipBlock.except"
    assert said(validation.network_policy(of({"spec": spec}))) == [
        f'{at}[1]: Invalid value: "10.1.0.0/24": must be a strict subset of `cidr`',
        f'{at}[2]: Invalid value: "10.0.0.0/16": must be a strict subset of `cidr`',
    ]


def test_selectors_are_looked_into() -> None:
    selector = {"matchExpressions": [{"key": "a", "operator": "In"}]}
    (found,) = said(validation.network_policy(of({"spec": {"podSelector": selector}})))
    assert found.startswith("spec.podSelector.matchExpressions[0].values: Required value")


def test_runtime_class_needs_a_handler() -> None:
    assert said(validation.runtime_class(of({}))) == ["handler: Required value"]
    assert said(validation.runtime_class(of({"handler": "runc"}))) == []


def request(key: ec.EllipticCurvePrivateKey) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    signed = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()


def test_signing_request() -> None:
    good = {
        "request": request(ec.generate_private_key(ec.SECP256R1())),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    }
    assert said(validation.signing_request(of({"spec": good}))) == []
    bad = {"request": "YQ==", "signerName": "nodomain/x", "expirationSeconds": 10}
    assert said(validation.signing_request(of({"spec": bad}))) == [
        'spec.request: Invalid value: "YQ==": PEM block type must be CERTIFICATE REQUEST',
        "spec.usages: Required value",
        'spec.signerName: Invalid value: "nodomain": '
        "should be a domain with at least two segments separated by dots",
        "spec.expirationSeconds: Invalid value: 10: "
        "may not specify a duration less than 600 seconds (10 minutes)",
    ]


def test_api_service_is_named_after_its_version_and_group() -> None:
    spec = {
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    assert said(validation.api_service(of({"spec": spec}, "v1beta1.metrics.k8s.io"))) == []
    (found,) = said(validation.api_service(of({"spec": spec}, "metrics")))
    assert found == (
        'metadata.name: Invalid value: "metrics": '
        'must be `spec.version+"."+spec.group`: "v1beta1.metrics.k8s.io"'
    )
