"""Compare two API servers: `python -m tests.differential --help`."""

import argparse
import asyncio
from pathlib import Path

from tests.differential import probes, report, schemas, sequences, walks
from tests.differential.cases import Kind
from tests.differential.comparison import Figures, compare

from kedge.client import login
from kedge.client.transport import Transport

_DESCRIPTION = """\
Send generated requests to two API servers and compare their answers. A server is given by the path
of a kubeconfig, or by a URL and a token (`https://127.0.0.1:6443,TOKEN`; its certificate is not
verified). The requests write to the namespace "differential" and to objects of the cluster: use
clusters without controllers that can be thrown away.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=_DESCRIPTION)
    parser.add_argument(
        "reference", help="the server whose answers are right, and whose schemas are used"
    )
    parser.add_argument("candidate", help="the server to compare with it")
    parser.add_argument(
        "--count", type=int, default=20_000, help="changes of single fields (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the selection (%(default)s)")
    parser.add_argument(
        "--kind", action="append", default=[], help="only kinds whose name begins with this"
    )
    parser.add_argument("--walks", type=int, default=0, help="random requests (%(default)s)")
    parser.add_argument("--no-sequences", action="store_true", help="only changes of single fields")
    parser.add_argument("--page", type=Path, help="the file to write the figures to, as Markdown")
    parser.add_argument(
        "--causes", type=Path, help="the file to write the differences to, by cause"
    )
    options = parser.parse_args()
    figures, versions = asyncio.run(_run(options))
    page = report.page(figures, versions)
    if options.page:
        options.page.write_text(page)
    if options.causes:
        options.causes.write_text("\n".join(report.causes(figures)) + "\n")
    print(page)


async def _run(options: argparse.Namespace) -> tuple[Figures, str]:
    version, kinds = await _published(options)
    cases = [] if options.no_sequences else list(sequences.sequences(kinds))
    cases += probes.probes(kinds, options.count, options.seed)
    cases += walks.walks(kinds, options.walks, options.seed)
    # Connected only now: to make the cases may take longer than a server keeps idle connections.
    reference, candidate = _server(options.reference), _server(options.candidate)
    try:
        figures = await compare(reference, candidate, kinds, cases)
    finally:
        await reference.close()
        await candidate.close()
    return figures, f"Kubernetes {version.removeprefix('v')} and kedge, {_scope(options)}"


def _scope(options: argparse.Namespace) -> str:
    parts = [
        "" if options.no_sequences else "sequences",
        "changes of single fields" if options.count else "",
        "walks" if options.walks else "",
    ]
    return ", ".join(filter(None, parts))


async def _published(options: argparse.Namespace) -> tuple[str, list[Kind]]:
    """Return the version of the reference, and its kinds that were asked for."""
    reference = _server(options.reference)
    try:
        found = await schemas.kinds(reference)
        version = await schemas.version(reference)
    finally:
        await reference.close()
    wanted = tuple(options.kind)
    return version, [each for each in found if not wanted or each.label.startswith(wanted)]


def _server(text: str) -> Transport:
    if not text.startswith(("http:", "https:")):
        return login.read([Path(text)]).transport()
    url, _, token = text.partition(",")
    access = login.Login(context=url, file=Path(), server=url, insecure=True, token=token)
    return access.transport()


main()
