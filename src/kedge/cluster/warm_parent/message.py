"""Messages between a test process and the keeper of one of its clusters: lines of JSON."""

import socket
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

PIECE: Final = 1 << 16
LONGEST: Final = 16 << 20
"""Bytes of one message. The largest part of a request is the environment."""


class ClusterRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster that a test process wants."""

    arguments: Sequence[str]
    """Flags of `kedge up`."""
    state: str = ""
    """The directory of the cluster, which is kept; a temporary one if this is empty."""
    kubeconfig: str = ""
    """Where to write the kubeconfig; in the cluster's directory if this is empty."""
    objects: str = ""
    """A file with the objects that the cluster begins with; those of every cluster if empty."""
    directory: str
    """The working directory of the test process: relative paths are relative to it."""
    environment: Mapping[str, str]


class ClusterAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A ready cluster, or the reason why there is none."""

    error: str = ""
    url: str = ""
    ca_pem: bytes = b""
    token: str = ""
    state: str = ""
    kubeconfig: str = ""
    processes: Mapping[str, int] = {}
    """The pid of each program by its name: server, node-1."""


class KeepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The test process lets the cluster run when it ends; `kedge down` ends the cluster."""


class ClusterEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The last message of a keeper: the cluster is gone."""

    problems: str = ""
    """The things that could not be stopped or removed; empty if nothing is left."""


class MessageSocket:
    """Sends and receives messages on a stream socket."""

    def __init__(self, connected: socket.socket) -> None:
        self.connected = connected
        self._received = b""

    def send(self, message: msgspec.Struct) -> None:
        self.connected.sendall(msgspec.json.encode(message) + b"\n")

    def line(self) -> bytes:
        """Return the next message without its end; empty if the other side has closed."""
        while b"\n" not in self._received:
            if len(self._received) > LONGEST:
                raise ValueError("the message is too long")
            piece = self.connected.recv(PIECE)
            if not piece:
                return b""
            self._received += piece
        line, _, self._received = self._received.partition(b"\n")
        return line
