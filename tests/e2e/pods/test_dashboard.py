"""The dashboard in a real browser: as administrator, as viewer of one namespace, as a stranger."""

import contextlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.e2e.chromium import Browser, Page, program, running
from tests.e2e.conftest import Refused

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


DEMO = {
    "metadata": {"labels": {"app": "cart"}},
    "container": {
        "env": [
            {"name": "MY_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {
                "name": "LIMIT",
                "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}},
            },
            {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "look", "key": "color"}}},
            {"name": "HELLO", "value": "hello $(COLOR)"},
        ],
        "volumeMounts": [{"name": "about", "mountPath": "/etc/about"}],
        "resources": {
            "requests": {"cpu": "100m", "memory": "16Mi"},
            "limits": {"cpu": "300m", "memory": "64Mi"},
        },
    },
    "volumes": [
        {
            "name": "about",
            "downwardAPI": {
                "items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
            },
        }
    ],
}
SCRIPT = "i=0; while true; do i=$((i+1)); echo request $i served; sleep 0.3; done"


@pytest.fixture
def demo(api: Any, pods: Any, namespace: str) -> str:
    """A pod that has something on each of its pages."""
    look = {"metadata": {"name": "look"}, "data": {"color": "green"}}
    api.create(f"/api/v1/namespaces/{namespace}/configmaps", look)
    pods.create("cart", SCRIPT, **DEMO)
    pods.ready("cart")
    return "cart"


def go(page: Page, path: str, text: str) -> None:
    page.evaluate(f"location.hash = {json.dumps(f'#/{path}')}")
    page.wait_for_text(text)


def press_button(page: Page, label: str) -> None:
    button = f"[...document.querySelectorAll('button')].find((b) => b.innerText === '{label}')"
    page.wait(f"{button} && !{button}.disabled")
    page.evaluate(f"{button}.click()")


TERMINAL = "document.querySelector('k-terminal').text"


def test_the_pages_of_a_pod(
    cluster: Any, api: Any, page: Page, pods: Any, demo: str, namespace: str
) -> None:
    page.open(address(cluster, cluster.kubeconfig, f"--namespace={namespace}"))
    page.wait_for_text("Overview")
    pod = f"pod/{namespace}/{demo}"

    # Usage: a plot for each window, with the limit, and the events below.
    go(page, pod, "Events and restarts")
    page.wait("document.querySelectorAll('k-plot canvas').length === 2")
    page.wait_for_text("Started")
    for window in ("10s", "1m", "1d", "1h"):
        page.evaluate(
            "[...document.querySelectorAll('.choices button')]"
            f".find((b) => b.innerText === '{window}').click()"
        )
        page.wait(f"document.querySelector('k-plot').ariaLabel.startsWith('cpu over {window}')")
    page.wait("document.querySelector('k-plot').ariaLabel.includes('limit 300m')")
    page.wait("!document.querySelector('k-plot').ariaLabel.includes('mean –')")

    # Logs: followed and searched.
    go(page, f"{pod}/logs", "request 1 served")
    page.wait("document.querySelectorAll('.log div').length > 3")
    page.fill("input[type=search]", "request 2 served")
    page.wait("document.querySelectorAll('.log div').length === 1")
    assert page.evaluate("document.querySelector('.log mark').innerText") == "request 2 served"

    # A shell that knows its size and colours.
    go(page, f"{pod}/shell", "Shell")
    page.wait(f"/[#$] ?$/.test({TERMINAL}.trimEnd())")
    page.evaluate("document.querySelector('.keyboard').focus()")
    page.type("printf '\\033[31mred\\033[0m %s\\n' $((40+2)); stty size\n")
    page.wait(f"{TERMINAL}.includes('red 42')")
    page.wait("document.querySelector('.screen .fg-1').innerText === 'red'")
    assert page.evaluate("document.querySelector('k-terminal')._screen.columns") > 60
    page.type("exit\n")
    page.wait_for_text("The shell has ended")

    # Where the variables come from, and what they are in the container.
    go(page, f"{pod}/environment", "ConfigMap look, key color")
    page.wait_for_text("hello green")
    page.wait_for_text("field spec.nodeName")
    page.click(".controls button")
    page.wait("document.querySelectorAll('td:nth-child(4)').length >= 4")
    cells = "[...document.querySelectorAll('tr')].map((r) => [...r.cells].map((c) => c.innerText))"
    for name, declared, _, actual in page.evaluate(cells)[1:]:
        assert declared == actual, name

    go(page, f"{pod}/files", 'app="cart"')
    page.click(".controls button")
    page.wait("document.querySelector('pre.content').innerText.trim() === 'app=\"cart\"'")

    go(page, f"{pod}/why", "Filters, in their order")
    page.wait_for_text("chosen")

    # YAML: changed, checked by the server, saved.
    go(page, f"{pod}/yaml", "Check on the server")
    page.wait("document.querySelector('.yaml').value.includes('app: cart')")
    assert "managedFields" not in page.evaluate("document.querySelector('.yaml').value")
    text = page.evaluate("document.querySelector('.yaml').value")
    page.fill(".yaml", text.replace("app: cart", "app: cart\n    tier: front"))
    press_button(page, "Check on the server")
    page.wait("document.querySelector('.diff .added')?.innerText.includes('tier: front')")
    assert "tier" not in pods.get(demo)["metadata"]["labels"]
    press_button(page, "Save")
    page.wait_for_text("Saved.")
    assert pods.get(demo)["metadata"]["labels"]["tier"] == "front"
    page.fill(".yaml", "kind: Nonsense")
    press_button(page, "Check on the server")
    page.wait("document.querySelector('[role=alert]') !== null")


LIMITS = {
    "metadata": {"name": "bounds"},
    "spec": {
        "limits": [{"type": "Container", "default": {"cpu": "500m"}, "max": {"cpu": "2"}}],
    },
}
QUOTA = {"metadata": {"name": "quota"}, "spec": {"hard": {"pods": "2"}}}


def test_limits_devices_and_sizes(
    cluster: Any, api: Any, page: Page, pods: Any, namespace: str, eventually: Callable[..., Any]
) -> None:
    root = f"/api/v1/namespaces/{namespace}"
    api.create(f"{root}/limitranges", LIMITS)
    api.create(f"{root}/resourcequotas", QUOTA)
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "host", "command": ["sleep", "1000"]}],
        },
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    apps = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    api.create(apps, {"metadata": {"name": "web"}, "spec": spec})
    page.open(address(cluster, cluster.kubeconfig, f"--namespace={namespace}"))
    page.wait_for_text("Overview")
    go(page, "limits", "LimitRange bounds")
    page.wait_for_text("A container that asks for nothing gets:")
    page.wait_for_text("The quotas have room for 1 such pod")
    page.wait("document.querySelector('.meter [aria-label=\"pods 1, limit 2\"]') !== null")
    assert "500m" in page.text()
    # The page moves by itself: with the quota used up, the next pod would be refused.
    pods.create("second", container={"resources": {"limits": {"cpu": "100m"}}})
    page.wait_for_text("It would be refused")
    page.wait_for_text("exceeded quota")

    go(page, "devices", "Device plugins")
    page.wait_for_text("No node has devices")
    go(page, "nodes", "CPU by pod")
    go(page, "node/node-1", "Conditions")
    page.wait("document.querySelectorAll('k-plot canvas').length === 2")
    page.wait("!document.querySelector('k-plot').ariaLabel.includes('mean –')")
    page.wait("document.querySelector('k-plot')._content.lines.some((l) => l.label === 'mean')")
    # Pods of a node are of any namespace, whichever is chosen.
    page.wait_for_text("second")
    assert namespace in page.evaluate("document.querySelector('k-rows').innerText")

    go(page, f"workload/Deployment/{namespace}/web", "Right size")
    go(page, f"workload/Deployment/{namespace}/web/sizes", "Requests and limits that fit")
    page.wait_for_text("16Mi")
    shown = page.evaluate("[...document.querySelectorAll('td strong')].map((e) => e.innerText)")
    said = subprocess.run(
        [
            *(sys.executable, "-m", "kedge", "recommend", "deploy/web", "-n", namespace),
            f"--kubeconfig={cluster.kubeconfig}",
        ],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    patch = yaml.safe_load(said)
    (sizes,) = [each["resources"] for each in patch["spec"]["template"]["spec"]["containers"]]
    assert shown[-2:] == [sizes["requests"]["memory"], sizes["limits"]["memory"]]
    page.wait("document.querySelectorAll('k-plot canvas').length === 2")
    page.click(".card button")
    page.wait_for_text("The server would accept it.")


def test_the_sizes_of_a_cron_job_follow_from_its_runs(
    cluster: Any, api: Any, page: Page, namespace: str, eventually: Callable[..., Any]
) -> None:
    container = {"name": "main", "image": "host", "command": ["sleep", "12"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    batch = f"/apis/batch/v1/namespaces/{namespace}"
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}}
    nightly = api.create(f"{batch}/cronjobs", {"metadata": {"name": "nightly"}, "spec": spec})
    owner = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": "nightly",
        "uid": nightly["metadata"]["uid"],
        "controller": True,
    }
    metadata = {"name": "first", "ownerReferences": [owner]}
    api.create(f"{batch}/jobs", {"metadata": metadata, "spec": {"template": template}})
    page.open(address(cluster, cluster.kubeconfig, f"--namespace={namespace}"))
    page.wait_for_text("Overview")
    go(page, f"workload/Job/{namespace}/first", "CronJob nightly")
    eventually(lambda: api.get(f"{batch}/jobs/first").get("status", {}).get("succeeded") == 1)
    go(page, f"workload/CronJob/{namespace}/nightly/sizes", "Requests and limits that fit")
    page.wait_for_text("16Mi")
    page.wait("document.querySelectorAll('k-plot canvas').length === 2")
    page.click(".card button.primary")
    page.wait_for_text("Applied. The next run has it.")
    changed = api.get(f"{batch}/cronjobs/nightly")["spec"]["jobTemplate"]["spec"]["template"][
        "spec"
    ]
    assert changed["containers"][0]["resources"]["requests"]["memory"] == "16Mi"


def test_a_viewer_is_not_offered_what_it_may_not_do(
    cluster: Any, page: Page, demo: str, namespace: str, user: Callable[..., Path]
) -> None:
    page.open(address(cluster, user("viewer", "view")))
    page.wait_for_text("cart")
    go(page, f"pod/{namespace}/{demo}", "Logs")
    page.wait_for_text("Started")
    tabs = page.evaluate("[...document.querySelectorAll('.tabs a')].map((a) => a.innerText)")
    assert tabs == ["Usage", "Logs", "Environment", "Files", "Why here", "YAML"]
    go(page, f"pod/{namespace}/{demo}/shell", "Events and restarts")
    go(page, f"pod/{namespace}/{demo}/environment", "field spec.nodeName")
    assert page.evaluate("document.querySelectorAll('.controls button').length") == 0
    go(page, f"pod/{namespace}/{demo}/yaml", "You may not change it.")
    assert page.evaluate("document.querySelector('.yaml').readOnly")


# Sessions.


def test_tabs_sign_in_and_out_together(cluster: Any, browser: Browser, demo: str) -> None:
    with browser.page() as one, browser.page(one.context) as two:
        url = address(cluster, cluster.kubeconfig)
        one.open(url)
        one.wait_for_text("cart")
        two.open(url.partition("#")[0])
        two.wait_for_text("cart")
        two.evaluate("location.hash = '#/nodes'")
        one.evaluate("[...document.querySelectorAll('.menu button')].at(-1).click()")
        one.wait_for_text("Run this in a terminal")
        two.wait_for_text("You have signed out in another tab.")
        # The next sign-in brings both back, the second to its page.
        one.open(address(cluster, cluster.kubeconfig))
        one.wait_for_text("cart")
        two.wait_for_text("CPU by pod")
        # A session that has ended on the server is noticed, and said.
        one.evaluate(
            "fetch('/ui/session', {method: 'DELETE', headers:"
            " {'X-Kedge-Dashboard': localStorage.getItem('kedge-page-secret')}})"
        )
        one.evaluate("location.hash = '#/limits'")
        one.wait_for_text("The session has ended")
        assert one.evaluate("location.hash") == "#/limits"


def test_a_link_with_the_code_of_somebody_else_is_noticed(
    cluster: Any, page: Page, user: Callable[..., Path]
) -> None:
    page.open(address(cluster, cluster.kubeconfig))
    page.wait_for_text("Overview")
    page.open(address(cluster, user("attacker", "view")))
    page.wait_for_text("Before, it was kubernetes-admin")
    # The code worked once.
    used = page.evaluate(
        "fetch('/ui/session', {method: 'POST', body: '{\"code\": \"x\"}'}).then((r) => r.status)"
    )
    assert used == 401


# Texts and addresses of others.

HOSTILE = (
    "<img src=x onerror=document.title='stolen'><script>document.title='stolen'</script>"
    "${document.title='stolen'}\"'><svg/onload=document.title='stolen'>\u202egnp.exe"
)
WRITES = (
    r"printf '\033]0;title\007\033[2J\033[31mred\033[0m <b>bold</b>\r\n';"
    r" printf 'nul\000bell\007\n'; head -c 300000 /dev/zero | tr '\0' y; echo; echo last; sleep 900"
)


def test_hostile_texts_are_only_shown(
    cluster: Any, api: Any, page: Page, pods: Any, namespace: str
) -> None:
    item = {"path": "notes", "fieldRef": {"fieldPath": "metadata.annotations"}}
    pods.create(
        "evil",
        WRITES,
        metadata={"annotations": {"note": HOSTILE, "long": "x" * 100_000}},
        container={
            "env": [{"name": "SAYS", "value": HOSTILE}, {"name": "LONG", "value": "y" * 50_000}],
            "volumeMounts": [{"name": "about", "mountPath": "/etc/about"}],
        },
        volumes=[{"name": "about", "downwardAPI": {"items": [item]}}],
    )
    pods.ready("evil")
    involved = {"kind": "Pod", "name": "evil", "namespace": namespace}
    event = {"involvedObject": involved, "reason": "<b>Bold</b>", "message": HOSTILE}
    for _ in range(120):
        document = {"metadata": {"generateName": "evil-"}, "type": "Warning", **event}
        api.create(f"/api/v1/namespaces/{namespace}/events", document)
    page.open(address(cluster, cluster.kubeconfig, f"--namespace={namespace}"))
    page.wait_for_text("evil")
    pod = f"pod/{namespace}/evil"
    go(page, pod, "older ones are not shown")
    go(page, f"{pod}/environment", "49000 more characters")
    go(page, f"{pod}/files", "more characters")
    go(page, f"{pod}/logs", "red <b>bold</b>")
    page.wait_for_text("nul␀bell␇")
    page.wait_for_text("last")
    assert max(page.evaluate(LINE_LENGTHS)) < 10_000
    go(page, f"{pod}/yaml", "Check on the server")
    # Addresses that others have made lead nowhere else.
    before = len(page.requests)
    for address_of_others in (
        f"#/pod/{namespace}%2Fpods%2Fevil%2Fproxy%2Fdelete%3F/x",
        "#/pod/..%2F..%2F..%2Fversion%3F/x",
        "#/pod/%",
        "#/pod/../..",
        "#/constructor/a",
        "#/workload/constructor/a/b",
        f"#/{pod}/constructor",
        "#/pods?show=constructor",
    ):
        page.evaluate(f"location.hash = {json.dumps(address_of_others)}")
        page.wait("new Promise((done) => requestAnimationFrame(() => done(true)))")
    page.wait_for_text("Filter")
    paths = [urlsplit(each).path for each in page.requests[before:]]
    assert any("%2F" in each for each in paths)
    assert not any("/proxy" in each or each == "/version" for each in paths)
    assert "stolen" not in page.evaluate("document.title")
    assert page.evaluate("document.querySelectorAll('main img, main b, main script').length") == 0


LINE_LENGTHS = "[...document.querySelectorAll('.log div')].map((each) => each.innerText.length)"


# Other pages.

ATTACK = """<!doctype html><script>
const [target, code] = location.hash.slice(1).split("|");
const tries = [];
const note = (name) => (outcome) => tries.push(`${name}: ${outcome}`);
const attempt = (name, url, init) => fetch(url, {credentials: "include", ...init}).then(note(name), note(name));
const body = JSON.stringify({metadata: {name: "stolen"}});
const spaces = `${target}/api/v1/namespaces`;
const pods = `${target}/api/v1/namespaces/NAMESPACE/pods`;
const protocols = ["events.kedge", "dashboard.kedge.x"];
const sink = Object.assign(document.createElement("iframe"), {name: "sink"});
document.documentElement.append(sink);
const form = Object.assign(document.createElement("form"), {method: "POST", action: spaces, enctype: "text/plain", target: "sink"});
form.append(Object.assign(document.createElement("input"), {name: '{"metadata":{"name":"stolen', value: '"}}'}));
document.documentElement.append(form);
form.submit();
const signIn = {method: "POST", mode: "no-cors", body: JSON.stringify({code})};
Promise.allSettled([
  attempt("plain", spaces, {method: "POST", body, mode: "no-cors"}),
  attempt("header", spaces, {method: "POST", body, headers: {"X-Kedge-Dashboard": "x"}}),
  attempt("session", `${target}/ui/session`, {}),
  ...["PUT", "PATCH", "DELETE"].map((method) => attempt(method, `${pods}/kept`, {method, body})),
  attempt("code", `${target}/ui/codes`, {method: "POST", mode: "no-cors"}),
  attempt("sign-in", `${target}/ui/session`, signIn),
  attempt("sign-out", `${target}/ui/session`, {method: "DELETE"}),
  new Promise((resolve) => {
    const socket = new WebSocket(`${target.replace("https", "wss")}/api/v1/pods?watch=1`, protocols);
    socket.onopen = () => resolve(note("socket")("open"));
    socket.onclose = () => resolve(note("socket")("refused"));
  }),
]).then(() => (document.title = tries.join("; ")));
</script>"""  # noqa: E501


class Attacker(http.server.BaseHTTPRequestHandler):
    """A program on another port of the same host, whose page the user looks at."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(ATTACK.replace("NAMESPACE", self.path.strip("/")).encode())

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def attacker() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Attacker)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_another_page_on_the_same_host_can_do_nothing(
    cluster: Any,
    api: Any,
    browser: Browser,
    attacker: str,
    pods: Any,
    user: Callable[..., Path],
) -> None:
    url = address(cluster, cluster.kubeconfig)
    origin = url.partition("/ui/")[0]
    pods.create("kept")
    with browser.page() as page:
        page.open(url)
        page.wait_for_text("Overview")
        (cookie,) = page.cookies()
        # The attacker has an account too, and a code that would sign the browser in as itself.
        code = address(cluster, user("attacker")).rpartition("code=")[2]
        page.open(f"{attacker}{pods.namespace}#{origin}|{code}")
        tried = page.wait("document.title")
        assert "socket: refused" in tried
        for name in ("header", "session", "PUT", "PATCH", "DELETE", "sign-out"):
            assert f"{name}: TypeError" in tried
        assert not api.exists("/api/v1/namespaces/stolen")
        assert "deletionTimestamp" not in pods.get("kept")["metadata"]
        # The browser has the session that it had.
        assert [each["value"] for each in page.cookies()] == [cookie["value"]]
        # The page is still signed in.
        page.open(f"{origin}/ui/")
        page.wait_for_text("Overview")
    # Who has the cookie, as programs on the same host may, has half of what is needed.
    stranger = api.stranger()
    headers = {"Cookie": f"{cookie['name']}={cookie['value']}", "Origin": origin}
    assert not any(
        answers(stranger, path, **headers) for path in ("/api/v1/namespaces", "/ui/session")
    )


def answers(api: Any, path: str, **headers: str) -> bool:
    with contextlib.suppress(Refused):
        api("GET", path, **headers)
        return True
    return False


# Accessibility, size and pictures.

AXE = Path(sys.prefix) / "axe-core" / "axe.min.js"
PICTURES = os.environ.get("KEDGE_DASHBOARD_PICTURES", "")
"""A folder that gets pictures of the pages, such as docs/pictures."""


def test_every_page_is_accessible_and_has_its_picture(
    cluster: Any, api: Any, page: Page, pods: Any, demo: str, namespace: str
) -> None:
    if not AXE.exists():
        pytest.skip("there is no axe-core: 'tools/setup browser' fetches it with npm")
    api.create(f"/api/v1/namespaces/{namespace}/limitranges", LIMITS)
    api.create(f"/api/v1/namespaces/{namespace}/resourcequotas", QUOTA)
    url = address(cluster, cluster.kubeconfig, f"--namespace={namespace}")
    page.open(url.partition("#")[0])
    page.wait_for_text("kedge ui")
    check_accessibility(page, "sign-in")
    page.open(url)
    page.wait_for_text("cart")
    pod = f"pod/{namespace}/{demo}"
    shown = {
        "overview": ("overview", "cart"),
        "pods": ("pods", "1 of 1 pods"),
        "nodes": ("nodes", "CPU by pod"),
        "node": ("node/node-1", "Conditions"),
        "limits": ("limits", "A container that asks for nothing gets"),
        "devices": ("devices", "Device plugins"),
        "usage": (pod, "Started"),
        "logs": (f"{pod}/logs", "request 1 served"),
        "shell": (f"{pod}/shell", "Shell"),
        "environment": (f"{pod}/environment", "hello green"),
        "files": (f"{pod}/files", "downward"),
        "why": (f"{pod}/why", "chosen"),
        "yaml": (f"{pod}/yaml", "Check on the server"),
        "new": ("new", "A manifest, or several"),
    }
    for name, (path, text) in shown.items():
        go(page, path, text)
        for dark in (False, True):
            page.show(dark=dark)
            check_accessibility(page, f"{name}, {'dark' if dark else 'light'}")
            take_picture(page, f"{name}-{'dark' if dark else 'light'}")
        page.show(width=390, height=844)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, f"{name} is too wide for a phone"
        take_picture(page, f"{name}-phone")
        page.show()


def check_accessibility(page: Page, name: str) -> None:
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(f"{AXE.read_text()};0")
    found = page.evaluate(
        "axe.run().then((r) => r.violations.map((v) => [v.id, v.nodes.map((n) => n.html)]))"
    )
    assert found == [], name


def take_picture(page: Page, name: str) -> None:
    if PICTURES:
        page.screenshot(Path(PICTURES) / f"dashboard-{name}.png")


SCROLL = """new Promise((resolve) => {
  const list = document.querySelector('k-rows');
  const frames = [];
  let last = performance.now();
  const step = (now) => {
    frames.push(now - last);
    last = now;
    list.scrollTop += 300;
    if (frames.length < 100) requestAnimationFrame(step);
    else resolve({frames: frames.sort((a, b) => a - b), rows: list.querySelectorAll('.row').length,
                  top: list.scrollTop, text: list.innerText});
  };
  requestAnimationFrame(step);
})"""
MANY = 1000


def test_a_thousand_pods_scroll(
    cluster: Any, api: Any, page: Page, namespace: str, record_property: Callable[..., None]
) -> None:
    container = {"name": "main", "image": "host", "command": ["sleep", "9"]}
    pod = {"nodeSelector": {"kind": "none"}, "containers": [container]}
    # The controller makes no more than 500 pods of a set at once.
    for name in ("many", "more"):
        template = {"metadata": {"labels": {"app": name}}, "spec": pod}
        selector = {"matchLabels": {"app": name}}
        spec = {"replicas": MANY // 2, "selector": selector, "template": template}
        sets = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
        api.create(sets, {"metadata": {"name": name}, "spec": spec})
    page.open(address(cluster, cluster.kubeconfig, f"--namespace={namespace}"))
    page.wait_for_text("Overview")
    go(page, "pods", "Filter")
    page.wait_for_text(f"{MANY} of {MANY} pods", 60)
    before = page.busy_seconds()
    found = page.evaluate(SCROLL)
    frames = found["frames"]
    own = (page.busy_seconds() - before) / len(frames) * 1000
    record_property("frame_milliseconds", {"median": frames[50], "p95": frames[95], "own": own})
    print(f"frames of {MANY} pods: median {frames[50]:.1f} ms, p95 {frames[95]:.1f} ms, of which")
    print(f"the page itself takes {own:.1f} ms of processor time (300 pixels a frame)")
    # Only the rows in view exist, so a frame costs the same for any number of pods.
    assert found["rows"] < 60
    assert found["top"] > 25_000
    assert "more-" in found["text"]
    page.fill("input[type=search]", "none-such")
    page.wait_for_text(f"0 of {MANY} pods")


# A limited, measured pod, without kubectl.


def test_a_pod_is_made_in_the_browser(
    cluster: Any, page: Page, pods: Any, namespace: str, user: Callable[..., Path]
) -> None:
    page.open(address(cluster, user("developer", "edit")))
    page.wait_for_text("No workloads")
    # The key works as soon as the server has said that the user may.
    page.wait("document.querySelector('nav a[href=\"#/new\"]') !== null")
    page.press("c")
    page.wait("document.querySelector('.yaml.new') !== null")
    page.fill(".yaml.new", page.evaluate("document.querySelector('.yaml.new').value") + "  nope: 1")
    press_button(page, "Check on the server")
    page.wait_for_text("nope")
    page.fill(".yaml.new", page.evaluate(VALUE).removesuffix("  nope: 1"))
    press_button(page, "Check on the server")
    page.wait_for_text("the server would accept it.")
    press_button(page, "Create")
    page.wait_for_text("Pod hello: created.")
    page.click(".notice.good a")
    page.wait_for_text("Containers")
    page.wait("document.querySelector('k-plot').ariaLabel.includes('limit 200m')")
    page.wait("!document.querySelector('k-plot').ariaLabel.includes('mean –')")
    assert pods.get("hello")["spec"]["containers"][0]["resources"]["limits"]["memory"] == "64Mi"
    # Keys: to the list, to its first row, and help.
    page.press("p")
    page.wait_for_text("1 of 1 pods")
    page.press("j")
    page.wait("document.activeElement.innerText === 'hello'")
    page.press("?")
    page.wait("document.querySelector('dialog').open")


VALUE = "document.querySelector('.yaml.new').value"


def restarted(pod: Json) -> bool:
    return any(each["restartCount"] for each in pod["status"].get("containerStatuses", ()))


def test_what_is_wrong_is_said_first(cluster: Any, page: Page, pods: Any, namespace: str) -> None:
    pods.create("crashes", "echo 'no configuration'; exit 3")
    pods.create("waits", nodeSelector={"kind": "none"})
    pods.when("crashes", restarted)
    page.open(address(cluster, cluster.kubeconfig, f"--namespace={namespace}"))
    page.wait_for_text("Needs attention")
    page.wait_for_text("main ended with exit code 3")
    go(page, "pods?show=bad", "1 of 2 pods")
    go(page, f"pod/{namespace}/waits", "didn't match Pod's node affinity")
    go(page, f"pod/{namespace}/crashes", "Containers")
    page.wait("document.querySelector('.notice a').innerText === 'Look at the log'")
    page.click(".notice a")
    # The log goes on after a restart.
    page.wait_for_text("no configuration")


# Devices, and a server that comes back.

PLUGIN = """
import sys
from kedge.deviceplugin import Device, Plugin

class Gadgets(Plugin):
    resource = "example.com/gadget"
    def devices(self):
        return [Device("gadget-0"), Device("gadget-1"), Device("gadget-2", health="Unhealthy")]

Gadgets().run(sys.argv[1])
"""
FPGA = Path(__file__).resolve().parents[3] / "examples" / "fpga-claims"


def container(**resources: Any) -> Json:
    return {"name": "main", "image": "host", "command": ["sleep", "900"], "resources": resources}


HOLDER = {
    "resourceClaims": [{"name": "port", "resourceClaimName": "port"}],
    "containers": [container(limits={"example.com/gadget": "1"}, claims=[{"name": "port"}])],
    "terminationGracePeriodSeconds": 1,
}
GREEDY = {"containers": [container(limits={"example.com/gadget": "9"})]}


@contextlib.contextmanager
def running_programs(folder: Path, *commands: list[str], **variables: str) -> Iterator[None]:
    with open(folder / "programs.log", "wb") as log, contextlib.ExitStack() as stack:
        for command in commands:
            words = [sys.executable, *command]
            program = subprocess.Popen(words, stdout=log, stderr=log, env=os.environ | variables)
            stack.callback(program.wait)
            stack.callback(program.kill)
        yield


@pytest.fixture
def devices(tmp_path: Path, own_cluster: Any, eventually: Callable[..., Any]) -> Iterator[Any]:
    """A cluster with a device plugin and a driver, a pod that holds devices, and one that waits."""
    folder, plugin = str(tmp_path / "plugins"), tmp_path / "plugin.py"
    api = own_cluster.up("--nodes=1", f"--device-plugin-dir={folder}").api
    plugin.write_text(PLUGIN)
    driver = [
        str(FPGA / "driver.py"),
        str(tmp_path / "board"),
        folder,
        "node-1",
    ]
    where = str(own_cluster.kubeconfig)
    with running_programs(tmp_path, [str(plugin), folder], driver, KUBECONFIG=where):
        dra = "/apis/resource.k8s.io/v1"
        api.create(f"{dra}/deviceclasses", yaml.safe_load((FPGA / "class.yaml").read_text()))
        template = next(yaml.safe_load_all((FPGA / "pod.yaml").read_text()))
        claim = {"metadata": {"name": "port"}, "spec": template["spec"]["spec"]}
        api.create(f"{dra}/namespaces/default/resourceclaims", claim)
        pods = "/api/v1/namespaces/default/pods"
        # The service account of the namespace is made a moment later.
        eventually(lambda: api.exists("/api/v1/namespaces/default/serviceaccounts/default"))
        api.create(pods, {"metadata": {"name": "holder"}, "spec": HOLDER})
        api.create(pods, {"metadata": {"name": "greedy"}, "spec": GREEDY})
        eventually(lambda: api.get(f"{pods}/holder")["status"].get("phase") == "Running", 30)
        yield own_cluster


def test_devices_and_a_restart_of_the_server(devices: Any, page: Page) -> None:
    cluster = type("Own", (), {"environment": {**os.environ}, "kubeconfig": devices.kubeconfig})
    page.open(address(cluster, devices.kubeconfig))
    page.wait_for_text("holder")
    go(page, "devices", "1 held, 1 free, 1 unhealthy")
    page.wait("/gadget-[01]/.test(document.querySelector('.device')?.innerText)")
    page.wait_for_text("Pods that wait for devices")
    page.wait_for_text("9 example.com/gadget")
    rows = "[...document.querySelectorAll('tr')].map((each) => each.innerText)"
    page.wait(f"{rows}.some((r) => r.startsWith('port-') && r.includes('holder in default'))")
    page.wait(f"{rows}.some((r) => r.startsWith('port in default') && r.includes('in use'))")
    go(page, "pod/default/holder", "example.com/gadget: gadget-")
    # Sessions end with the server. The page says so, and goes on where it was once signed in again.
    os.kill(devices.pid(), 9)
    page.wait_for_text("The session has ended")
    page.fill("input[name=code]", address(cluster, devices.kubeconfig))
    page.evaluate("document.querySelector('form').requestSubmit()")
    page.wait_for_text("example.com/gadget: gadget-")


# Modules of the page that decide something, alone.


def test_the_terminal_follows_programs(cluster: Any, page: Page) -> None:
    page.open(address(cluster, cluster.kubeconfig).partition("#")[0])
    page.wait_for_text("kedge ui")
    cases = {
        "hello\r\nworld": ["hello", "world"],
        "abc\bX": ["abX"],
        "1\r\n2\r\n3\r\n4\r\n5": ["3", "4", "5"],
        "0123456789ABC": ["0123456789", "ABC"],
        "\x1b[2;3Hx\x1b[Hy": ["y", "  x"],
        "abcdef\x1b[3D\x1b[K": ["abc"],
        "abcdef\x1b[3D\x1b[2P": ["abcf"],
        "abc\r\x1b[2@": ["  abc"],
        "a\r\nb\r\nc\x1b[2J": ["", "", ""],
        "a\r\nb\r\nc\x1b[2;3r\x1b[3;1H\n": ["a", "c", ""],
        "a\r\nb\x1b[H\x1b[L": ["", "a", "b"],
        "main\x1b[?1049hother\x1b[?1049l": ["main"],
        "\x1b]0;title\x07x\x1b]2;t\x1b\\y": ["xy"],
        "\x1b(0qx\x1b(Bq": ["─│q"],
        "\x1b[999999999;1Hend": ["", "", "end"],
        "\x1b[38;5;196mred\x1b[0m": ["red"],
        "a\tb": ["a       b"],
    }
    for text, expected in cases.items():
        for size in (1, 3, 1000):
            script = (
                "import('/ui/screen.js').then(({Screen}) => { const s = new Screen(10, 3);"
                f" const text = {json.dumps(text)}; for (let i = 0; i < text.length; i += {size})"
                f" s.write(text.slice(i, i + {size}));"
                " return s.lines.map((_, row) => s.text(row)); })"
            )
            padded = [*expected, "", "", ""][:3]
            assert page.evaluate(script) == padded, (text, size)
    asked = page.evaluate(
        "import('/ui/screen.js').then(({Screen}) => { let said = '';"
        " const s = new Screen(10, 3, (t) => (said += t));"
        " s.write('ab\\x1b[6n\\x1b[c'); return said; })"
    )
    assert asked == "\x1b[1;3R\x1b[?6c"


def test_quantities_are_read_as_kubernetes_writes_them(cluster: Any, page: Page) -> None:
    page.open(address(cluster, cluster.kubeconfig).partition("#")[0])
    page.wait_for_text("kedge ui")
    texts = ["100m", "1", "1.5", "2Ki", "3Mi", "1e3", "5n", "1G", "", "x", "-1"]
    script = (
        "import('/ui/quantity.js').then(({number}) =>"
        f" {json.dumps(texts)}.map((t) => number(t) ?? null))"
    )
    expected = [0.1, 1, 1.5, 2048, 3 << 20, 1000, 5e-9, 1e9, None, None, -1]
    assert page.evaluate(script) == pytest.approx(expected)


def test_a_limit_that_was_reached_is_proposed_higher_as_by_the_command(
    cluster: Any, page: Page
) -> None:
    page.open(address(cluster, cluster.kubeconfig).partition("#")[0])
    page.wait_for_text("kedge ui")
    amounts = {"cpu": "500m", "memory": "100Mi"}
    limits = {"name": "main", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    proposed = []
    for means in ({}, {"oom-kills": "24u"}, {"cpu-throttled": "300m"}):
        end = "2030-01-02T00:00:00Z"
        window = {"endtime": end, "mean": means, "max": amounts, "95th": amounts}
        usage = {"metadata": {"name": "main"}, "metrics": {"1h": window, "1d": window}}
        script = (
            "import('/ui/recommendation.js').then(({proposal}) => Object.values("
            f"proposal([{{containers: [{json.dumps(usage)}]}}], {json.dumps(limits)}))"
            ".map((each) => each.limit))"
        )
        proposed.append(page.evaluate(script))
    assert proposed == [["600m", "120Mi"], ["600m", "1229Mi"], ["1200m", "120Mi"]]


def test_lines_of_logs_obey_nobody(cluster: Any, page: Page) -> None:
    page.open(address(cluster, cluster.kubeconfig).partition("#")[0])
    page.wait_for_text("kedge ui")
    cases = {
        "plain\ttext": "plain\ttext",
        "\x1b[1;31mred\x1b[0m": "red",
        "\x1b]0;title\x07x": "x",
        "\x1b]8;;http://x\x1b\\link": "link",
        "\x1bPq#0\x1b\\picture": "picture",
        "\x1b(0q": "q",
        "10 %\r20 %\r": "20 %",
        "nul\x00": "nul\u2400",
        "\x9b31mred": "\ufffd31mred",
        "\u202egnp.exe": "\ufffdgnp.exe",
        "z" * 9000: "z" * 8000 + " … (1000 more characters)",
        "z" * 90_000: "z" * 8000 + " … (82000 more characters)",
    }
    script = f"import('/ui/log_lines.js').then((m) => {json.dumps(list(cases))}.map(m.shownLine))"
    assert page.evaluate(script) == list(cases.values())


MANIFESTS = """# a comment
---
apiVersion: v1
kind: Pod
metadata:
  # its name
  labels:
    name: not-this
  name: "web"   # quoted
  namespace: shop
spec: {}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: other, name: api}
---
kind: List
"""


def test_manifests_are_sent_where_they_belong(cluster: Any, page: Page) -> None:
    page.open(address(cluster, cluster.kubeconfig).partition("#")[0])
    page.wait_for_text("kedge ui")
    script = (
        f"import('/ui/manifest.js').then((m) => m.split({json.dumps(MANIFESTS)})"
        ".map(({apiVersion, kind, name, namespace}) => [apiVersion, kind, name, namespace]))"
    )
    assert page.evaluate(script) == [
        ["v1", "Pod", "web", "shop"],
        ["apps/v1", "Deployment", "api", "other"],
        ["", "List", "", ""],
    ]
