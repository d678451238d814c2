"""The messages and methods of CRI that a node uses (package runtime.v1).

The annotation of a field is its number on the wire. A runtime skips fields that it does not know.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

from kedge.deviceplugin.messages import Empty
from kedge.deviceplugin.methods import Method
from kedge.node.runtime.runtime import RuntimeMessage

POD: Final = 0
CONTAINER: Final = 1
NODE: Final = 2
TARGET: Final = 3
"""Modes of namespaces."""
CREATED: Final = 0
RUNNING: Final = 1
EXITED: Final = 2
"""States of containers."""
SANDBOX_READY: Final = 0
SYSTEMD: Final = 0
"""The driver of control groups that is not the kernel's file system."""
RUNTIME_DEFAULT: Final = 0
UNCONFINED: Final = 1
LOCALHOST: Final = 2
"""Types of seccomp profiles."""
MERGE: Final = 0
STRICT: Final = 1
"""Policies of supplemental groups."""
_PLAIN_SIGNALS: Final = (
    "SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL"
    " SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGSEGV SIGSTKFLT SIGSTOP SIGSYS SIGTERM SIGTRAP"
    " SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ SIGRTMIN"
)
SIGNALS: Final = (
    *_PLAIN_SIGNALS.split(),
    *(f"SIGRTMIN+{number}" for number in range(1, 16)),
    *(f"SIGRTMAX-{number}" for number in range(14, 0, -1)),
    "SIGRTMAX",
)
"""In the order of their numbers in CRI, which begin with 1."""
PROPAGATIONS: Final = {"None": 0, "HostToContainer": 1, "Bidirectional": 2}


class CriMessage(RuntimeMessage):
    """Base of the messages below."""


class CriInt64(CriMessage):
    """A number that may be absent."""

    value: Annotated[int, 1] = 0


class CriVersionRequest(CriMessage):
    """The version of the kubelet's side."""

    version: Annotated[str, 1] = ""


class CriVersion(CriMessage):
    """The name and version of a runtime."""

    version: Annotated[str, 1] = ""
    runtime_name: Annotated[str, 2] = ""
    runtime_version: Annotated[str, 3] = ""
    runtime_api_version: Annotated[str, 4] = ""


class CriVerbose(CriMessage):
    """A request for the status of the runtime."""

    verbose: Annotated[bool, 1] = False


class CriCondition(CriMessage):
    """A condition of the runtime: RuntimeReady or NetworkReady."""

    type: Annotated[str, 1] = ""
    status: Annotated[bool, 2] = False
    reason: Annotated[str, 3] = ""
    message: Annotated[str, 4] = ""


class CriConditions(CriMessage):
    """The conditions of the runtime."""

    conditions: Annotated[Sequence[CriCondition], 1] = ()


class CriHandlerFeatures(CriMessage):
    """The features of a handler."""

    recursive_read_only_mounts: Annotated[bool, 1] = False
    user_namespaces: Annotated[bool, 2] = False


class CriHandler(CriMessage):
    """A handler of RuntimeClasses; the default one has no name."""

    name: Annotated[str, 1] = ""
    features: Annotated[CriHandlerFeatures | None, 2] = None


class CriFeatures(CriMessage):
    """The features that do not depend on the handler."""

    supplemental_groups_policy: Annotated[bool, 1] = False


class CriRuntimeStatus(CriMessage):
    """The answer to Status."""

    status: Annotated[CriConditions | None, 1] = None
    info: Annotated[Mapping[str, str], 2] = {}
    runtime_handlers: Annotated[Sequence[CriHandler], 3] = ()
    features: Annotated[CriFeatures | None, 4] = None


class CriLinuxRuntimeConfig(CriMessage):
    """The driver of control groups."""

    cgroup_driver: Annotated[int, 1] = 0


class CriRuntimeConfig(CriMessage):
    """The answer to RuntimeConfig."""

    linux: Annotated[CriLinuxRuntimeConfig | None, 1] = None


class CriSandboxMetadata(CriMessage):
    """The identity of a sandbox."""

    name: Annotated[str, 1] = ""
    uid: Annotated[str, 2] = ""
    namespace: Annotated[str, 3] = ""
    attempt: Annotated[int, 4] = 0


class CriContainerMetadata(CriMessage):
    """The identity of a container in its sandbox."""

    name: Annotated[str, 1] = ""
    attempt: Annotated[int, 2] = 0


class CriDns(CriMessage):
    """The content of resolv.conf."""

    servers: Annotated[Sequence[str], 1] = ()
    searches: Annotated[Sequence[str], 2] = ()
    options: Annotated[Sequence[str], 3] = ()


class CriIdMapping(CriMessage):
    """A range of users or groups of a user namespace, and their ids on the machine."""

    host_id: Annotated[int, 1] = 0
    container_id: Annotated[int, 2] = 0
    length: Annotated[int, 3] = 0


class CriUserNamespace(CriMessage):
    """The user namespace of a sandbox."""

    mode: Annotated[int, 1] = POD
    uids: Annotated[Sequence[CriIdMapping], 2] = ()
    gids: Annotated[Sequence[CriIdMapping], 3] = ()


class CriNamespaces(CriMessage):
    """Which namespaces a sandbox or a container has."""

    network: Annotated[int, 1] = POD
    pid: Annotated[int, 2] = POD
    ipc: Annotated[int, 3] = POD
    target_id: Annotated[str, 4] = ""
    userns_options: Annotated[CriUserNamespace | None, 5] = None


class CriSeccomp(CriMessage):
    """A seccomp profile."""

    profile_type: Annotated[int, 1] = RUNTIME_DEFAULT
    localhost_ref: Annotated[str, 2] = ""


class CriSandboxSecurity(CriMessage):
    """The security settings of a sandbox."""

    namespace_options: Annotated[CriNamespaces | None, 1] = None
    supplemental_groups: Annotated[Sequence[int], 5] = ()
    privileged: Annotated[bool, 6] = False
    seccomp: Annotated[CriSeccomp | None, 9] = None


class CriSandboxLinux(CriMessage):
    """The settings of a sandbox on Linux."""

    cgroup_parent: Annotated[str, 1] = ""
    security_context: Annotated[CriSandboxSecurity | None, 2] = None
    sysctls: Annotated[Mapping[str, str], 3] = {}


class CriSandboxConfig(CriMessage):
    """The specification of a sandbox."""

    metadata: Annotated[CriSandboxMetadata | None, 1] = None
    hostname: Annotated[str, 2] = ""
    log_directory: Annotated[str, 3] = ""
    dns_config: Annotated[CriDns | None, 4] = None
    labels: Annotated[Mapping[str, str], 6] = {}
    annotations: Annotated[Mapping[str, str], 7] = {}
    linux: Annotated[CriSandboxLinux | None, 8] = None


class CriRunSandboxRequest(CriMessage):
    """A request for a sandbox."""

    config: Annotated[CriSandboxConfig | None, 1] = None
    runtime_handler: Annotated[str, 2] = ""


class CriSandboxId(CriMessage):
    """The id of a sandbox, in requests and answers."""

    pod_sandbox_id: Annotated[str, 1] = ""
    verbose: Annotated[bool, 2] = False


class CriSandbox(CriMessage):
    """A sandbox in a list."""

    id: Annotated[str, 1] = ""
    metadata: Annotated[CriSandboxMetadata | None, 2] = None
    state: Annotated[int, 3] = 0
    created_at: Annotated[int, 4] = 0
    labels: Annotated[Mapping[str, str], 5] = {}
    annotations: Annotated[Mapping[str, str], 6] = {}


class CriSandboxStatus(CriMessage):
    """The answer to PodSandboxStatus; its information is for verbose requests."""

    info: Annotated[Mapping[str, str], 2] = {}


class CriSandboxFilter(CriMessage):
    """Which sandboxes are listed."""

    id: Annotated[str, 1] = ""
    label_selector: Annotated[Mapping[str, str], 3] = {}


class CriListSandboxesRequest(CriMessage):
    """A request for a list of sandboxes."""

    filter: Annotated[CriSandboxFilter | None, 1] = None


class CriSandboxes(CriMessage):
    """A list of sandboxes."""

    items: Annotated[Sequence[CriSandbox], 1] = ()


class CriImageSpec(CriMessage):
    """The name or id of an image."""

    image: Annotated[str, 1] = ""
    user_specified_image: Annotated[str, 18] = ""
    """The name of an image with an id: CRI-O checks signatures with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriVariable:
    """An environment variable."""

    key: Annotated[str, 1] = ""
    value: Annotated[bytes, 2] = field(default=b"", repr=False)


class CriMount(CriMessage):
    """A mount of a container."""

    container_path: Annotated[str, 1] = ""
    host_path: Annotated[str, 2] = ""
    readonly: Annotated[bool, 3] = False
    selinux_relabel: Annotated[bool, 4] = False
    propagation: Annotated[int, 5] = 0
    uid_mappings: Annotated[Sequence[CriIdMapping], 6] = ()
    gid_mappings: Annotated[Sequence[CriIdMapping], 7] = ()
    recursive_read_only: Annotated[bool, 8] = False


class CriDevice(CriMessage):
    """A device of a container."""

    container_path: Annotated[str, 1] = ""
    host_path: Annotated[str, 2] = ""
    permissions: Annotated[str, 3] = ""


class CriHugePages(CriMessage):
    """A limit of huge pages."""

    page_size: Annotated[str, 1] = ""
    limit: Annotated[int, 2] = 0


class CriResources(CriMessage):
    """The limits of a container."""

    cpu_period: Annotated[int, 1] = 0
    cpu_quota: Annotated[int, 2] = 0
    cpu_shares: Annotated[int, 3] = 0
    memory_limit_in_bytes: Annotated[int, 4] = 0
    oom_score_adj: Annotated[int, 5] = 0
    hugepage_limits: Annotated[Sequence[CriHugePages], 8] = ()


class CriCapabilities(CriMessage):
    """Capabilities to add and to drop."""

    add_capabilities: Annotated[Sequence[str], 1] = ()
    drop_capabilities: Annotated[Sequence[str], 2] = ()


class CriContainerSecurity(CriMessage):
    """The security settings of a container."""

    capabilities: Annotated[CriCapabilities | None, 1] = None
    privileged: Annotated[bool, 2] = False
    namespace_options: Annotated[CriNamespaces | None, 3] = None
    run_as_user: Annotated[CriInt64 | None, 5] = None
    run_as_username: Annotated[str, 6] = ""
    readonly_rootfs: Annotated[bool, 7] = False
    supplemental_groups: Annotated[Sequence[int], 8] = ()
    no_new_privs: Annotated[bool, 11] = False
    run_as_group: Annotated[CriInt64 | None, 12] = None
    masked_paths: Annotated[Sequence[str], 13] = ()
    readonly_paths: Annotated[Sequence[str], 14] = ()
    seccomp: Annotated[CriSeccomp | None, 15] = None
    supplemental_groups_policy: Annotated[int, 17] = MERGE


class CriContainerLinux(CriMessage):
    """The settings of a container on Linux."""

    resources: Annotated[CriResources | None, 1] = None
    security_context: Annotated[CriContainerSecurity | None, 2] = None


class CriContainerConfig(CriMessage):
    """The specification of a container."""

    metadata: Annotated[CriContainerMetadata | None, 1] = None
    image: Annotated[CriImageSpec | None, 2] = None
    command: Annotated[Sequence[str], 3] = ()
    args: Annotated[Sequence[str], 4] = ()
    working_dir: Annotated[str, 5] = ""
    envs: Annotated[Sequence[CriVariable], 6] = ()
    mounts: Annotated[Sequence[CriMount], 7] = ()
    devices: Annotated[Sequence[CriDevice], 8] = ()
    labels: Annotated[Mapping[str, str], 9] = {}
    annotations: Annotated[Mapping[str, str], 10] = {}
    log_path: Annotated[str, 11] = ""
    stdin: Annotated[bool, 12] = False
    stdin_once: Annotated[bool, 13] = False
    tty: Annotated[bool, 14] = False
    linux: Annotated[CriContainerLinux | None, 15] = None
    stop_signal: Annotated[int, 18] = 0


class CriCreateRequest(CriMessage):
    """A request for a container in a sandbox."""

    pod_sandbox_id: Annotated[str, 1] = ""
    config: Annotated[CriContainerConfig | None, 2] = None
    sandbox_config: Annotated[CriSandboxConfig | None, 3] = None


class CriContainerId(CriMessage):
    """The id of a container, in requests and answers."""

    container_id: Annotated[str, 1] = ""


class CriStopRequest(CriMessage):
    """A request to stop a container."""

    container_id: Annotated[str, 1] = ""
    timeout: Annotated[int, 2] = 0


class CriContainerStatusRequest(CriMessage):
    """A request for the status of a container."""

    container_id: Annotated[str, 1] = ""
    verbose: Annotated[bool, 2] = False


class CriContainerStatus(CriMessage):
    """The status of a container."""

    id: Annotated[str, 1] = ""
    metadata: Annotated[CriContainerMetadata | None, 2] = None
    state: Annotated[int, 3] = 0
    created_at: Annotated[int, 4] = 0
    started_at: Annotated[int, 5] = 0
    finished_at: Annotated[int, 6] = 0
    exit_code: Annotated[int, 7] = 0
    reason: Annotated[str, 10] = ""
    message: Annotated[str, 11] = ""
    labels: Annotated[Mapping[str, str], 12] = {}
    annotations: Annotated[Mapping[str, str], 13] = {}
    log_path: Annotated[str, 15] = ""


class CriContainerStatusResponse(CriMessage):
    """The answer to ContainerStatus; its information is for verbose requests."""

    status: Annotated[CriContainerStatus | None, 1] = None
    info: Annotated[Mapping[str, str], 2] = {}


class CriContainerFilter(CriMessage):
    """Which containers are listed."""

    id: Annotated[str, 1] = ""
    label_selector: Annotated[Mapping[str, str], 4] = {}


class CriListContainersRequest(CriMessage):
    """A request for a list of containers."""

    filter: Annotated[CriContainerFilter | None, 1] = None


class CriContainer(CriMessage):
    """A container in a list."""

    id: Annotated[str, 1] = ""
    pod_sandbox_id: Annotated[str, 2] = ""
    image_ref: Annotated[str, 5] = ""
    """The id of its image, or a name with a digest."""
    state: Annotated[int, 6] = 0
    annotations: Annotated[Mapping[str, str], 9] = {}
    image_id: Annotated[str, 10] = ""
    """Empty in older runtimes."""


class CriContainers(CriMessage):
    """A list of containers."""

    containers: Annotated[Sequence[CriContainer], 1] = ()


class CriUpdateRequest(CriMessage):
    """A request for other limits."""

    container_id: Annotated[str, 1] = ""
    linux: Annotated[CriResources | None, 2] = None


class CriExecSyncRequest(CriMessage):
    """A request to run a command to its end."""

    container_id: Annotated[str, 1] = ""
    cmd: Annotated[Sequence[str], 2] = ()
    timeout: Annotated[int, 3] = 0


class CriExecSyncResponse(CriMessage):
    """The outcome of a command."""

    stdout: Annotated[bytes, 1] = b""
    stderr: Annotated[bytes, 2] = b""
    exit_code: Annotated[int, 3] = 0


class CriExecRequest(CriMessage):
    """A request for the address of a command's streams."""

    container_id: Annotated[str, 1] = ""
    cmd: Annotated[Sequence[str], 2] = ()
    tty: Annotated[bool, 3] = False
    stdin: Annotated[bool, 4] = False
    stdout: Annotated[bool, 5] = False
    stderr: Annotated[bool, 6] = False


class CriAttachRequest(CriMessage):
    """A request for the address of a container's own streams."""

    container_id: Annotated[str, 1] = ""
    stdin: Annotated[bool, 2] = False
    tty: Annotated[bool, 3] = False
    stdout: Annotated[bool, 4] = False
    stderr: Annotated[bool, 5] = False


class CriStreamAddress(CriMessage):
    """The address of streams."""

    url: Annotated[str, 1] = ""


class CriImage(CriMessage):
    """An image of the runtime."""

    id: Annotated[str, 1] = ""
    repo_tags: Annotated[Sequence[str], 2] = ()
    repo_digests: Annotated[Sequence[str], 3] = ()
    size: Annotated[int, 4] = 0
    uid: Annotated[CriInt64 | None, 5] = None
    username: Annotated[str, 6] = ""
    pinned: Annotated[bool, 8] = False


class CriImageRequest(CriMessage):
    """A request about an image."""

    image: Annotated[CriImageSpec | None, 1] = None


class CriImageStatus(CriMessage):
    """The answer to ImageStatus; without an image if the runtime does not have it."""

    image: Annotated[CriImage | None, 1] = None


class CriImages(CriMessage):
    """A list of images."""

    images: Annotated[Sequence[CriImage], 1] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CriRegistryAuth:
    """Credentials for a registry."""

    username: Annotated[str, 1] = field(default="", repr=False)
    password: Annotated[str, 2] = field(default="", repr=False)
    identity_token: Annotated[str, 5] = field(default="", repr=False)


class CriPullRequest(CriMessage):
    """A request to pull an image."""

    image: Annotated[CriImageSpec | None, 1] = None
    auth: Annotated[CriRegistryAuth | None, 2] = None


class CriPullResponse(CriMessage):
    """The pulled image."""

    image_ref: Annotated[str, 1] = ""


class CriFilesystemId(CriMessage):
    """A file system, by its directory."""

    mountpoint: Annotated[str, 1] = ""


class CriFilesystem(CriMessage):
    """The usage of a file system."""

    fs_id: Annotated[CriFilesystemId | None, 2] = None


class CriImageFilesystems(CriMessage):
    """The answer to ImageFsInfo."""

    image_filesystems: Annotated[Sequence[CriFilesystem], 1] = ()


_RUNTIME: Final = "runtime.v1.RuntimeService"
_IMAGES: Final = "runtime.v1.ImageService"

VERSION: Final = Method(_RUNTIME, "Version", CriVersionRequest, CriVersion)
STATUS: Final = Method(_RUNTIME, "Status", CriVerbose, CriRuntimeStatus)
RUNTIME_CONFIG: Final = Method(_RUNTIME, "RuntimeConfig", Empty, CriRuntimeConfig)
RUN_SANDBOX: Final = Method(_RUNTIME, "RunPodSandbox", CriRunSandboxRequest, CriSandboxId)
STOP_SANDBOX: Final = Method(_RUNTIME, "StopPodSandbox", CriSandboxId, Empty)
REMOVE_SANDBOX: Final = Method(_RUNTIME, "RemovePodSandbox", CriSandboxId, Empty)
SANDBOX_STATUS: Final = Method(_RUNTIME, "PodSandboxStatus", CriSandboxId, CriSandboxStatus)
LIST_SANDBOXES: Final = Method(_RUNTIME, "ListPodSandbox", CriListSandboxesRequest, CriSandboxes)
CREATE_CONTAINER: Final = Method(_RUNTIME, "CreateContainer", CriCreateRequest, CriContainerId)
START_CONTAINER: Final = Method(_RUNTIME, "StartContainer", CriContainerId, Empty)
STOP_CONTAINER: Final = Method(_RUNTIME, "StopContainer", CriStopRequest, Empty)
REMOVE_CONTAINER: Final = Method(_RUNTIME, "RemoveContainer", CriContainerId, Empty)
LIST_CONTAINERS: Final = Method(_RUNTIME, "ListContainers", CriListContainersRequest, CriContainers)
CONTAINER_STATUS: Final = Method(
    _RUNTIME, "ContainerStatus", CriContainerStatusRequest, CriContainerStatusResponse
)
UPDATE_CONTAINER: Final = Method(_RUNTIME, "UpdateContainerResources", CriUpdateRequest, Empty)
REOPEN_LOG: Final = Method(_RUNTIME, "ReopenContainerLog", CriContainerId, Empty)
EXEC_SYNC: Final = Method(_RUNTIME, "ExecSync", CriExecSyncRequest, CriExecSyncResponse)
EXEC: Final = Method(_RUNTIME, "Exec", CriExecRequest, CriStreamAddress)
ATTACH: Final = Method(_RUNTIME, "Attach", CriAttachRequest, CriStreamAddress)
LIST_IMAGES: Final = Method(_IMAGES, "ListImages", CriImageRequest, CriImages)
IMAGE_STATUS: Final = Method(_IMAGES, "ImageStatus", CriImageRequest, CriImageStatus)
PULL_IMAGE: Final = Method(_IMAGES, "PullImage", CriPullRequest, CriPullResponse)
REMOVE_IMAGE: Final = Method(_IMAGES, "RemoveImage", CriImageRequest, Empty)
IMAGE_FILESYSTEMS: Final = Method(_IMAGES, "ImageFsInfo", Empty, CriImageFilesystems)
