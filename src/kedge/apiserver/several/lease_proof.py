"""LeaseProof: what a server writes into its Lease, and only those who have the cluster's keys can.

Operators that elect leaders in kube-system may write Leases there. Without a proof, such a Lease
could name any address as that of a server.
"""

import hmac
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

import msgspec

URL: Final = "kedge.io/server-url"
"""The annotation with the address at which other servers reach this one."""
ADDRESS: Final = "kedge.io/advertised-address"
"""The annotation with the host and the port of a server for pods and other machines."""
BOOT: Final = "kedge.io/server-boot"
"""The annotation with the start of the machine: a process of another start cannot be one before."""
REVISION: Final = "kedge.io/server-revision"
"""The annotation with a revision of the store before the renewal. Each renewal of a server has a
higher one than those before, also after a restart with a clock that was set back."""
PROOF: Final = "kedge.io/server-proof"
"""The annotation with the proof."""


class LeaseProof:
    """Signs the Lease of a server, and checks those of others."""

    def __init__(self, secret: bytes) -> None:
        """The secret is that of all servers of a cluster."""
        self._key = sha256(b"kedge server lease\0" + secret).digest()

    @classmethod
    def of_keys(cls, pki: Path) -> Self:
        """Return the proof of those who have the keys in this directory."""
        return cls((pki / "sa.key").read_bytes())

    def of(self, document: Mapping[str, Any]) -> str:
        """Return the proof that belongs to a Lease."""
        return hmac.new(self._key, _signed(document), sha256).hexdigest()

    def fits(self, document: Mapping[str, Any]) -> bool:
        """Whether a server of this cluster wrote the Lease as it is."""
        found = (document["metadata"].get("annotations") or {}).get(PROOF, "")
        return hmac.compare_digest(found.encode(), self.of(document).encode())


def _signed(document: Mapping[str, Any]) -> bytes:
    """Return all that others rely on. With the revision, an old Lease is no proof that the server
    still lives."""
    notes = document["metadata"].get("annotations") or {}
    spec = document.get("spec") or {}
    name = document["metadata"]["name"]
    facts = (name, *(notes.get(note) for note in (URL, ADDRESS, BOOT, REVISION)))
    times = spec.get("acquireTime"), spec.get("renewTime")
    return msgspec.json.encode((*facts, spec.get("holderIdentity"), *times))
