"""Channels: several streams in the messages of one WebSocket, told apart by their first byte."""

import base64
import binascii
from typing import NamedTuple

from kedge.web.websocket import Received


class ChannelData(NamedTuple):
    """More of one channel; the number is negative if it is of none."""

    channel: int
    data: bytes


_NOTHING = ChannelData(-1, b"")


class ChannelReader:
    """Reads messages piece by piece; in texts, what follows the channel is in base64."""

    def __init__(self, *, binary: bool) -> None:
        self._binary = binary
        self._channel: int | None = None
        """Of the message that is coming in, as soon as its first byte has come."""
        self._rest = b""
        """What cannot be decoded before more has come."""

    def read(self, piece: Received) -> ChannelData:
        """What a piece says; of a message that is not base64, all from the first mistake on is
        left out."""
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
