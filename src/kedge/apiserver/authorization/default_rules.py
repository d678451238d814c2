"""The roles and bindings that every cluster has: Kubernetes 1.36's, in a notation of one line each.

A name on a line of its own begins a role; each indented line is a rule, `VERBS GROUPS: RESOURCES`,
perhaps `named` after single objects, or `VERBS PATHS`; deeper lines go on. `read` stands for get,
list and watch, `write` for every verb that changes, `core` for the group without a name, and
`report` for a whole rule: events may be written. Service accounts are those of kube-system.
"""

from typing import Final

CLUSTER_ROLES = """\
cluster-admin
  * *: *
  * *
system:aggregate-to-admin
  create authorization.k8s.io: localsubjectaccessreviews
  read,write rbac.authorization.k8s.io: rolebindings roles
system:aggregate-to-edit
  read core: pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy
  impersonate core: serviceaccounts
  write core: pods pods/attach pods/exec pods/portforward pods/proxy
  create core: pods/eviction
  write core: configmaps persistentvolumeclaims replicationcontrollers
    replicationcontrollers/scale secrets serviceaccounts services services/proxy
  create core: serviceaccounts/token
  write core,events.k8s.io: events
  write apps: daemonsets deployments deployments/rollback deployments/scale replicasets
    replicasets/scale statefulsets statefulsets/scale
  write autoscaling: horizontalpodautoscalers
  write batch: cronjobs jobs
  write extensions: daemonsets deployments deployments/rollback deployments/scale ingresses
    networkpolicies replicasets replicasets/scale replicationcontrollers/scale
  write policy: poddisruptionbudgets
  write networking.k8s.io: ingresses networkpolicies
  read,write coordination.k8s.io: leases
  write resource.k8s.io: resourceclaims resourceclaimtemplates
system:aggregate-to-view
  read core: configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods
    replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status
  read core: bindings limitranges namespaces/status pods/log pods/status
    replicationcontrollers/status resourcequotas resourcequotas/status
  read core: namespaces
  read core,events.k8s.io: events
  read discovery.k8s.io: endpointslices
  read apps: controllerrevisions daemonsets daemonsets/status deployments deployments/scale
    deployments/status replicasets replicasets/scale replicasets/status statefulsets
    statefulsets/scale statefulsets/status
  read autoscaling: horizontalpodautoscalers horizontalpodautoscalers/status
  read batch: cronjobs cronjobs/status jobs jobs/status
  read extensions: daemonsets daemonsets/status deployments deployments/scale deployments/status
    ingresses ingresses/status networkpolicies replicasets replicasets/scale replicasets/status
    replicationcontrollers/scale
  read policy: poddisruptionbudgets poddisruptionbudgets/status
  read networking.k8s.io: ingresses ingresses/status networkpolicies
  read resource.k8s.io: resourceclaims resourceclaims/status resourceclaimtemplates
system:auth-delegator
  create authentication.k8s.io: tokenreviews
  create authorization.k8s.io: subjectaccessreviews
system:basic-user
  create authorization.k8s.io: selfsubjectaccessreviews selfsubjectrulesreviews
  create authentication.k8s.io: selfsubjectreviews
system:certificates.k8s.io:certificatesigningrequests:nodeclient
  create certificates.k8s.io: certificatesigningrequests/nodeclient
system:certificates.k8s.io:certificatesigningrequests:selfnodeclient
  create certificates.k8s.io: certificatesigningrequests/selfnodeclient
system:certificates.k8s.io:kube-apiserver-client-approver
  approve certificates.k8s.io: signers named kubernetes.io/kube-apiserver-client
system:certificates.k8s.io:kube-apiserver-client-kubelet-approver
  approve certificates.k8s.io: signers named kubernetes.io/kube-apiserver-client-kubelet
system:certificates.k8s.io:kubelet-serving-approver
  approve certificates.k8s.io: signers named kubernetes.io/kubelet-serving
system:certificates.k8s.io:legacy-unknown-approver
  approve certificates.k8s.io: signers named kubernetes.io/legacy-unknown
system:discovery
  get /api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/
system:heapster
  read core: events namespaces nodes pods
  read extensions: deployments
system:kube-aggregator
  read core: endpoints services
system:kube-controller-manager
  report
  create coordination.k8s.io: leases
  get,update coordination.k8s.io: leases named kube-controller-manager
  create core: secrets serviceaccounts
  delete core: secrets
  get core: configmaps namespaces secrets serviceaccounts
  update core: secrets serviceaccounts
  create authentication.k8s.io: tokenreviews
  create authorization.k8s.io: subjectaccessreviews
  list,watch *: *
  create core: serviceaccounts/token
system:kube-dns
  list,watch core: endpoints services
system:kube-scheduler
  report
  create coordination.k8s.io: leases
  read,update coordination.k8s.io: leases named kube-scheduler
  read,write coordination.k8s.io: leasecandidates
  read core: nodes
  read,delete core: pods
  create core: bindings pods/binding
  update,patch core: pods/status
  read core: replicationcontrollers services
  read apps,extensions: replicasets
  read apps: statefulsets
  read policy: poddisruptionbudgets
  read core: persistentvolumeclaims persistentvolumes
  create authentication.k8s.io: tokenreviews
  create authorization.k8s.io: subjectaccessreviews
  read storage.k8s.io: csinodes
  read storage.k8s.io: volumeattachments
  read core: namespaces
  read storage.k8s.io: csidrivers
  read storage.k8s.io: csistoragecapacities
  read resource.k8s.io: deviceclasses
  read,update,patch resource.k8s.io: resourceclaims
  read,update,patch resource.k8s.io: resourceclaims/status
  update core: pods/finalizers
  read resource.k8s.io: resourceslices
  create,delete resource.k8s.io: resourceclaims
  update,patch resource.k8s.io: resourceclaims/binding
system:kubelet-api-admin
  read core: nodes
  proxy core: nodes
  * core: nodes/log nodes/metrics nodes/proxy nodes/stats
  * core: nodes/configz nodes/healthz nodes/pods
system:monitoring
  get /flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz
  get core: nodes/metrics
system:node
  create authentication.k8s.io: tokenreviews
  create authorization.k8s.io: localsubjectaccessreviews subjectaccessreviews
  read core: services
  read,create core: nodes
  update,patch core: nodes/status
  update,patch core: nodes
  report
  read core: pods
  create,delete core: pods
  update,patch core: pods/status
  create core: pods/eviction
  read core: configmaps secrets
  get core: persistentvolumeclaims persistentvolumes
  get core: endpoints
  read,create certificates.k8s.io: certificatesigningrequests
  get,create,update,patch,delete coordination.k8s.io: leases
  get storage.k8s.io: volumeattachments
  create core: serviceaccounts/token
  get,update,patch core: persistentvolumeclaims/status
  read storage.k8s.io: csidrivers
  get,create,update,patch,delete storage.k8s.io: csinodes
  read node.k8s.io: runtimeclasses
  get resource.k8s.io: resourceclaims
  deletecollection resource.k8s.io: resourceslices
  get core: serviceaccounts
system:node-bootstrapper
  read,create certificates.k8s.io: certificatesigningrequests
system:node-problem-detector
  get core: nodes
  patch core: nodes/status
  report
system:node-proxier
  list,watch core: endpoints services
  read core: nodes
  report
  list,watch networking.k8s.io: servicecidrs
  list,watch discovery.k8s.io: endpointslices
system:persistent-volume-provisioner
  read,create,delete core: persistentvolumes
  read,update core: persistentvolumeclaims
  read storage.k8s.io: storageclasses
  watch core: events
  report
system:public-info-viewer
  get /healthz /livez /readyz /version /version/
system:service-account-issuer-discovery
  get /.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks
    /openid/v1/jwks/
system:volume-scheduler
  read,update,patch core: persistentvolumes
  read storage.k8s.io: storageclasses
  read,update,patch core: persistentvolumeclaims
"""

ADDED = """\
system:aggregated-metrics-reader
  read metrics.k8s.io: nodes pods
  read metrics: persistentvolumeclaims pods
system:aggregated-scheduling-decisions-reader
  get,list scheduling.kedge: schedulingdecisions
"""
"""The rules of upstream's metrics-server and for the decisions of the scheduler, aggregated into
view, edit and admin."""

AGENT = """\
kedge:node
  list,watch discovery.k8s.io: endpointslices
  list,watch core: namespaces
  list,watch networking.k8s.io: networkpolicies
  read storage.k8s.io: storageclasses
"""
"""Further rules of nodes. With upstream, kube-proxy, CoreDNS and the network plugin have them:
kedge's agent does their work. The role `system:node` stays as it is upstream."""

NODE_ROLE: Final = "kedge:node"
ELSEWHERE = """\
kedge:node
  list,watch core: nodes pods
  list,watch,update,patch core: persistentvolumes
  get,create,update,patch,delete storage.k8s.io: csistoragecapacities
"""
"""Further rules of nodes on a kube-apiserver, beside AGENT. On kedge the node authorizer grants
less: volumes and free space of this node, and of other pods only labels and addresses."""

CONTROLLERS = """\
attachdetach-controller
  list,watch core: persistentvolumeclaims persistentvolumes
  read core: nodes
  update,patch core: nodes/status
  list,watch core: pods
  report
  read,create,delete storage.k8s.io: volumeattachments
  read storage.k8s.io: csidrivers
  read storage.k8s.io: csinodes
certificate-controller
  read,delete certificates.k8s.io: certificatesigningrequests
  update certificates.k8s.io: certificatesigningrequests/approval
    certificatesigningrequests/status
  approve certificates.k8s.io: signers named kubernetes.io/kube-apiserver-client-kubelet
  sign certificates.k8s.io: signers named kubernetes.io/kube-apiserver-client
    kubernetes.io/kube-apiserver-client-kubelet kubernetes.io/kubelet-serving
    kubernetes.io/legacy-unknown
  create authorization.k8s.io: subjectaccessreviews
  report
clusterrole-aggregation-controller
  read,update,patch,escalate rbac.authorization.k8s.io: clusterroles
cronjob-controller
  read,update batch: cronjobs
  read,create,update,patch,delete batch: jobs
  update batch: cronjobs/status
  update batch: cronjobs/finalizers
  list,watch,delete core: pods
  report
daemon-set-controller
  read apps,extensions: daemonsets
  update apps,extensions: daemonsets/status
  update apps,extensions: daemonsets/finalizers
  list,watch core: nodes
  list,watch,create,patch,delete core: pods
  create core: pods/binding
  read,create,update,patch,delete apps: controllerrevisions
  report
deployment-controller
  read,update apps,extensions: deployments
  update apps,extensions: deployments/status
  update apps,extensions: deployments/finalizers
  read,create,update,patch,delete apps,extensions: replicasets
  read,update core: pods
  report
device-taint-eviction-controller
  read,delete core: pods
  update,patch core: pods/status
  read resource.k8s.io: resourceclaims
  read resource.k8s.io: resourceslices
  read resource.k8s.io: deviceclasses
  report
disruption-controller
  read apps,extensions: deployments
  read apps,extensions: replicasets
  read core: replicationcontrollers
  read policy: poddisruptionbudgets
  read apps: statefulsets
  update policy: poddisruptionbudgets/status
  update,patch core: pods/status
  get *: */scale
  report
endpoint-controller
  read core: pods services
  read,create,update,delete core: endpoints
  create core: endpoints/restricted
  report
endpointslice-controller
  read core: nodes pods services
  update core: services/finalizers
  read,create,update,delete discovery.k8s.io: endpointslices
  report
endpointslicemirroring-controller
  read core: endpoints services
  update core: services/finalizers
  update core: endpoints/finalizers
  read,create,update,delete discovery.k8s.io: endpointslices
  report
ephemeral-volume-controller
  read core: pods
  update core: pods/finalizers
  read,create core: persistentvolumeclaims
  report
expand-controller
  read,update,patch core: persistentvolumes
  update,patch core: persistentvolumeclaims/status
  read core: persistentvolumeclaims
  report
generic-garbage-collector
  read,update,patch,delete *: *
  report
horizontal-pod-autoscaler
  read autoscaling: horizontalpodautoscalers
  update autoscaling: horizontalpodautoscalers/status
  get,update *: */scale
  list,watch core: pods
  list,watch metrics.k8s.io: pods
  read custom.metrics.k8s.io: *
  read external.metrics.k8s.io: *
  report
job-controller
  read,update,patch batch: jobs
  update batch: jobs/status
  update batch: jobs/finalizers
  list,watch,create,patch,delete core: pods
  report
legacy-service-account-token-cleaner
  get core: configmaps named kube-apiserver-legacy-service-account-token-tracking
  patch,delete core: secrets
namespace-controller
  read,delete core: namespaces
  update core: namespaces/finalize namespaces/status
  read,delete,deletecollection *: *
node-controller
  read,update,patch,delete core: nodes
  update,patch core: nodes/status
  update,patch core: pods/status
  read,delete core: pods
  report
persistent-volume-binder
  read,create,update,delete core: persistentvolumes
  update core: persistentvolumes/status
  read,update core: persistentvolumeclaims
  update core: persistentvolumeclaims/status
  read,create,delete core: pods
  read storage.k8s.io: storageclasses
  list,watch core: nodes
  report
  watch core: events
pod-garbage-collector
  list,watch,delete core: pods
  read core: nodes
  patch core: pods/status
pv-protection-controller
  read,update core: persistentvolumes
  report
pvc-protection-controller
  read,update core: persistentvolumeclaims
  update core: persistentvolumeclaims/status
  read core: pods
  report
replicaset-controller
  read,update apps,extensions: replicasets
  update apps,extensions: replicasets/status
  update apps,extensions: replicasets/finalizers
  list,watch,create,patch,delete core: pods
  report
replication-controller
  read,update core: replicationcontrollers
  update core: replicationcontrollers/status
  update core: replicationcontrollers/finalizers
  list,watch,create,patch,delete core: pods
  report
resource-claim-controller
  read core: pods
  update core: pods/finalizers
  read,create,delete resource.k8s.io: resourceclaims
  update,patch resource.k8s.io: resourceclaims resourceclaims/status
  update,patch core: pods/status
  report
  update,patch resource.k8s.io: resourceclaims/binding
resourcequota-controller
  list,watch *: *
  update core: resourcequotas/status
  report
root-ca-cert-publisher
  create,update core: configmaps
  report
route-controller
  list,watch core: nodes
  patch core: nodes/status
  report
selinux-warning-controller
  report
  read core: persistentvolumes
  read core: persistentvolumeclaims
  read core: pods
  read storage.k8s.io: csidrivers
service-account-controller
  create core: serviceaccounts
  report
service-cidrs-controller
  read,update,patch networking.k8s.io: servicecidrs
  update,patch networking.k8s.io: servicecidrs/finalizers
  update,patch networking.k8s.io: servicecidrs/status
  read networking.k8s.io: ipaddresses
  report
service-controller
  read core: services
  update,patch core: services/status
  list,watch core: nodes
  report
statefulset-controller
  list,watch core: pods
  read apps: statefulsets
  update apps: statefulsets/status
  update apps: statefulsets/finalizers
  get,create,update,patch,delete core: pods
  read,create,update,patch,delete apps: controllerrevisions
  read,create core: persistentvolumeclaims
  update,delete core: persistentvolumeclaims
  update core: pods/finalizers
  report
ttl-after-finished-controller
  read,delete batch: jobs
  report
ttl-controller
  list,watch,update,patch core: nodes
  report
validatingadmissionpolicy-status-controller
  read admissionregistration.k8s.io: validatingadmissionpolicies
  get,update,patch admissionregistration.k8s.io: validatingadmissionpolicies/status
  report
volumeattributesclass-protection-controller
  read core: persistentvolumeclaims
  read core: persistentvolumes
  read,update storage.k8s.io: volumeattributesclasses
  report
"""
"""Each controller's cluster role, under the controller's name."""

ROLES = """\
kube-public/system:controller:bootstrap-signer
  read core: configmaps
  update core: configmaps named cluster-info
  report
kube-system/extension-apiserver-authentication-reader
  read core: configmaps named extension-apiserver-authentication
kube-system/system::leader-locking-kube-controller-manager
  read,create,update coordination.k8s.io: leases
  read,create,update coordination.k8s.io: leasecandidates
kube-system/system::leader-locking-kube-scheduler
  read,create,update coordination.k8s.io: leases
  read,create,update coordination.k8s.io: leasecandidates
kube-system/system:controller:bootstrap-signer
  read core: secrets
kube-system/system:controller:cloud-provider
  read,create core: configmaps
kube-system/system:controller:token-cleaner
  read,delete core: secrets
  report
"""
"""Roles within namespaces, as namespace/name."""

SUMS = {"admin": "", "edit": "admin", "view": "edit"}
"""Cluster roles that are the sum of others, each with the sum that it is itself a part of."""

CLUSTER_BINDINGS = {
    "cluster-admin": "Group system:masters",
    "system:basic-user": "Group system:authenticated",
    "system:discovery": "Group system:authenticated",
    "system:kube-controller-manager": "User system:kube-controller-manager",
    "system:kube-dns": "ServiceAccount kube-dns",
    "system:kube-scheduler": "User system:kube-scheduler",
    "system:monitoring": "Group system:monitoring",
    # Nodes have an authorizer of their own; upstream keeps the binding without subjects.
    "system:node": "",
    "system:node-proxier": "User system:kube-proxy",
    "system:public-info-viewer": "Group system:authenticated, Group system:unauthenticated",
    "system:service-account-issuer-discovery": "Group system:serviceaccounts",
    "system:volume-scheduler": "User system:kube-scheduler",
}
"""The subjects of each cluster role; each controller's service account has its own role besides."""

BINDINGS = {
    "kube-public/system:controller:bootstrap-signer": "ServiceAccount bootstrap-signer",
    "kube-system/extension-apiserver-authentication-reader": (
        "User system:kube-controller-manager, User system:kube-scheduler"
    ),
    "kube-system/system::leader-locking-kube-controller-manager": (
        "User system:kube-controller-manager, ServiceAccount kube-controller-manager, "
        "ServiceAccount leader-election-controller"
    ),
    "kube-system/system::leader-locking-kube-scheduler": (
        "User system:kube-scheduler, ServiceAccount kube-scheduler"
    ),
    "kube-system/system:controller:bootstrap-signer": "ServiceAccount bootstrap-signer",
    "kube-system/system:controller:cloud-provider": "ServiceAccount cloud-provider",
    "kube-system/system:controller:token-cleaner": "ServiceAccount token-cleaner",
}
"""The subjects of each role within a namespace."""

BINDING_NAMES = {
    "extension-apiserver-authentication-reader": "system::extension-apiserver-authentication-reader"
}
"""Bindings that are not called as their role is."""
