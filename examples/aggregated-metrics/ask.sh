#!/bin/sh
# Send a request directly to the metrics server, as the service account ann.
exec kubectl --kubeconfig /dev/null --server https://127.0.0.1:4463 \
  --certificate-authority metrics-server/pki/ca.crt --token "$(kubectl create token ann)" \
  get --raw "$1"
