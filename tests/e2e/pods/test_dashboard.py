"""The dashboard in a real browser: as administrator, as viewer of one namespace, as a stranger."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.e2e.chromium import Browser, Page, program, running

Json = dict[str, Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = program()
    if path is None:
        pytest.skip("this machine has no Chromium: 'tools/setup browser' installs it")
    with running(path) as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.page() as found:
        yield found
        assert found.errors == []


def address(cluster: Any, kubeconfig: Path, *flags: str) -> str:
    """Return the address that `kedge ui` prints for the user of a kubeconfig."""
    done = subprocess.run(
        [sys.executable, "-m", "kedge", "ui", "--no-browser", f"--kubeconfig={kubeconfig}", *flags],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    url, fingerprint = done.stdout.splitlines()
    assert fingerprint.startswith("Certificate SHA-256 ")
    return url


@pytest.fixture
def user(cluster: Any, api: Any, namespace: str, tmp_path: Path) -> Callable[..., Path]:
    """Return the kubeconfig of a new user, with a role in the namespace if one is given."""

    def make(name: str, role: str = "") -> Path:
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        api.create(accounts, {"metadata": {"name": name}})
        token = api.create(f"{accounts}/{name}/token", {"spec": {}})["status"]["token"]
        if role:
            subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
            group = "rbac.authorization.k8s.io"
            binding = {
                "metadata": {"name": name},
                "subjects": [subject],
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            }
            api.create(f"/apis/{group}/v1/namespaces/{namespace}/rolebindings", binding)
        content = yaml.safe_load(cluster.kubeconfig.read_text())
        content["users"][0]["user"] = {"token": token}
        content["contexts"][0]["context"]["namespace"] = namespace
        path = tmp_path / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(content))
        return path

    return make


def test_an_administrator_sees_pods_come_and_go(
    cluster: Any, page: Page, pods: Any, namespace: str
) -> None:
    pods.create("web-one", container={"resources": {"limits": {"cpu": "1", "memory": "64Mi"}}})
    url = address(cluster, cluster.kubeconfig)
    page.open(url)
    page.wait_for_text("Overview")
    page.wait_for_text("web-one")
    assert "code=" not in page.evaluate("location.href")
    page.press("p")
    page.wait_for_text("Filter")
    page.fill("input[type=search]", namespace)
    pods.create("web-two")
    page.wait_for_text("web-two")
    page.wait(
        "[...document.querySelectorAll('.row')].every((r) => !r.innerText.includes('Pending'))"
    )
    # Usage arrives by itself.
    page.wait(
        "document.querySelector('.row [aria-label^=\"memory\"]').ariaLabel.includes('limit 64 MiB')"
    )
    page.wait(
        "!document.querySelector('.row [aria-label^=\"memory\"]')"
        ".ariaLabel.includes('not measured')"
    )
    pods.delete("web-two")
    page.wait("!document.body.innerText.includes('web-two')")
    own = urlsplit(url).netloc
    assert {urlsplit(each).netloc for each in page.requests if "://" in each} == {own}
    (cookie,) = page.cookies()
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
    assert cookie["value"] not in page.evaluate("document.cookie")
    page.open("about:blank")
    page.open(url.partition("#")[0])
    page.wait_for_text("Overview")
    page.click(".user summary")
    page.evaluate("[...document.querySelectorAll('.menu button')].at(-1).click()")
    page.wait_for_text("Run this in a terminal")


def test_a_viewer_sees_one_namespace(
    cluster: Any, page: Page, pods: Any, namespace: str, user: Callable[..., Path]
) -> None:
    pods.create("web")
    page.open(address(cluster, user("viewer", "view")))
    page.wait_for_text("web")
    page.wait(f"document.querySelector('.namespace input').value === {json.dumps(namespace)}")
    links = page.evaluate("[...document.querySelectorAll('header nav a')].map((a) => a.innerText)")
    assert "Pods" in links
    assert "Nodes" not in links


def test_a_stranger_gets_nothing(
    cluster: Any, page: Page, user: Callable[..., Path], namespace: str
) -> None:
    url = address(cluster, user("stranger"))
    page.open(url.partition("#")[0])
    page.wait_for_text("kedge ui")
    page.fill("input[name=code]", "wrong")
    page.evaluate("document.querySelector('form').requestSubmit()")
    page.wait_for_text("the code was used already, or is too old")
    page.fill("input[name=code]", url)
    page.evaluate("document.querySelector('form').requestSubmit()")
    page.wait_for_text("is forbidden")
    assert namespace not in page.evaluate("document.querySelector('main').innerText").split()
