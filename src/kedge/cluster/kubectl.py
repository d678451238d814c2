"""Runs kubectl against a cluster."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kedge.cluster.errors import ClusterError


def run(
    kubeconfig: Path, namespace: str, arguments: Sequence[str], *, text: str, check: bool
) -> str:
    """Return the output of kubectl; raises ClusterError with its message if it fails."""
    program = shutil.which("kubectl")
    if program is None:
        raise ClusterError("kubectl is not in $PATH: install it, or use the methods of the cluster")
    where = [f"--kubeconfig={kubeconfig}", f"--namespace={namespace}"]
    done = subprocess.run(
        [program, *where, *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
    )
    if check and done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise ClusterError(f"kubectl {' '.join(arguments)}: exit code {done.returncode}: {said}")
    return done.stdout
