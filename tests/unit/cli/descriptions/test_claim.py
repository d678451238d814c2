"""Claims, described."""

from datetime import UTC, datetime

from kedge.cli.descriptions.kinds import describe
from kedge.cli.descriptions.parts import RelatedObjects

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def test_a_claim_tells_its_volume_its_nodes_and_its_pods() -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "shop", "finalizers": ["a", "b"]},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "2Gi"}},
            "storageClassName": "standard",
            "volumeMode": "Filesystem",
            "volumeName": "pv-1",
        },
        "status": {
            "phase": "Bound",
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "conditions": [{"type": "NodeResizeError", "status": "True", "message": "no space"}],
        },
    }
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    pods = [
        {"metadata": {"name": "db-0"}, "spec": {"nodeName": "node-1", "volumes": [volume]}},
        {"metadata": {"name": "web"}, "spec": {"volumes": []}},
    ]
    about = RelatedObjects(now=NOW, pods=pods, volume={"spec": {}}, events=[])
    assert describe(claim, about) == (
        """\
Name:          data
Namespace:     shop
StorageClass:  standard
Status:        Bound
Volume:        pv-1
Nodes:         <any>
Waits For:     NodeResizeError: no space
Labels:        <none>
Annotations:   <none>
Finalizers:    [a b]
Requested:     2Gi
Capacity:      1Gi
Access Modes:  RWO
VolumeMode:    Filesystem
Used By:       db-0 on node-1
Conditions:
  Type             Status  Message
  NodeResizeError  True    no space
Events:            <none>"""
    )
