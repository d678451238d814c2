"""The pytest plugin, by pytest's own pytester: what docs/testing.md promises."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import kedge
from kedge.testing import images

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
# By its module: the environment may be older than the declaration of the entry point.
PLUGIN = ("-pno:kedge", "-pkedge.cluster.pytest_plugin", "-pno:cacheprovider", "-pno:asyncio")
SETTINGS = """
import pytest

@pytest.fixture(scope="session")
def kedge_settings():
    return {"nodes": 0, "wait": 60}
"""
RUN_SECONDS = 110


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*PLUGIN, *arguments, timeout=RUN_SECONDS)


@pytest.fixture(scope="module")
def shared() -> Iterator[kedge.Cluster]:
    """A cluster for runs with --kedge-existing, which need not start one."""
    with kedge.Cluster(nodes=0, wait=60) as cluster:
        yield cluster


def test_the_plugin_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"kedge": "kedge.cluster.pytest_plugin"}


def test_the_plugin_imports_nothing_of_kedge() -> None:
    script = "import sys, kedge.cluster.pytest_plugin; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    modules = [each for each in found.stdout.split() if each.split(".")[0] == "kedge"]
    assert sorted(modules) == ["kedge", "kedge.cluster", "kedge.cluster.pytest_plugin"]
    assert "asyncio" not in found.stdout.split() or "pytest" in found.stdout.split()


def test_a_run_that_does_not_use_it_is_not_changed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/mine")
    pytester.makepyfile(
        """
        import os, sys

        def test_nothing_changed():
            assert os.environ["KUBECONFIG"] == "/mine"
            assert "kedge.cluster.cluster" not in sys.modules
            assert "kedge.client" not in sys.modules
        """
    )
    run(pytester).assert_outcomes(passed=1)


def test_fixtures_give_a_cluster_a_namespace_and_a_fresh_cluster(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(SETTINGS)
    pytester.makeini("[pytest]\nkedge_kubeconfig = true\nfilterwarnings = error\n")
    pytester.makepyfile(
        """
        import os
        import kedge, pytest

        VARIABLE = os.environ["KUBECONFIG"]  # as kubernetes and kopf read it, when imported
        CM = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
        seen = set()

        @pytest.mark.parametrize("number", range(2))
        def test_namespaces_are_separate(kedge_cluster, kedge_namespace, number):
            assert str(kedge_cluster.kubeconfig) == VARIABLE
            seen.add(kedge_namespace.namespace)
            assert len(seen) == number + 1
            [made] = kedge_namespace.apply(CM)
            assert made["metadata"]["namespace"] == kedge_namespace.namespace
            assert kedge_namespace.kubeconfig != kedge_cluster.kubeconfig
            with pytest.raises(kedge.StatusError) as refused:
                kedge_namespace.list("secrets", all_namespaces=True)
            assert refused.value.code == 403

        def test_a_namespace_is_deleted_after_its_test(kedge_cluster):
            for name in seen:
                kedge_cluster.wait(f"ns/{name}", "deleted", timeout=60)

        @pytest.mark.kedge(max_pods=3)
        def test_a_fresh_cluster_is_another_one(kedge_cluster, kedge_fresh_cluster):
            assert kedge_fresh_cluster.url != kedge_cluster.url
        """
    )
    run(pytester).assert_outcomes(passed=4)


def test_workers_of_xdist_have_clusters_of_their_own(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SETTINGS)
    pytester.makepyfile(
        """
        import pathlib, pytest

        @pytest.mark.parametrize("number", range(2))
        def test_each(kedge_cluster, worker_id, number):
            pathlib.Path(f"{worker_id}.url").write_text(kedge_cluster.url)
        """
    )
    run(pytester, "-n", "2", "--dist", "each").assert_outcomes(passed=4)
    urls = [each.read_text() for each in pytester.path.glob("gw*.url")]
    assert len(set(urls)) == 2


def test_a_failed_test_reports_its_namespace_and_keeps_it(
    pytester: pytest.Pytester, shared: kedge.Cluster
) -> None:
    pytester.makepyfile(
        """
        import pathlib
        import pytest

        POD = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web"},
            "spec": {"containers": [{"name": "main", "image": "host"}]},
        }

        def test_fails(kedge_namespace):
            pathlib.Path("failed").write_text(kedge_namespace.namespace)
            kedge_namespace.apply(POD)
            assert not kedge_namespace.list("pods")

        def test_passes(kedge_namespace):
            pathlib.Path("passed").write_text(kedge_namespace.namespace)
            assert kedge_namespace.list("pods") == []

        @pytest.mark.kedge(nodes=2)
        def test_needs_more_nodes(kedge_cluster):
            raise AssertionError
        """
    )
    result = run(
        pytester, "-rs", f"--kedge-existing={shared.kubeconfig}", "--kedge-keep-on-failure"
    )
    result.assert_outcomes(failed=1, passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*- kedge: namespace test-* -*",
            "Pod web: Pending on no node",
            "Kept: kubectl --kubeconfig */kubeconfig get all",
            "*needs 2 nodes, and the cluster of the session has 0*",
        ]
    )
    kept, gone = ((pytester.path / each).read_text() for each in ("failed", "passed"))
    assert shared.get(f"ns/{kept}")["status"]["phase"] == "Active"
    shared.wait(f"ns/{gone}", "deleted", timeout=60)


def test_the_cluster_of_a_failed_test_can_be_kept(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SETTINGS)
    pytester.makepyfile(
        """
        import pathlib

        def test_fails(kedge_fresh_cluster):
            pathlib.Path("state").write_text(str(kedge_fresh_cluster.state))
            raise AssertionError
        """
    )
    result = run(pytester, "--kedge-keep-on-failure")
    state = (pytester.path / "state").read_text()
    try:
        result.stdout.fnmatch_lines([f"*kedge down --state {state} --purge --yes*"])
        with kedge.ClusterClient(f"{state}/kubeconfig") as kept:
            assert kept.get("ns/default")["kind"] == "Namespace"
    finally:
        down = [sys.executable, "-m", "kedge", "down", "--state", state, "--purge", "--yes"]
        subprocess.run(down, check=True, capture_output=True)
    assert not Path(state).exists()


def test_needs_skip_a_test_with_the_lack_of_the_machine(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import os
        os.geteuid = lambda: 1000
        from kedge.cluster import needs
        needs.machine_level = lambda: "userns"
        """
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.kedge(root=True)
        def test_root():
            pass

        @pytest.mark.kedge(level="full")
        def test_level():
            pass

        @pytest.mark.kedge(level="userns")
        def test_level_that_is_there():
            pass
        """
    )
    result = run(pytester, "-rs")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(
        [
            "*needs root, and the tests run as user 1000*",
            '*needs the level "full", and this machine has "userns": see kedge doctor*',
        ]
    )


def test_a_mixin_for_unittest(pytester: pytest.Pytester) -> None:
    script = pytester.makepyfile(
        """
        import unittest
        import kedge

        class Names(kedge.ClusterTestMixin):
            cluster_settings = {"nodes": 0, "wait": 60}

            def test_namespace(self):
                found = self.cluster.get(f"ns/{self.namespace.namespace}")
                self.assertEqual(found["kind"], "Namespace")

        unittest.main()
        """
    )
    done = pytester.run(sys.executable, script, timeout=RUN_SECONDS)
    assert done.ret == 0, done.stderr.str()


def test_pytest_kubernetes_uses_a_cluster_of_kedge(pytester: pytest.Pytester) -> None:
    pytest.importorskip("pytest_kubernetes")
    image = images.build({"bin/run": images.program(b"")})
    images.docker_archive(pytester.path / "image.tar", image, "example.com/team:1")
    pytester.makeconftest("from kedge.cluster.pytest_kubernetes import k8s_manager")
    (pytester.path / "settings.yaml").write_text("nodes: 0\nwait: 60\n")
    pytester.makepyfile(
        """
        import pathlib, subprocess, sys
        import kedge, pytest
        from pytest_kubernetes.options import ClusterOptions

        CM = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}

        def test_as_its_users_know_it(k8s):
            with pytest.raises(kedge.ClusterError, match="call create"):
                k8s.load_image("image.tar")
            k8s.create(ClusterOptions(provider_config=pathlib.Path("settings.yaml")))
            k8s.apply(CM)
            assert k8s.kubectl(["get", "cm", "a"])["metadata"]["name"] == "a"
            assert k8s.version()[0] == 1
            assert k8s.cluster.list("nodes") == []
            k8s.load_image("image.tar")
            state = k8s.cluster.state
            command = [sys.executable, "-m", "kedge", "image", "list", "--state", state]
            assert "example.com/team" in subprocess.check_output(command, text=True)
            k8s.delete()
            assert not state.exists()
        """
    )
    run(pytester).assert_outcomes(passed=1)
