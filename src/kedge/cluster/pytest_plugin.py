"""The pytest plugin: clusters as fixtures, and reports about them when a test fails.

pytest loads this module in every run of an environment that has kedge, so it imports kedge only
where a test uses it. A run that uses no fixture of kedge does not change.
"""

import os
import shutil
import tempfile
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from kedge.cluster.cluster import Cluster
    from kedge.cluster.namespace import ClusterNamespace
    from kedge.cluster.needs import MachineNeeds
    from kedge.cluster.sync_client import BlockingClient

VARIABLE: Final = "KUBECONFIG"
INI: Final = "kedge_kubeconfig"
FIXTURES: Final = ("kedge_namespace", "kedge_fresh_cluster", "kedge_cluster")
"""The fixtures that give a cluster, in the order in which a report looks for them."""
MARKER: Final = (
    "kedge(root=False, level='', nodes=None, simulated_nodes=None, **settings): needs of a test,"
    " without which it is skipped, and settings of kedge_fresh_cluster"
)
NODES: Final = {
    "nodes": ("nodes", "simulation.kedge.dev/node!=true"),
    "simulated_nodes": ("simulated nodes", "simulation.kedge.dev/node=true"),
}
"""By keyword of the marker: which nodes it counts, and the labels that they have."""
_KUBECONFIG: Final = pytest.StashKey[Path]()
_BEFORE: Final = pytest.StashKey["str | None"]()
_FAILED: Final = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kedge", "clusters for tests")
    group.addoption(
        "--kedge-existing",
        nargs="?",
        const="",
        default=None,
        metavar="KUBECONFIG",
        help="use a running cluster for kedge_cluster and kedge_namespace: that of this file, or of"
        " $KUBECONFIG",
    )
    group.addoption(
        "--kedge-keep-on-failure",
        action="store_true",
        help="keep the cluster and the namespace of a failed test, and print how to reach them",
    )
    parser.addini(
        INI,
        "set $KUBECONFIG to the cluster of the session before tests are imported (default: false)",
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    if not config.getini(INI) or config.getoption("kedge_existing") is not None:
        return
    # The packages kubernetes and kopf read the variable when they are imported, long before the
    # first fixture. Each worker of pytest-xdist has a file of its own.
    path = Path(tempfile.mkdtemp(prefix="kedge-pytest-")) / "kubeconfig"
    config.stash[_KUBECONFIG] = path
    config.stash[_BEFORE] = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(path)


def pytest_unconfigure(config: pytest.Config) -> None:
    path = config.stash.get(_KUBECONFIG, None)
    if path is None:
        return
    if config.stash[_BEFORE] is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = config.stash[_BEFORE] or ""
    shutil.rmtree(path.parent, ignore_errors=True)


@pytest.fixture(scope="session")
def kedge_settings() -> Mapping[str, Any]:
    """The settings of clusters; override this fixture to change them."""
    return {}


@pytest.fixture(scope="session")
def kedge_cluster(
    request: pytest.FixtureRequest, kedge_settings: Mapping[str, Any]
) -> "Iterator[BlockingClient[Any]]":
    """A cluster for all tests of the session, or of one worker of pytest-xdist."""
    existing = request.config.getoption("kedge_existing")
    if existing is not None:
        from kedge.cluster.needs import existing_kubeconfig
        from kedge.cluster.sync_client import ClusterClient

        with ClusterClient(existing_kubeconfig(existing, os.environ)) as client:
            yield client
        return
    from kedge.cluster.cluster import Cluster

    file = request.config.stash.get(_KUBECONFIG, None)
    with Cluster(**{"kubeconfig": file, **kedge_settings}) as cluster:
        yield cluster
        if _keeps(request.config) and request.session.testsfailed:
            cluster.keep()


@pytest.fixture
def kedge_namespace(
    request: pytest.FixtureRequest, kedge_cluster: "BlockingClient[Any]"
) -> "Iterator[ClusterNamespace]":
    """A new namespace of the session's cluster, with a kubeconfig and a service account of its
    own."""
    with kedge_cluster.new_namespace() as namespace:
        yield namespace
        if _keeps(request.config) and request.node.stash.get(_FAILED, False):
            namespace.keep()


@pytest.fixture
def kedge_fresh_cluster(
    request: pytest.FixtureRequest, kedge_settings: Mapping[str, Any]
) -> "Iterator[Cluster]":
    """A cluster for one test. The marker `kedge` has its settings."""
    from kedge.cluster.cluster import Cluster

    with Cluster(**{**kedge_settings, **_needs(request.node).settings}) as cluster:
        yield cluster
        if _keeps(request.config) and request.node.stash.get(_FAILED, False):
            cluster.keep()


def _keeps(config: pytest.Config) -> bool:
    return bool(config.getoption("kedge_keep_on_failure"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose needs this machine does not meet."""
    if item.get_closest_marker("kedge") is None:
        return
    from kedge.cluster import needs

    if lack := needs.lack(_needs(item), os.geteuid(), needs.machine_level):
        pytest.skip(lack)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Skip a test if the cluster of the session has fewer nodes than it needs."""
    settings = _needs(item).settings if item.get_closest_marker("kedge") else {}
    shared = getattr(item, "funcargs", {}).get("kedge_cluster")
    if shared is None:
        return
    for keyword, (what, selector) in NODES.items():
        wanted = settings.get(keyword)
        if wanted and len(found := shared.list("nodes", labels=selector)) < wanted:
            pytest.skip(f"needs {wanted} {what}, and the cluster of the session has {len(found)}")


def _needs(item: pytest.Item) -> "MachineNeeds":
    """Return what the markers of a test say; the nearest one counts."""
    from kedge.cluster.needs import MachineNeeds

    marker = item.get_closest_marker("kedge")
    return MachineNeeds.of(marker.kwargs if marker else {})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add a section about the namespace to the report of a failed test."""
    report = yield
    if not report.failed:
        return report
    used = getattr(item, "funcargs", {})
    client = next((used[name] for name in FIXTURES if name in used), None)
    if client is not None and report.when != "teardown":
        item.stash[_FAILED] = True
        report.sections.append((f"kedge: namespace {client.namespace}", _section(item, client)))
    return report


def _section(item: pytest.Item, client: "BlockingClient[Any]") -> str:
    try:
        text = client.report() or "There are no pods and no events."
    except Exception as error:
        # A cluster that does not answer must not hide why the test failed.
        text = f"The cluster does not answer: {error}"
    return f"{text}\n{client.how_to_reach()}" if _keeps(item.config) else text
