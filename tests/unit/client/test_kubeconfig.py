"""Merging a cluster into a kubeconfig and taking it out again."""

import base64
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.client import kubeconfig
from kedge.client.kubeconfig import ClusterAccess, KubeconfigError, KubeconfigState

OURS = ClusterAccess("kedge-a", "https://127.0.0.1:7001", b"PEM a", "secret-a")
OTHER = ClusterAccess("kedge-b", "https://127.0.0.1:7002", b"PEM b", "secret-b")

EXISTING = """\
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==
    server: https://prod.example.com:6443
  name: prod
contexts:
- context:
    cluster: prod
    namespace: "0123"
    user: admin
  name: prod
current-context: prod
kind: Config
preferences: {}
users:
- name: admin
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      args: [token, --since, 2024-01-01, 010, yes]
      command: aws
      env: null
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kube" / "config"


@pytest.fixture
def existing(path: Path) -> Path:
    path.parent.mkdir()
    path.write_text(EXISTING)
    return path


def named(path: Path, key: str) -> list[str]:
    return [item["name"] for item in yaml.safe_load(path.read_text())[key]]


def test_a_new_file_holds_the_cluster_as_its_current_context(path: Path) -> None:
    before = kubeconfig.merge(path, OURS)
    assert before == KubeconfigState("", existed=False)
    assert yaml.safe_load(path.read_text()) == {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "kedge-a",
                "cluster": {
                    "server": "https://127.0.0.1:7001",
                    "certificate-authority-data": base64.b64encode(b"PEM a").decode(),
                },
            }
        ],
        "users": [{"name": "kedge-a", "user": {"token": "secret-a"}}],
        "contexts": [{"name": "kedge-a", "context": {"cluster": "kedge-a", "user": "kedge-a"}}],
        "current-context": "kedge-a",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["config"]


def test_a_file_of_our_making_is_gone_afterwards(path: Path) -> None:
    before = kubeconfig.merge(path, OURS)
    assert kubeconfig.remove(path, OURS.name, before) == ""
    assert list(path.parent.iterdir()) == []


def test_a_file_of_the_users_is_afterwards_what_it_was_to_the_byte(existing: Path) -> None:
    before = kubeconfig.merge(existing, OURS)
    assert before == KubeconfigState("prod", existed=True)
    assert named(existing, "contexts") == ["prod", "kedge-a"]
    assert kubeconfig.remove(existing, OURS.name, before) == "prod"
    assert existing.read_text() == EXISTING


def test_a_file_in_json_stays_readable(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"clusters": [{"name": "x", "cluster": {}}], "current-context": "x"}')
    before = kubeconfig.merge(path, OURS)
    assert named(path, "clusters") == ["x", "kedge-a"]
    kubeconfig.remove(path, OURS.name, before)
    assert yaml.safe_load(path.read_text())["clusters"] == [{"name": "x", "cluster": {}}]


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
FREE_KEYS = st.text(min_size=1).filter(
    lambda key: key not in ("clusters", "users", "contexts", "current-context")
)


@settings(max_examples=40)
@given(st.dictionaries(FREE_KEYS, DOCUMENTS, max_size=4))
def test_whatever_else_the_file_says_it_goes_on_saying(
    tmp_path_factory: pytest.TempPathFactory, extra: dict[str, object]
) -> None:
    path = tmp_path_factory.mktemp("kube") / "config"
    path.write_text(yaml.safe_dump(extra))
    before = kubeconfig.merge(path, OURS)
    merged = yaml.safe_load(path.read_text())
    assert {key: merged[key] for key in extra} == extra
    kubeconfig.remove(path, OURS.name, before)
    left = yaml.safe_load(path.read_text())
    assert {key: left[key] for key in extra} == extra


def test_merging_again_replaces_what_was_merged(existing: Path) -> None:
    kubeconfig.merge(existing, OURS)
    again = kubeconfig.merge(existing, OURS._replace(server="https://127.0.0.1:9000"))
    assert again.context == ""
    assert named(existing, "clusters") == ["prod", "kedge-a"]
    assert "https://127.0.0.1:9000" in existing.read_text()
    assert OURS.server not in existing.read_text()


def test_merging_again_keeps_the_namespace_the_user_chose(existing: Path) -> None:
    kubeconfig.merge(existing, OURS)
    config = yaml.safe_load(existing.read_text())
    config["contexts"][1]["context"]["namespace"] = "mine"
    existing.write_text(yaml.safe_dump(config))
    kubeconfig.merge(existing, OURS)
    assert yaml.safe_load(existing.read_text())["contexts"][1]["context"]["namespace"] == "mine"


def test_a_context_chosen_since_stays_chosen(existing: Path) -> None:
    first = kubeconfig.merge(existing, OURS)
    kubeconfig.merge(existing, OTHER)
    assert kubeconfig.remove(existing, OURS.name, first) == "kedge-b"
    assert named(existing, "contexts") == ["prod", "kedge-b"]


def test_a_previous_context_that_is_gone_is_not_restored(existing: Path) -> None:
    kubeconfig.merge(existing, OURS)
    assert kubeconfig.remove(existing, OURS.name, KubeconfigState("deleted", existed=True)) == ""
    assert yaml.safe_load(existing.read_text())["current-context"] == ""


def test_removing_from_a_file_that_is_gone_is_no_error(path: Path) -> None:
    assert kubeconfig.remove(path, OURS.name, KubeconfigState("", existed=False)) == ""


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("clusters: [", "is not a kubeconfig file"),
        ("- a\n- b\n", "it is not a mapping"),
        ("clusters: {}\n", "clusters is not a list"),
        ("users: [1]\n", "users has an item that is not a mapping"),
        ("a: b\n---\nc: d\n", "single document"),
    ],
)
def test_a_malformed_file_is_reported_and_left_alone(
    path: Path, content: str, complaint: str
) -> None:
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(KubeconfigError, match=complaint):
        kubeconfig.merge(path, OURS)
    assert path.read_text() == content
    assert [file.name for file in path.parent.iterdir()] == ["config"]


def test_a_file_that_kubectl_has_locked_is_not_touched(
    existing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubeconfig, "LOCK_ATTEMPTS", 1)
    lock = existing.with_name("config.lock")
    lock.touch()
    with pytest.raises(KubeconfigError, match=r"remove .*config\.lock"):
        kubeconfig.merge(existing, OURS)
    assert existing.read_text() == EXISTING
    assert lock.exists()


def test_clusters_merged_at_the_same_moment_are_all_there(path: Path) -> None:
    every = [OURS._replace(name=f"kedge-{i}") for i in range(8)]
    with ThreadPoolExecutor(len(every)) as pool:
        list(pool.map(lambda access: kubeconfig.merge(path, access), every))
    assert sorted(named(path, "users")) == [access.name for access in every]


def test_a_link_stays_a_link(existing: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(existing)
    kubeconfig.merge(link, OURS)
    assert link.is_symlink()
    assert "kedge-a" in existing.read_text()


def test_the_namespace_of_a_context_is_changed_and_nothing_else(existing: Path) -> None:
    existing.chmod(0o644)
    kubeconfig.set_namespace(existing, "prod", "other")
    assert existing.read_text() == EXISTING.replace('namespace: "0123"', "namespace: other")
    assert stat.S_IMODE(existing.stat().st_mode) == 0o600


def test_a_context_without_a_namespace_gets_one(path: Path) -> None:
    kubeconfig.merge(path, OURS)
    kubeconfig.set_namespace(path, "kedge-a", "0123")
    (context,) = yaml.safe_load(path.read_text())["contexts"]
    assert context["context"]["namespace"] == "0123"


def test_a_context_that_is_not_there_has_no_namespace(existing: Path) -> None:
    with pytest.raises(KubeconfigError, match='has no context "x"'):
        kubeconfig.set_namespace(existing, "x", "other")


def test_a_namesake_with_another_authority_is_left_alone(existing: Path) -> None:
    before = kubeconfig.merge(existing, OURS)
    kubeconfig.merge(existing, OURS._replace(ca_pem=b"PEM of another"))
    assert kubeconfig.remove(existing, OURS.name, before, OURS.ca_pem) == OURS.name
    assert named(existing, "contexts") == named(existing, "clusters") == ["prod", OURS.name]
    assert kubeconfig.remove(existing, OURS.name, before, b"PEM of another") == "prod"
    assert named(existing, "contexts") == ["prod"]


def test_a_cluster_is_found_by_its_name(existing: Path) -> None:
    kubeconfig.merge(existing, OURS)
    assert kubeconfig.find(existing, OURS.name) == (OURS.server, OURS.ca_pem)
    assert kubeconfig.find(existing, OTHER.name) is None
