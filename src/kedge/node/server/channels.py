"""Channels of a WebSocket: the first byte of a message is the number of its channel."""

import base64
import binascii
from typing import NamedTuple

from kedge.web.websocket import FramePiece


class ChannelData(NamedTuple):
    """A part of one channel's data; the number is negative if it belongs to no channel."""

    channel: int
    data: bytes


_NOTHING = ChannelData(-1, b"")


class ChannelReader:
    """Reads messages part by part; in text messages the data after the channel is base64."""

    def __init__(self, *, binary: bool) -> None:
        self._binary = binary
        self._channel: int | None = None
        """Channel of the incoming message, once its first byte is known."""
        self._rest = b""
        """Base64 text without a complete group."""

    def read(self, piece: FramePiece) -> ChannelData:
        """Decode a part; base64 text is dropped after its first error."""
        if piece.begins:
            self._channel, self._rest = None, b""
        data = piece.payload
        if self._channel is None:
            if not data:
                return _NOTHING
            self._channel = data[0] if self._binary else data[0] - ord("0")
            data = data[1:]
        if not self._binary:
            data = self._decoded(data, ends=piece.ends)
        return ChannelData(self._channel, data)

    def _decoded(self, data: bytes, *, ends: bool) -> bytes:
        data = self._rest + data
        whole = len(data) if ends else len(data) - len(data) % 4
        self._rest = data[whole:]
        try:
            return base64.b64decode(data[:whole], validate=True)
        except binascii.Error:
            self._channel = -1
            return b""
