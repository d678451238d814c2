"""The start of one container, from its image to its postStart hook.

The order is fixed: image, devices, variables, mounts, PreStartContainer, create, start, postStart.
Each step needs the result of an earlier one: variables may expand those of devices, `subPathExpr`
needs the variables, and PreStartContainer carries them. PreStartContainer is the last step before
the runtime creates the container, so that no device is reconfigured for a container that then fails
for want of a ConfigMap.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.machinery.durations import format_duration
from kedge.node.pod.dependencies import (
    ConfigFailure,
    ImageFailure,
    PodDependencies,
    ResolvedImage,
    VolumeFailure,
)
from kedge.node.pod.event_recorder import NORMAL, WARNING, PodEventRecorder
from kedge.node.pod.hooks import HookFailure, run_hook
from kedge.node.pod.runtime_cache import RuntimeCache
from kedge.node.pod.runtime_specs import container_spec, target_of
from kedge.node.pod.security_context import container_security
from kedge.node.pod.stop import MINIMUM_STOP_SECONDS
from kedge.node.pod.timeouts import unless_set
from kedge.node.runtime.runtime import ContainerMount, NotFoundError, PodSandbox, RuntimeFailure
from kedge.node.runtime.sampled_limits import sampling_notice

_MILLISECOND = 10**6


class ContainerStartFailure(Exception):
    """A container did not start. Its waiting state shows the reason until the next try."""

    def __init__(self, reason: str, message: str, *, is_pull: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.is_pull = is_pull
        """Whether the pull of its image failed, which has a back-off of its own."""


class ContainerStarter(msgspec.Struct, frozen=True):
    """Starts the containers of one pod."""

    dependencies: PodDependencies
    cache: RuntimeCache
    recorder: PodEventRecorder
    forced_stop: asyncio.Event
    """Set when the pod must end: every step that may take long is interrupted."""

    async def start(
        self, pod: Pod, container: Container, attempt: int, sandbox: PodSandbox, ips: Sequence[str]
    ) -> None:
        """Start a container. Raises ContainerStartFailure, or WorkInterrupted."""
        image = await self._image(pod, container)
        container_id = await self._create(pod, container, attempt, sandbox, image, ips)
        self._record(container, NORMAL, "Created", "Container created")
        await self._run(pod, container, container_id)
        self._record(container, NORMAL, "Started", "Container started")
        await self._post_start(pod, container, container_id, ips)

    def _record(self, container: Container, type_: str, reason: str, message: str) -> None:
        self.recorder.record_container(container.name, type_, reason, message)

    # The image.

    async def _image(self, pod: Pod, container: Container) -> ResolvedImage:
        begun = self.dependencies.clock.monotonic()
        pulling = False

        def progress() -> None:
            nonlocal pulling
            pulling = True
            self._record(container, NORMAL, "Pulling", f'Pulling image "{container.image}"')

        try:
            image = await unless_set(self.forced_stop, self._resolve(pod, container, progress))
        except ImageFailure as error:
            raise self._no_image(container, error) from error
        if pulling:
            spent = self.dependencies.clock.monotonic() - begun
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
        self._record(container, NORMAL, "Pulled", message)
        return image

    async def _resolve(
        self, pod: Pod, container: Container, progress: Callable[[], None]
    ) -> ResolvedImage:
        secrets = await self.dependencies.pull_secrets.of(pod) if pod.spec.imagePullSecrets else ()
        policy = container.imagePullPolicy or "IfNotPresent"
        return await self.dependencies.images.resolve(container.image, policy, secrets, progress)

    def _no_image(self, container: Container, error: ImageFailure) -> ContainerStartFailure:
        pull = _is_pull(error)
        if error.reason == "ErrImageNeverPull":
            self._record(container, WARNING, error.reason, error.message)
        elif pull:
            text = f'Failed to pull image "{container.image}": {error.message}'
            self._record(container, WARNING, "Failed", text)
        else:
            self._record(container, WARNING, "InspectFailed", error.message)
        self._record(container, WARNING, "Failed", f"Error: {error.reason}")
        return ContainerStartFailure(error.reason, error.message, is_pull=pull)

    def _no_image_volume(self, container: Container, error: ImageFailure) -> ContainerStartFailure:
        self._record(container, WARNING, "Failed", f"Error: {error.message}")
        return ContainerStartFailure(error.reason, error.message, is_pull=_is_pull(error))

    # The container.

    async def _create(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        sandbox: PodSandbox,
        image: ResolvedImage,
        ips: Sequence[str],
    ) -> str:
        dependencies = self.dependencies
        try:
            claimed = dependencies.claims.cdi_devices(pod, container)
            grant = dependencies.devices.grant(pod, container, claimed)
            found = await unless_set(
                self.forced_stop, dependencies.environment.environment(pod, container, ips)
            )
            env = [*{**grant.env, **found.own, **found.services}.items()]
            own = await unless_set(
                self.forced_stop, dependencies.volumes.mounts_of(pod, container, env)
            )
            mounts = _joined(grant.mounts, own)
            blocks = dependencies.volumes.devices_of(pod, container)
            observed = self.cache.of(pod.metadata.uid)
            target = target_of(container, {record.name: record.id for record in observed.running})
            spec = container_spec(
                pod,
                container,
                attempt,
                image=image,
                env=env,
                mounts=[*mounts, *self._own_mounts(pod, container, attempt, mounts)],
                limits=dependencies.cgroups.resources(pod, container),
                security=container_security(
                    pod,
                    container,
                    image,
                    profiles=dependencies.seccomp_profiles,
                    target=target,
                ),
                grant=replace(grant, devices=[*grant.devices, *blocks]) if blocks else grant,
            )
            await unless_set(
                self.forced_stop, dependencies.device_access.check(pod, container, found.own)
            )
            await unless_set(
                self.forced_stop, dependencies.devices.pre_start(pod, container, found.own)
            )
        except ImageFailure as error:
            raise self._no_image_volume(container, error) from error
        except (ConfigFailure, VolumeFailure, OSError) as error:
            raise self._failure(container, "CreateContainerConfigError", error) from error
        try:
            return await dependencies.runtime.create_container(sandbox.id, spec)
        except (RuntimeFailure, NotFoundError) as error:
            raise self._failure(container, "CreateContainerError", error) from error

    def _own_mounts(
        self, pod: Pod, container: Container, attempt: int, mounts: Sequence[ContainerMount]
    ) -> list[ContainerMount]:
        """Return the mounts that every container has: the hosts file and the termination log."""
        uid, files = pod.metadata.uid, self.dependencies.files
        own: list[ContainerMount] = []
        if not any(mount.takes("/etc/hosts") for mount in mounts):
            own.append(ContainerMount(container_path="/etc/hosts", host_path=str(files.hosts(uid))))
        message_path = container.terminationMessagePath
        if message_path:
            path = files.make_termination_log(uid, container.name, attempt)
            if not message_path.startswith("/"):
                message_path = f"/{message_path}"
            own.append(ContainerMount(container_path=message_path, host_path=str(path)))
        return own

    async def _run(self, pod: Pod, container: Container, container_id: str) -> None:
        try:
            await self.dependencies.runtime.start_container(container_id)
        except (RuntimeFailure, NotFoundError) as error:
            await self.cache.refresh(container_id)
            raise self._failure(container, "RunContainerError", error) from error
        record = await self.cache.refresh(container_id)
        for shortfall in record.shortfalls if record is not None else ():
            self._record(container, WARNING, "NotEnforced", shortfall)
        limits = self.dependencies.cgroups.resources(pod, container)
        if notice := sampling_notice(limits, self.dependencies.runtime.capabilities):
            self._record(container, NORMAL, "LimitsSampled", notice)

    async def _post_start(
        self, pod: Pod, container: Container, container_id: str, ips: Sequence[str]
    ) -> None:
        handler = container.lifecycle.postStart if container.lifecycle is not None else None
        if handler is None:
            return
        hook = run_hook(
            handler,
            container,
            container_id,
            ip=ips[0] if ips else "",
            runtime=self.dependencies.runtime,
            clock=self.dependencies.clock,
            network=self.dependencies.network,
        )
        try:
            await unless_set(self.forced_stop, hook)
        except HookFailure as error:
            # The output of the hook may hold secrets, so it is not in the event.
            self._record(container, WARNING, "FailedPostStartHook", "PostStartHook failed")
            self._record(container, NORMAL, "Killing", "FailedPostStartHook")
            grace = max(float(pod.spec.terminationGracePeriodSeconds or 0), MINIMUM_STOP_SECONDS)
            stop = self.dependencies.runtime.stop_container(container_id, grace)
            await unless_set(self.forced_stop, stop)
            await self.cache.refresh(container_id)
            raise ContainerStartFailure("PostStartHookError", str(error)) from error

    def _failure(
        self, container: Container, reason: str, error: Exception
    ) -> ContainerStartFailure:
        self._record(container, WARNING, "Failed", f"Error: {error}")
        return ContainerStartFailure(reason, str(error))


def _is_pull(error: ImageFailure) -> bool:
    """Return whether an image failed to be pulled, and further attempts back off."""
    return error.reason not in ("ErrImageNeverPull", "InvalidImageName", "ImageInspectError")


def _joined(
    of_devices: Sequence[ContainerMount], own: Sequence[ContainerMount]
) -> list[ContainerMount]:
    """Return all mounts; a mount of the pod overrides one of its devices."""
    taken = {mount.container_path for mount in own}
    return [*(mount for mount in of_devices if mount.container_path not in taken), *own]
