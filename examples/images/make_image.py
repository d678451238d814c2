"""Build an image of some programs of this machine, with Python only.

python make_image.py ARCHIVE NAME PROGRAM...
"""

import gzip
import hashlib
import io
import json
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"


def main(archive: str, name: str, *programs: str) -> None:
    """Write an archive with one image: a configuration, a manifest and one layer."""
    layer = make_layer(programs)
    config = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sh"], "Labels": {"made-by": "hand"}},
        # The diff ID of a layer is the digest of its uncompressed content.
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
    }
    blobs = Blobs()
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blobs.add("config.v1+json", json.dumps(config).encode()),
        "layers": [blobs.add("layer.v1.tar+gzip", gzip.compress(layer, mtime=0))],
    }
    listed = blobs.add("manifest.v1+json", json.dumps(manifest).encode())
    listed["annotations"] = {"io.containerd.image.name": name}
    with tarfile.open(archive, "w") as tar:
        add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": [listed]}).encode())
        for path, content in blobs.files.items():
            add(tar, path, content)
    print(f"{archive}: {name} with {', '.join(programs)}")


def make_layer(programs: tuple[str, ...]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for directory in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            member = tarfile.TarInfo(directory)
            member.type, member.mode = tarfile.DIRTYPE, 0o1777 if directory == "tmp" else 0o755
            tar.addfile(member)
        add(tar, "etc/passwd", PASSWD.encode())
        for program in programs:
            path = shutil.which(program)
            if path is None:
                sys.exit(f"there is no program {program} on this machine")
            add(tar, f"bin/{program}", Path(path).read_bytes(), 0o755)
        for library in libraries(programs):
            add(tar, library.lstrip("/"), Path(library).read_bytes(), 0o755)
    return buffer.getvalue()


def libraries(programs: tuple[str, ...]) -> list[str]:
    """Return the shared libraries of the programs."""
    paths = [str(shutil.which(program)) for program in programs]
    said = subprocess.run(["ldd", *paths], capture_output=True, text=True, check=False).stdout
    return sorted(set(re.findall(r"(/\S+) \(0x", said)))


def add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    tar.addfile(member, io.BytesIO(content))


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Blobs:
    """Add content under its digest."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def add(self, kind: str, content: bytes) -> dict[str, object]:
        known = digest(content)
        self.files[f"blobs/{known.replace(':', '/')}"] = content
        media_type = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media_type, "digest": known, "size": len(content)}


if __name__ == "__main__":
    main(*sys.argv[1:])
