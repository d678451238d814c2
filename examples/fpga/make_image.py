"""Build the root file system of the demo: its script, and some programs of this machine.

python make_image.py DIRECTORY
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = ("sh", "cat", "ls", "sleep")
HERE = Path(__file__).parent


def main(directory: str) -> None:
    root = Path(directory)
    shutil.copytree(HERE / "image", root)
    for name in ("bin", "dev", "etc", "proc", "sys", "tmp", "run"):
        (root / name).mkdir()
    for name in PROGRAMS:
        program = shutil.which(name) or sys.exit(f"there is no program {name} on this machine")
        shutil.copy(program, root / "bin" / name)
        for library in libraries(program):
            place = root / library.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)


def libraries(program: str) -> list[str]:
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return re.findall(r"(/\S+) \(0x", listed)


if __name__ == "__main__":
    main(*sys.argv[1:])
