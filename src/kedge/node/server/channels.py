"""Channels: several streams in one WebSocket; the first byte of a message is the stream's
number."""

import base64
import binascii
from typing import NamedTuple

from kedge.web.websocket import FramePiece


class ChannelData(NamedTuple):
    """A piece of one channel; the number is negative if it belongs to none."""

    channel: int
    data: bytes


_NOTHING = ChannelData(-1, b"")


class ChannelReader:
    """Reads messages piece by piece; in texts, what follows the channel is in base64."""

    def __init__(self, *, binary: bool) -> None:
        self._binary = binary
        self._channel: int | None = None
        """Channel of the incoming message, once its first byte is known."""
        self._rest = b""
        """Base64 text that is not complete yet."""

    def read(self, piece: FramePiece) -> ChannelData:
        """Decode a piece; base64 text is dropped from its first error on."""
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
