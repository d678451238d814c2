"""The size of an installation, and how soon the command answers.

Builds the wheel of this checkout, downloads the wheels of the locked dependencies, and installs all
of them in a new virtual environment without the network. The bar: 30 MB of wheels.

    bench/installation.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
BAR_MEGABYTES: Final = 30.0
LARGEST: Final = 6


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        wheels, environment = Path(folder, "wheels"), Path(folder, "venv")
        download(wheels)
        seconds = timed([sys.executable, "-m", "venv", environment])
        pip = [environment / "bin" / "pip", "install", "--quiet", "--no-index"]
        seconds += timed([*pip, "--find-links", wheels, "kedge"])
        sizes = sorted((each.stat().st_size / 1e6, each.name) for each in wheels.iterdir())
        total = sum(size for size, _ in sizes)
        for size, name in sizes[-LARGEST:]:
            print(f"  {size:6.1f} MB  {name}")
        print(f"{len(sizes)} wheels: {total:.1f} MB (bar {BAR_MEGABYTES:.0f})")
        print(f"on disk with pip: {weight(environment):.0f} MB")
        print(f"installed from the wheels in {seconds:.1f} s")
        print(f"kedge --version: {timed([environment / 'bin/kedge', '--version']) * 1000:.0f} ms")
    return 1 if total > BAR_MEGABYTES else 0


def download(wheels: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    locked = ROOT / "requirements" / "run.txt"
    run(
        [
            *pip,
            "download",
            "--no-deps",
            "--require-hashes",
            "--requirement",
            locked,
            "--dest",
            wheels,
        ]
    )
    # setuptools is locked to build kedge; a user of the wheel does not need it.
    for each in wheels.glob("setuptools-*"):
        each.unlink()
    with tempfile.TemporaryDirectory() as copy:
        # A build leaves its files in the checkout, and the next one would pack them.
        run(["git", "-C", ROOT, "clone", "--quiet", "--depth=1", f"file://{ROOT}", copy])
        run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, copy])


def timed(command: list[object]) -> float:
    begun = perf_counter()
    run(command)
    return perf_counter() - begun


def run(command: list[object]) -> None:
    subprocess.run([str(each) for each in command], check=True, stdout=subprocess.DEVNULL)


def weight(folder: Path) -> float:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files) / 1e6


if __name__ == "__main__":
    sys.exit(main())
