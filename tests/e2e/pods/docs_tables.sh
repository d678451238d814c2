# Functions for the scripts in docs_tables.yaml. NS is the namespace of the script.

set -eo pipefail
MAPS=/api/v1/namespaces/$NS/configmaps
PODS=/api/v1/namespaces/$NS/pods
GROUP=$NS.example.com
echo on-the-machine > file

# Succeed if a command fails; its errors are in the file "error".
refused() {
  if "$@" 2> error; then echo "succeeded, but should not: $*" >&2; return 1; fi
}

fetch() {
  "$PYTHON" -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())' "$1"
}

# Print the spec of a pod that writes "hello", then "tick" twice a second, and serves HTTP on port 8000.
pod_spec() {
  cat <<END
{"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "host",
 "resources": {"requests": {"cpu": "10m"}}, "command": ["sh", "-c",
 "echo hello; (while sleep 0.5; do echo tick; done) & cd /usr; exec python3 -m http.server 8000 >/dev/null 2>&1"]}]}
END
}

# Create a pod. Arguments: NAME
sleeper() {
  kubectl create -f - <<END
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "$1", "labels": {"app": "$NS"}}, "spec": $(pod_spec)}
END
}

# Create a Deployment with one pod. Arguments: NAME
deployment() {
  kubectl create -f - <<END
{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "$1"}, "spec": {
 "selector": {"matchLabels": {"app": "$1"}},
 "template": {"metadata": {"labels": {"app": "$1"}}, "spec": $(pod_spec)}}}
END
}

# Create a CustomResourceDefinition of the kind Thing and wait until it is served.
# Arguments: SCHEMA [PLURAL [MORE_OF_THE_VERSION]]
crd() {
  define "$@" && kubectl wait --for=condition=Established "crd/${2:-things}.$GROUP" &&
    until kubectl get "${2:-things}.$GROUP" > /dev/null; do sleep 0.1; done
}

# Create a CustomResourceDefinition. Arguments as for crd.
define() {
  kubectl create -f - <<END
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ${2:-things}.$GROUP}
spec:
  group: $GROUP
  scope: Namespaced
  names: {kind: Thing, plural: ${2:-things}, singular: thing, shortNames: [th], categories: [toys-$NS]}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: $1}
$3
END
}

# Create a Thing. Arguments: NAME SPEC [FLAGS]
thing() {
  local name=$1 spec=$2
  shift 2
  kubectl create "$@" -f - <<END
{"apiVersion": "$GROUP/v1", "kind": "Thing", "metadata": {"name": "$name"}, "spec": $spec}
END
}

# Print a CertificateSigningRequest. Arguments: NAME
certificate_request() {
  "$PYTHON" - "$1" <<'END'
import base64, json, sys
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ann")])
builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
request = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
pem = request.public_bytes(serialization.Encoding.PEM)
spec = {
    "request": base64.b64encode(pem).decode(),
    "signerName": "kubernetes.io/kube-apiserver-client",
    "usages": ["client auth"],
}
metadata = {"name": sys.argv[1]}
version = "certificates.k8s.io/v1"
kind = "CertificateSigningRequest"
print(json.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}))
END
}

# Print the output of a pod that mounts each volume at /v/NAME. Arguments: SCRIPT VOLUMES
volumes() {
  "$PYTHON" - "$@" <<'END' | kubectl create -f - >&2
import json, sys, yaml

script, volumes = sys.argv[1], yaml.safe_load(sys.argv[2])
mounts = [{"name": each["name"], "mountPath": "/v/" + each["name"]} for each in volumes]
main = {"name": "main", "image": "host", "command": ["sh", "-c", script], "volumeMounts": mounts}
spec = {"restartPolicy": "Never", "volumes": volumes, "containers": [main]}
print(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "v"}, "spec": spec}))
END
  kubectl wait --for='jsonpath={.status.phase}=Succeeded' pod/v >&2
  kubectl logs v
}
