"""Paths of kubeconfig files; reading them needs a YAML library and is in `kubeconfig`."""

import os
from pathlib import Path


def path_to_change(listed: str, home: Path) -> Path:
    """The file kubectl would change, `listed` being the value of $KUBECONFIG.

    Of several files that is the first that exists, else the last.
    """
    files = [Path(name) for name in listed.split(os.pathsep) if name]
    existing = (file for file in files if file.exists())
    return next(existing, files[-1] if files else home / ".kube" / "config")


def paths_to_read(listed: str, home: Path) -> list[Path]:
    """The files kubectl would read, `listed` being the value of $KUBECONFIG."""
    return [Path(name) for name in listed.split(os.pathsep) if name] or [home / ".kube" / "config"]
