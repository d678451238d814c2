"""Pods and `kedge image pull` reach registries through a proxy, by mirrors, and after restarts."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Mapping
from pathlib import Path

from kedge.testing.images import build
from kedge.testing.proxy import FakeProxy, proxy
from kedge.testing.registry import registry

IMAGE = build({"etc/x": b"1" * 200_000}, {"b": b"2"})
CLUSTER = ("--name", "registries")


class Commands:
    """kedge with an environment of its own."""

    def __init__(self, home: Path, proxy: FakeProxy) -> None:
        own = {
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "KUBECONFIG": str(home / "kubeconfig"),
            "HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}",
            "NO_PROXY": "",
            "no_proxy": "",
        }
        self.environment: Mapping[str, str] = {**os.environ, **own}

    async def run(self, *arguments: str, status: int = 0) -> str:
        command = (sys.executable, "-P", "-m", "kedge", *arguments)
        process = await asyncio.create_subprocess_exec(
            *command, env=self.environment, stdout=PIPE, stderr=STDOUT
        )
        said, _ = await process.communicate()
        assert process.returncode == status, said.decode()
        return said.decode()


async def test_pods_pull_through_a_proxy_also_after_a_restart_of_the_agent(tmp_path: Path) -> None:
    async with (
        registry(tmp_path / "keys", hosts=("registry.example",)) as secure,
        registry() as local,
        proxy() as running,
    ):
        secure.push("app:1", IMAGE)
        local.push("library/busybox:1", IMAGE)
        running.hosts["registry.example:443"] = int(secure.host.rpartition(":")[2])
        (tmp_path / "ca.crt").write_bytes(secure.ca_pem)
        kedge = Commands(tmp_path, running)
        try:
            await _use(kedge, f"registry.example={tmp_path / 'ca.crt'}", local.host)
        finally:
            await kedge.run("down", *CLUSTER, "--purge")
        assert set(running.asked) == {
            "CONNECT registry.example:443 HTTP/1.1",
            "CONNECT other.example:443 HTTP/1.1",
        }


async def _use(kedge: Commands, authority: str, local: str) -> None:
    await kedge.run("up", *CLUSTER, "--registry-ca", authority, "--local-registry", local)
    told = await kedge.run("up", *CLUSTER, "--registry-mirror", f"docker.io=http://{local}")
    assert "--registry-mirror is" in told
    status = json.loads(await kedge.run("status", *CLUSTER, "-o", "json"))
    assert f"INSECURE mirror: http://{local} (plain HTTP)" in status["nodes"][0]["registries"]
    shown = await kedge.run(
        "get", "configmap", "-n", "kube-public", "local-registry-hosting", "-o", "yaml"
    )
    assert f'host: "{local}"' in shown
    pulled = await kedge.run("image", "pull", *CLUSTER, "registry.example/app:1", "busybox:1")
    assert 'image "registry.example/app:1" pulled' in pulled
    refused = await kedge.run("image", "pull", *CLUSTER, "other.example/app:1", status=1)
    assert "($HTTPS_PROXY) does not connect to other.example:443" in refused
    await kedge.run("image", "rm", *CLUSTER, "registry.example/app:1", "busybox:1")
    os.kill(status["nodes"][0]["pid"], signal.SIGKILL)
    for name, image in (("a", "registry.example/app:1"), ("b", "busybox:1")):
        run = ("run", name, "--image", image, "--image-pull-policy", "Always")
        await kedge.run(*run, "--restart", "Never", "--", "/none")
        # The image has no program: the pod fails after the pull.
        phase = "--for=jsonpath={.status.phase}=Failed"
        await kedge.run("wait", phase, f"pod/{name}", "--timeout", "60s")
    events = await kedge.run("get", "events")
    assert 'Successfully pulled image "registry.example/app:1"' in events
    assert 'Successfully pulled image "busybox:1"' in events
