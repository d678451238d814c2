"""`kubectl create` from files and by every generator, `run`, `expose`, `autoscale`."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Api, Kubectl

CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "one"},
    "data": {"key": "value"},
}
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: main, image: "nginx:1.27", %s: {cpu: 100m}}]
"""


def test_from_json_and_from_yaml(kubectl: Kubectl, tmp_path: Path) -> None:
    said = kubectl.says("create -f -", input=json.dumps(CONFIG_MAP))
    assert said == "configmap/one created"
    (tmp_path / "two.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: two\ndata: {a: b}\n"
        "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: two\nstringData: {a: b}\n"
    )
    assert kubectl.says(f"create -f {tmp_path}").splitlines() == [
        "configmap/two created",
        "secret/two created",
    ]
    stored = kubectl.json("get cm one")
    assert stored["data"] == {"key": "value"}
    assert re.fullmatch(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", stored["metadata"]["uid"])
    assert kubectl.json("get secret two")["data"] == {"a": "Yg=="}


def test_a_name_that_is_taken(kubectl: Kubectl) -> None:
    kubectl("create -f -", input=json.dumps(CONFIG_MAP))
    assert kubectl.fails("create -f -", input=json.dumps(CONFIG_MAP)) == (
        'Error from server (AlreadyExists): error when creating "STDIN":'
        ' configmaps "one" already exists\n'
    )
    assert kubectl.fails("create configmap one") == (
        'error: failed to create configmap: configmaps "one" already exists\n'
    )


def test_names_are_made_up_on_request(kubectl: Kubectl) -> None:
    nameless: dict[str, Any] = {**CONFIG_MAP, "metadata": {"generateName": "made-"}}
    said = [kubectl.says("create -f -", input=json.dumps(nameless)) for _ in range(2)]
    assert len(set(said)) == 2
    for line in said:
        assert re.fullmatch(r"configmap/made-[bcdfghjklmnpqrstvwxz2456789]{5} created", line)


def test_dry_runs_change_nothing(kubectl: Kubectl) -> None:
    assert kubectl.says("create configmap one --dry-run=client") == (
        "configmap/one created (dry run)"
    )
    assert kubectl.says("create configmap one --dry-run=server") == (
        "configmap/one created (server dry run)"
    )
    shown = kubectl.json("create -f - --dry-run=server", input=json.dumps(CONFIG_MAP))
    assert "uid" in shown["metadata"]
    assert "resourceVersion" not in shown["metadata"]
    assert kubectl("get cm one --ignore-not-found").stdout == ""


def test_unknown_fields_are_refused_warned_of_or_ignored(kubectl: Kubectl) -> None:
    manifest = DEPLOYMENT % "resource"
    unknown = 'unknown field "spec.template.spec.containers[0].resource"'
    assert kubectl.fails("create -f -", input=manifest) == (
        'Error from server (BadRequest): error when creating "STDIN": Deployment in version "v1"'
        f" cannot be handled as a Deployment: strict decoding error: {unknown}\n"
    )
    done = kubectl("create -f - --validate=warn", input=manifest)
    assert done.stdout == "deployment.apps/web created\n"
    assert done.stderr == f"Warning: {unknown}\n"
    kubectl("delete deployment web")
    done = kubectl("create -f - --validate=ignore", input=manifest)
    assert (done.stdout, done.stderr) == ("deployment.apps/web created\n", "")


def test_a_duplicate_field_is_refused(kubectl: Kubectl) -> None:
    manifest = (
        '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"},'
        ' "data": {"a": "1"}, "data": {"b": "2"}}'
    )
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps?fieldValidation=Strict"
    refused = kubectl.fails("create", "--raw", path, "-f", "-", input=manifest)
    assert 'strict decoding error: duplicate field "data"' in refused


def test_invalid_values_are_all_named(kubectl: Kubectl) -> None:
    manifest = """
apiVersion: v1
kind: Pod
metadata: {name: Bad_Name}
spec: {restartPolicy: Sometimes, containers: [{image: x}]}
"""
    refused = kubectl.fails("create -f -", input=manifest)
    assert refused.startswith('The Pod "Bad_Name" is invalid: \n* metadata.name: Invalid value:')
    assert "* spec.containers[0].name: Required value\n" in refused
    assert '* spec.restartPolicy: Unsupported value: "Sometimes": supported values: ' in refused


def test_the_wrong_type_is_refused(kubectl: Kubectl) -> None:
    refused = kubectl.fails(
        "create -f - --validate=false",
        input=json.dumps(CONFIG_MAP | {"data": {"a": 1}}),
    )
    assert refused.startswith(
        'Error from server (BadRequest): error when creating "STDIN": ConfigMap in version "v1"'
        " cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field"
    )


def test_a_kind_nobody_knows(kubectl: Kubectl) -> None:
    unicorn = CONFIG_MAP | {"apiVersion": "example.com/v9", "kind": "Unicorn"}
    refused = kubectl.fails("create -f -", input=json.dumps(unicorn))
    assert 'no matches for kind "Unicorn" in version "example.com/v9"' in refused


def test_a_namespace_that_is_not_there(kubectl: Kubectl) -> None:
    assert kubectl.fails("create configmap one -n nowhere") == (
        'error: failed to create configmap: namespaces "nowhere" not found\n'
    )


def test_namespace(kubectl: Kubectl, api: Api) -> None:
    name = f"{kubectl.namespace}-x"
    assert kubectl.says(f"create namespace {name}") == f"namespace/{name} created"
    stored = kubectl.json(f"get ns {name}")
    assert stored["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
    assert stored["spec"] == {"finalizers": ["kubernetes"]}
    assert stored["status"] == {"phase": "Active"}
    api.delete(f"/api/v1/namespaces/{name}")


def test_a_new_namespace_is_furnished(kubectl: Kubectl) -> None:
    kubectl("wait --for=create serviceaccount/default --timeout=10s")
    kubectl("wait --for=create configmap/kube-root-ca.crt --timeout=10s")
    bundle = kubectl.json("get cm kube-root-ca.crt")["data"]["ca.crt"]
    assert bundle.strip() == kubectl.cluster.api.ca_pem.strip()


def test_service_account(kubectl: Kubectl) -> None:
    assert kubectl.says("create serviceaccount robot") == "serviceaccount/robot created"
    assert kubectl.says("get sa robot -o name") == "serviceaccount/robot"


def test_config_map(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("some text")
    (tmp_path / "bytes").write_bytes(b"\xff\x00")
    (tmp_path / "settings").write_text("A=1\nB=2\n")
    kubectl(
        f"create configmap one --from-literal=k=v --from-file={tmp_path}/text"
        f" --from-file=raw={tmp_path}/bytes"
    )
    stored = kubectl.json("get cm one")
    assert stored["data"] == {"k": "v", "text": "some text"}
    assert stored["binaryData"] == {"raw": base64.b64encode(b"\xff\x00").decode()}
    kubectl(f"create configmap two --from-env-file={tmp_path}/settings --append-hash")
    (name,) = kubectl.says("get cm -o name").replace("configmap/", "").split()[-1:]
    assert re.fullmatch(r"two-[a-z0-9]{10}", name)


def write_certificate(directory: Path) -> None:
    """A key and a certificate that belong together, in the files `key` and `crt`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        .sign(key, hashes.SHA256())
    )
    (directory / "crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    (directory / "key").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )


def test_secrets(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create secret generic plain --from-literal=user=me --type=example.com/x")
    stored = kubectl.json("get secret plain")
    assert stored["type"] == "example.com/x"
    assert stored["data"] == {"user": "bWU="}

    kubectl(
        "create secret docker-registry pull --docker-server=box.example.com"
        " --docker-username=me --docker-password=pw"
    )
    stored = kubectl.json("get secret pull")
    assert stored["type"] == "kubernetes.io/dockerconfigjson"
    config = json.loads(base64.b64decode(stored["data"][".dockerconfigjson"]))
    assert config["auths"]["box.example.com"]["username"] == "me"

    write_certificate(tmp_path)
    kubectl(f"create secret tls front --cert={tmp_path}/crt --key={tmp_path}/key")
    rows = {row["NAME"]: (row["TYPE"], row["DATA"]) for row in kubectl.table("get secrets")}
    assert rows["front"] == ("kubernetes.io/tls", "2")
    assert rows["pull"] == ("kubernetes.io/dockerconfigjson", "1")


def test_deployment(kubectl: Kubectl) -> None:
    kubectl("create deployment web --image=nginx --image=redis:7 --replicas=0")
    stored = kubectl.json("get deployment web")
    assert stored["metadata"]["labels"] == {"app": "web"}
    spec = stored["spec"]
    assert spec["replicas"] == 0
    assert spec["selector"] == {"matchLabels": {"app": "web"}}
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
    }
    assert spec["revisionHistoryLimit"] == 10
    assert spec["progressDeadlineSeconds"] == 600
    containers = spec["template"]["spec"]["containers"]
    assert [(c["name"], c["imagePullPolicy"]) for c in containers] == [
        ("nginx", "Always"),
        ("redis", "IfNotPresent"),
    ]
    (row,) = kubectl.table("get deployment web -o wide")
    assert (row["READY"], row["UP-TO-DATE"], row["AVAILABLE"]) == ("0/0", "0", "0")
    assert (row["CONTAINERS"], row["IMAGES"]) == ("nginx,redis", "nginx,redis:7")
    assert row["SELECTOR"] == "app=web"


def test_job_and_cron_job(kubectl: Kubectl) -> None:
    kubectl("create job once --image=busybox -- true")
    stored = kubectl.json("get job once")
    uid = stored["metadata"]["uid"]
    assert stored["spec"]["selector"] == {
        "matchLabels": {"batch.kubernetes.io/controller-uid": uid}
    }
    assert stored["spec"]["completionMode"] == "NonIndexed"
    assert stored["spec"]["backoffLimit"] == 6
    assert stored["spec"]["template"]["spec"]["containers"][0]["command"] == ["true"]
    (row,) = kubectl.table("get job once")
    assert row["COMPLETIONS"] == "0/1"

    kubectl("create", "cronjob", "often", "--image=busybox", "--schedule=0 0 1 1 *", "--", "true")
    (row,) = kubectl.table("get cronjob often")
    assert {**row, "AGE": ""} == {
        "NAME": "often",
        "SCHEDULE": "0 0 1 1 *",
        "TIMEZONE": "<none>",
        "SUSPEND": "False",
        "ACTIVE": "0",
        "LAST SCHEDULE": "<none>",
        "AGE": "",
    }
    assert kubectl.says("create job now --from=cronjob/often") == "job.batch/now created"
    owner = kubectl.json("get job now")["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("CronJob", "often", True)


def test_services(kubectl: Kubectl) -> None:
    kubectl("create service clusterip inner --tcp=80:8080")
    kubectl("create service clusterip headless --tcp=80 --clusterip=None")
    kubectl("create service nodeport outer --tcp=80 --tcp=443:8443")
    kubectl("create service loadbalancer balanced --tcp=80")
    kubectl("create service externalname elsewhere --external-name=example.com")
    rows = {row["NAME"]: row for row in kubectl.table("get services -o wide")}
    assert rows["inner"]["TYPE"] == "ClusterIP"
    assert re.fullmatch(r"\d+\.\d+\.\d+\.\d+", rows["inner"]["CLUSTER-IP"])
    assert rows["inner"]["PORT(S)"] == "80/TCP"
    assert rows["inner"]["SELECTOR"] == "app=inner"
    assert rows["headless"]["CLUSTER-IP"] == "None"
    assert re.fullmatch(r"80:3\d{4}/TCP,443:3\d{4}/TCP", rows["outer"]["PORT(S)"])
    assert re.fullmatch(r"<pending>|\d+\.\d+\.\d+\.\d+", rows["balanced"]["EXTERNAL-IP"])
    assert rows["elsewhere"]["CLUSTER-IP"] == "<none>"
    assert rows["elsewhere"]["EXTERNAL-IP"] == "example.com"
    spec = kubectl.json("get service inner")["spec"]
    assert spec["ports"] == [{"name": "80-8080", "port": 80, "protocol": "TCP", "targetPort": 8080}]
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    assert (spec["sessionAffinity"], spec["internalTrafficPolicy"]) == ("None", "Cluster")


def test_ingress(kubectl: Kubectl) -> None:
    kubectl("create ingress web --class=front --rule=a.example.com/x*=svc:80,tls=cert")
    (row,) = kubectl.table("get ingress web")
    assert (row["CLASS"], row["HOSTS"], row["PORTS"]) == ("front", "a.example.com", "80, 443")
    (rule,) = kubectl.json("get ingress web")["spec"]["rules"]
    assert rule["http"]["paths"] == [
        {
            "path": "/x",
            "pathType": "Prefix",
            "backend": {"service": {"name": "svc", "port": {"number": 80}}},
        }
    ]


def test_roles_and_bindings(kubectl: Kubectl) -> None:
    name = kubectl.namespace
    kubectl("create role reader --verb=get,list --resource=pods,deployments.apps")
    assert kubectl.json("get role reader")["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]},
    ]
    kubectl(f"create clusterrole {name} --verb=get --non-resource-url=/metrics")
    assert kubectl.json(f"get clusterrole {name}")["rules"] == [
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    ]
    kubectl(f"create rolebinding who --role=reader --user=eve --serviceaccount={name}:robot")
    (row,) = kubectl.table("get rolebinding who -o wide")
    assert (row["ROLE"], row["USERS"]) == ("Role/reader", "eve")
    assert row["SERVICEACCOUNTS"] == f"{name}/robot"
    kubectl(f"create clusterrolebinding {name} --clusterrole={name} --group=crew")
    (row,) = kubectl.table(f"get clusterrolebinding {name} -o wide")
    assert (row["ROLE"], row["GROUPS"]) == (f"ClusterRole/{name}", "crew")


def test_quota_budget_and_priority(kubectl: Kubectl, api: Api) -> None:
    kubectl("create quota box --hard=cpu=1,pods=5 --scopes=NotTerminating")
    spec = kubectl.json("get quota box")["spec"]
    assert spec == {"hard": {"cpu": "1", "pods": "5"}, "scopes": ["NotTerminating"]}
    kubectl("create poddisruptionbudget keep --selector=app=web --min-available=50%")
    (row,) = kubectl.table("get pdb keep")
    assert (row["MIN AVAILABLE"], row["MAX UNAVAILABLE"]) == ("50%", "N/A")
    assert row["ALLOWED DISRUPTIONS"] == "0"
    name = kubectl.namespace
    kubectl(f"create priorityclass {name} --value=7 --preemption-policy=Never")
    (row,) = kubectl.table(f"get priorityclass {name}")
    assert (row["VALUE"], row["GLOBAL-DEFAULT"]) == ("7", "false")
    assert row["PREEMPTIONPOLICY"] == "Never"
    api.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")


def test_generators_obey_dry_run_and_validation(kubectl: Kubectl) -> None:
    shown = kubectl.json("create deployment web --image=nginx --dry-run=server")
    assert shown["spec"]["replicas"] == 1
    assert shown["spec"]["template"]["spec"]["restartPolicy"] == "Always"
    assert kubectl("get deployment web --ignore-not-found").stdout == ""
    refused = kubectl.fails("create deployment Web --image=nginx")
    assert 'Deployment.apps "Web" is invalid: metadata.name: Invalid value: "Web"' in refused


def test_run(kubectl: Kubectl) -> None:
    said = kubectl.says("run web --image=nginx --port=80 --env=A=b --labels=app=web")
    assert said == "pod/web created"
    stored = kubectl.json("get pod web")
    assert stored["metadata"]["labels"] == {"app": "web"}
    (container,) = stored["spec"]["containers"]
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert container["env"] == [{"name": "A", "value": "b"}]
    assert kubectl.says("run once --image=busybox --restart=Never --command -- true") == (
        "pod/once created"
    )


def test_expose(kubectl: Kubectl) -> None:
    kubectl("create deployment web --image=nginx --replicas=0 --port=8080")
    assert kubectl.says("expose deployment web --port=80 --target-port=8080") == (
        "service/web exposed"
    )
    spec = kubectl.json("get service web")["spec"]
    assert spec["selector"] == {"app": "web"}
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 8080}]


def test_autoscale(kubectl: Kubectl) -> None:
    kubectl("create deployment web --image=nginx --replicas=0")
    kubectl("autoscale deployment web --min=1 --max=3 --cpu-percent=80")
    (row,) = kubectl.table("get hpa web")
    assert row["REFERENCE"] == "Deployment/web"
    assert (row["MINPODS"], row["MAXPODS"], row["REPLICAS"]) == ("1", "3", "0")
    assert row["TARGETS"] == "cpu: <unknown>/80%"
    v1 = kubectl.json("get horizontalpodautoscalers.v1.autoscaling web")
    assert v1["spec"]["targetCPUUtilizationPercentage"] == 80


def test_raw(kubectl: Kubectl) -> None:
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps"
    said = kubectl.says("create", "--raw", path, "-f", "-", input=json.dumps(CONFIG_MAP))
    assert json.loads(said)["metadata"]["name"] == "one"
    assert json.loads(kubectl.says("delete", "--raw", f"{path}/one"))["status"] == "Success"
