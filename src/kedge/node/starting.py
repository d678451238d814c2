"""Starting: one container, from its image to its postStart hook, in the order that it takes."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.machinery.durations import format_duration
from kedge.node.hooks import HookFailure, run_hook
from kedge.node.observed import Observations
from kedge.node.parts import ConfigFailure, Image, ImageFailure, Parts, VolumeFailure
from kedge.node.runtime.runtime import Mount, NotFoundError, RuntimeFailure, Sandbox
from kedge.node.security import security
from kedge.node.specs import container_spec, target_of
from kedge.node.stopping import MINIMUM
from kedge.node.telling import NORMAL, WARNING, Telling
from kedge.node.waits import unless

_MILLISECOND = 10**6


class StartFailure(Exception):
    """A container could not be started: what it shows while it waits for the next try."""

    def __init__(self, reason: str, message: str, *, pull: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.pull = pull
        """It was its image, so that the next try backs off."""


@dataclass(frozen=True)
class Starting:
    """Starts the containers of one pod."""

    parts: Parts
    observations: Observations
    telling: Telling
    hurried: asyncio.Event
    """Set when the pod is to end: whatever takes long is given up."""

    async def start(
        self, pod: Pod, container: Container, attempt: int, sandbox: Sandbox, ips: Sequence[str]
    ) -> None:
        """Raises StartFailure, or Interrupted."""
        image = await self._image(pod, container)
        identity = await self._create(pod, container, attempt, sandbox, image, ips)
        self._tell(container, NORMAL, "Created", "Container created")
        await self._run(container, identity)
        self._tell(container, NORMAL, "Started", "Container started")
        await self._post_start(pod, container, identity, ips)

    def _tell(self, container: Container, type_: str, reason: str, message: str) -> None:
        self.telling.of_container(container.name, type_, reason, message)

    # The image.

    async def _image(self, pod: Pod, container: Container) -> Image:
        begun = self.parts.clock.monotonic()
        pulling = False

        def progress() -> None:
            nonlocal pulling
            pulling = True
            self._tell(container, NORMAL, "Pulling", f'Pulling image "{container.image}"')

        try:
            image = await unless(self.hurried, self._resolve(pod, container, progress))
        except ImageFailure as error:
            raise self._no_image(container, error) from error
        if pulling:
            spent = self.parts.clock.monotonic() - begun
            text = format_duration(int(spent * 1000) * _MILLISECOND)
            message = (
                f'Successfully pulled image "{container.image}" in {text} '
                f"({text} including waiting). Image size: {image.size} bytes."
            )
        else:
            message = (
                f'Container image "{container.image}" already present on machine '
                "and can be accessed by the pod"
            )
        self._tell(container, NORMAL, "Pulled", message)
        return image

    async def _resolve(self, pod: Pod, container: Container, progress: Callable[[], None]) -> Image:
        secrets = await self.parts.secrets.of(pod) if pod.spec.imagePullSecrets else ()
        policy = container.imagePullPolicy or "IfNotPresent"
        return await self.parts.images.resolve(container.image, policy, secrets, progress)

    def _no_image(self, container: Container, error: ImageFailure) -> StartFailure:
        pull = error.reason not in ("ErrImageNeverPull", "InvalidImageName", "ImageInspectError")
        if error.reason == "ErrImageNeverPull":
            self._tell(container, WARNING, error.reason, error.message)
        elif pull:
            text = f'Failed to pull image "{container.image}": {error.message}'
            self._tell(container, WARNING, "Failed", text)
        else:
            self._tell(container, WARNING, "InspectFailed", error.message)
        self._tell(container, WARNING, "Failed", f"Error: {error.reason}")
        return StartFailure(error.reason, error.message, pull=pull)

    # The container.

    async def _create(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        sandbox: Sandbox,
        image: Image,
        ips: Sequence[str],
    ) -> str:
        parts = self.parts
        try:
            given = parts.devices.given(pod, container)
            found = await unless(self.hurried, parts.environment.environment(pod, container, ips))
            env = [*{**given.env, **found.own, **found.services}.items()]
            own = await unless(self.hurried, parts.volumes.mounts_of(pod, container, env))
            mounts = _joined(given.mounts, own)
            seen = self.observations.of(pod.metadata.uid)
            target = target_of(container, {record.name: record.id for record in seen.running})
            spec = container_spec(
                pod,
                container,
                attempt,
                image=image,
                env=env,
                mounts=[*mounts, *self._own_mounts(pod, container, attempt, mounts)],
                resources=parts.cgroups.resources(pod, container),
                security=security(pod, container, image, profiles=parts.profiles, target=target),
                given=given,
            )
            # Last, so that no device is changed for a container that then does not start.
            await unless(self.hurried, parts.devices.pre_start(pod, container, found.own))
        except (ConfigFailure, VolumeFailure, OSError) as error:
            raise self._failure(container, "CreateContainerConfigError", error) from error
        try:
            return await parts.runtime.create_container(sandbox.id, spec)
        except (RuntimeFailure, NotFoundError) as error:
            raise self._failure(container, "CreateContainerError", error) from error

    def _own_mounts(
        self, pod: Pod, container: Container, attempt: int, mounts: Sequence[Mount]
    ) -> list[Mount]:
        """The files that every container sees: names of hosts, and where to leave a message."""
        uid, files = pod.metadata.uid, self.parts.files
        own: list[Mount] = []
        if not any(mount.takes("/etc/hosts") for mount in mounts):
            own.append(Mount(container_path="/etc/hosts", host_path=str(files.hosts(uid))))
        where = container.terminationMessagePath
        if where:
            path = files.make_termination_log(uid, container.name, attempt)
            where = where if where.startswith("/") else f"/{where}"
            own.append(Mount(container_path=where, host_path=str(path)))
        return own

    async def _run(self, container: Container, identity: str) -> None:
        try:
            await self.parts.runtime.start_container(identity)
        except (RuntimeFailure, NotFoundError) as error:
            await self.observations.refresh(identity)
            raise self._failure(container, "RunContainerError", error) from error
        record = await self.observations.refresh(identity)
        for shortfall in record.shortfalls if record is not None else ():
            self._tell(container, WARNING, "NotEnforced", shortfall)

    async def _post_start(
        self, pod: Pod, container: Container, identity: str, ips: Sequence[str]
    ) -> None:
        handler = container.lifecycle.postStart if container.lifecycle is not None else None
        if handler is None:
            return
        hook = run_hook(
            handler,
            container,
            identity,
            ip=ips[0] if ips else "",
            runtime=self.parts.runtime,
            clock=self.parts.clock,
        )
        try:
            await unless(self.hurried, hook)
        except HookFailure as error:
            # What the hook said may hold secrets, so it is not in the event.
            self._tell(container, WARNING, "FailedPostStartHook", "PostStartHook failed")
            self._tell(container, NORMAL, "Killing", "FailedPostStartHook")
            grace = max(float(pod.spec.terminationGracePeriodSeconds or 0), MINIMUM)
            stop = self.parts.runtime.stop_container(identity, grace)
            await unless(self.hurried, stop)
            await self.observations.refresh(identity)
            raise StartFailure("PostStartHookError", str(error)) from error

    def _failure(self, container: Container, reason: str, error: Exception) -> StartFailure:
        self._tell(container, WARNING, "Failed", f"Error: {error}")
        return StartFailure(reason, str(error))


def _joined(of_devices: Sequence[Mount], own: Sequence[Mount]) -> list[Mount]:
    """Mounts of the pod over those that its devices bring."""
    taken = {mount.container_path for mount in own}
    return [*(mount for mount in of_devices if mount.container_path not in taken), *own]
