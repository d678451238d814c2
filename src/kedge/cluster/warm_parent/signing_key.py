"""The key that signs service account tokens, shared by the clusters of one warm parent."""

import tempfile
from pathlib import Path

from kedge.apiserver.authentication.keys import SigningKey


class SharedSigningKey:
    """Files of one RSA key. To make a key takes a tenth of a second; tokens name their issuer and
    a cluster knows only its own service accounts."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory(prefix="kedge-key-") as place:
            SigningKey(Path(place)).prepare()
            self._files = {each.name: each.read_bytes() for each in Path(place).iterdir()}

    def put(self, pki: Path) -> None:
        """Write the key where the server of a cluster looks for it, unless it has one."""
        pki.mkdir(mode=0o700, exist_ok=True)
        for name, content in self._files.items():
            path = pki / name
            if not path.exists():
                path.touch(mode=0o600)
                path.write_bytes(content)
