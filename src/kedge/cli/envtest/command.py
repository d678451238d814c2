"""`kedge envtest`: programs for the tests of operators that are written in Go."""

import hashlib
import os
import shlex
import shutil
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from kedge import KUBERNETES, __version__

DESCRIPTION: Final = """\
Print a directory for $KUBEBUILDER_ASSETS, so that tests with controller-runtime's envtest run on
kedge, unchanged. It has the programs kube-apiserver and etcd, and a link to kubectl, if there is
one.

As with envtest's own programs, there are no controllers, no scheduler and no nodes. The API server
is that of kedge, and starts in a fraction of the time. The directory stays, and is used again."""
EXAMPLES: Final = """\
  # The tests of an operator
  KUBEBUILDER_ASSETS=$(kedge envtest) go test ./...

  # In a Makefile of kubebuilder, instead of setup-envtest
  KUBEBUILDER_ASSETS="$(shell kedge envtest)" go test ./... -coverprofile cover.out"""

OWN_WORDS: Final = b'of "kedge envtest"'
"""In the help of each program, and so near its beginning."""
HEAD_BYTES: Final = 4096


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="where to write the programs (default: below $XDG_CACHE_HOME/kedge)",
    )


def run(flags: Namespace) -> int:
    from kedge.cli.envtest.etcd import HELP
    from kedge.cli.envtest.flags import help_text
    from kedge.cli.failure import Failure

    directory = (flags.directory or default_directory(dict(os.environ))).absolute()
    here = Path(__file__).parent
    python = shlex.quote(sys.executable)
    version = f"Kubernetes v{KUBERNETES}"
    programs = {
        "etcd": script(
            HELP, "etcd Version: 3.6.0", f"{python} -I -S {shlex.quote(str(here / 'etcd.py'))}"
        ),
        "kube-apiserver": script(
            help_text(), version, f"{python} -P -m kedge.cli.envtest.apiserver"
        ),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in programs:
            refuse_foreign(directory / name)
        for name, content in programs.items():
            write(directory / name, content)
        link_kubectl(directory)
    except OSError as error:
        raise Failure(f"cannot write the programs to {directory}: {error.strerror}") from None
    print(directory)
    return 0


def default_directory(environment: dict[str, str]) -> Path:
    """Return a directory for this release and this interpreter of Python."""
    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    which = hashlib.sha256(sys.executable.encode()).hexdigest()[:8]
    return cache / "kedge" / f"envtest-{__version__}-{which}"


def script(help_text: str, version: str, command: str) -> str:
    """Return a program that answers --help and --version at once: envtest asks for flags before
    each start."""
    return f"""#!/bin/sh
for each in "$@"; do
  case "$each" in
    --help|-h) cat <<'KEDGE'
{help_text}KEDGE
      exit 0 ;;
    --version) echo {shlex.quote(version)}; exit 0 ;;
  esac
done
exec {command} "$@"
"""


def refuse_foreign(path: Path) -> None:
    """Raise Failure if a file there is not a program of this command, such as the real etcd."""
    from kedge.cli.failure import Failure

    if not path.exists():
        return
    with path.open("rb") as program:
        if OWN_WORDS not in program.read(HEAD_BYTES):
            what = "it is not of kedge, and is not replaced"
            raise Failure(f"{path} exists: {what}; choose another directory with --directory")


def write(path: Path, content: str) -> None:
    """Write a program, at once: another test may be about to start it."""
    if path.exists() and path.read_bytes() == content.encode():
        return
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(content)
    new.chmod(0o755)
    new.replace(path)


def link_kubectl(directory: Path) -> None:
    """Link kubectl if there is one and none is linked."""
    found, link = shutil.which("kubectl"), directory / "kubectl"
    if found is None or link.exists() or Path(found).parent == directory:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(found)
