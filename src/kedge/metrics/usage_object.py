"""UsageObject: the newest usage of one node, pod or claim, and its JSON."""

from array import array
from collections.abc import Mapping, Sequence

from kedge.metrics.frame import Frame, FrameContainer, FramePod
from kedge.metrics.serve import encoding


class UsageObject:
    """A node or a pod of the metrics API: its identity, labels and rows of a frame.

    Its JSON is made when it is first read and kept until the next frame: many readers of one tick
    share it, and objects without readers cost nothing.
    """

    __slots__ = (
        "_marks",
        "added",
        "containers",
        "end_tick",
        "former",
        "frame",
        "kept_metadata",
        "kept_rest",
        "kept_usage",
        "key",
        "labels",
        "listed",
        "name",
        "namespace",
        "node",
        "row",
        "since",
        "uid",
        "version",
    )

    def __init__(
        self, node: str, namespace: str, name: str, uid: str, labels: Mapping[str, str]
    ) -> None:
        self.node = node
        self.namespace = namespace
        self.name = name
        self.key = f"{namespace}/{name}" if namespace else name
        self.uid = uid
        self.labels = labels
        self.former: tuple[tuple[int, Mapping[str, str]], ...] = ()
        """Labels that it had since it was listed, each with the version that replaced them."""
        self.version = self.added = 0
        """The versions of its last report and of the report since which it is listed."""
        self.listed = False
        self.frame: Frame
        """The frame that has its rows."""
        self.end_tick = self.since = self.row = 0
        self.containers: Sequence[FrameContainer] | None = None
        """None for a node."""
        self.kept_metadata: bytes | None = None
        """JSON of its metadata, the same in both groups; None until it is needed, as the rest."""
        self.kept_rest: bytes | None = None
        """JSON after the metadata, in metrics/v1alpha1."""
        self.kept_usage: bytes | None = None
        """JSON after the metadata, in metrics.k8s.io."""
        self._marks = encoding.marks(labels)
        """JSON of its labels; objects with the same labels share it."""

    def report_node(self, frame: Frame) -> None:
        self.frame = frame
        self.end_tick = frame.end_tick
        self.since = frame.since

    def report_pod(self, frame: Frame, measured: FramePod) -> None:
        """Take over the rows of a pod, and its names, so that each name is in memory once."""
        self.frame = frame
        self.namespace, self.name, self.uid, self.since, end_tick, self.row, self.containers = (
            measured
        )
        self.end_tick = end_tick or frame.end_tick

    def detach(self) -> None:
        """Keep only its own rows, so that a pod that has ended does not hold the whole frame."""
        frame, inside = self.frame, self.containers or ()
        values = array("q")
        details = []
        for row in (self.row, *(each.row for each in inside)):
            values.extend(frame.amounts(row))
            details.append(frame.detail_row(row))
        self.frame = frame._replace(systems=(), pods=(), values=values, details=details)
        self.row = 0
        self.containers = tuple(each._replace(row=1 + n) for n, each in enumerate(inside))

    def stamp(self, version: int) -> None:
        self.version = version
        self.drop_json()

    def drop_json(self) -> None:
        """Drop the JSON."""
        self.kept_metadata = self.kept_rest = self.kept_usage = None

    def labels_at(self, version: int) -> Mapping[str, str]:
        """The labels as a watcher at this version knows them."""
        return next((labels for until, labels in self.former if until > version), self.labels)

    def relabel(self, labels: Mapping[str, str]) -> None:
        self.labels = labels
        self._marks = encoding.marks(labels)
        self.drop_json()

    def body(self) -> bytes:
        """The object in metrics/v1alpha1."""
        kind = "Node" if self.containers is None else "Pod"
        return encoding.beginning(kind) + self.metadata() + self.rest()

    def usage(self, window: str) -> bytes:
        """The object as an element of a list of metrics.k8s.io."""
        return encoding.USAGE_BEGINNING + self.metadata() + self.usage_rest(window)

    def metadata(self) -> bytes:
        """JSON of the metadata."""
        if self.kept_metadata is None:
            self.kept_metadata = encoding.metadata(
                self.name, self.namespace, self.uid, self.version, self.since, self._marks
            )
        return self.kept_metadata

    def rest(self) -> bytes:
        """JSON after the metadata, in metrics/v1alpha1."""
        if self.kept_rest is None:
            if self.containers is None:
                self.kept_rest = encoding.node(self.frame)
            else:
                total = (self.row, self.since)
                self.kept_rest = encoding.pod(self.frame, self.end_tick, self.containers, total)
        return self.kept_rest

    def core_rest(self) -> bytes:
        """JSON after the metadata, in metrics/v1alpha1 and without details. It is not kept: one
        client reads it, each report once."""
        if not self.frame.details:
            return self.rest()
        frame = self.frame._replace(details=())
        if self.containers is None:
            return encoding.node(frame)
        return encoding.pod(frame, self.end_tick, self.containers, (self.row, self.since))

    def usage_rest(self, window: str) -> bytes:
        """JSON after the metadata, in metrics.k8s.io."""
        if self.kept_usage is None:
            if self.containers is None:
                self.kept_usage = encoding.node_usage(self.frame, window)
            else:
                self.kept_usage = encoding.pod_usage(
                    self.frame, self.end_tick, self.containers, window
                )
        return self.kept_usage


class ClaimUsageObject(UsageObject):
    """A claim of metrics/v1alpha1; metrics.k8s.io has none. In a frame it is a pod without
    containers."""

    __slots__ = ()

    def body(self) -> bytes:
        kind = encoding.beginning("PersistentVolumeClaim")
        return kind + self.metadata() + self.rest()

    def rest(self) -> bytes:
        if self.kept_rest is None:
            self.kept_rest = encoding.claim(self.frame, self.end_tick, self.row, self.since)
        return self.kept_rest

    def core_rest(self) -> bytes:
        return self.rest()
