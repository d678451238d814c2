"""LogText: the newest output of a container, followed."""

from collections import deque
from collections.abc import Callable
from typing import Final

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.cli.usage.top.live.text_cells import clean
from kedge.client.client import Client, path_of
from kedge.client.transport import Unreachable
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

MOST_LINES: Final = 2000
MOST_BYTES: Final = 4096
"""Of a line: the rest is cut off."""
_TAIL: Final = 500
"""Lines to begin with."""
_RETRY_SECONDS: Final = 1.0
_PORTION: Final = 1 << 18
_PORTION_SECONDS: Final = 0.2
"""After so many bytes there is a pause: a container that only writes must not keep the view busy
with reading."""


class CutLines:
    """Bytes as lines of limited length: output without a line break must not fill the memory."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that have ended."""
        *whole, rest = (self._rest + piece).split(b"\n")
        self._rest = rest[:MOST_BYTES]
        return [each[:MOST_BYTES] for each in whole]

    def end(self) -> list[bytes]:
        """Return a last line without an end."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


class LogText:
    """The output of one container."""

    def __init__(
        self, client: Client, clock: Clock, changed: Callable[[], None], *, ascii_only: bool = False
    ) -> None:
        self._client = client
        self._clock = clock
        self._changed = changed
        self._ascii_only = ascii_only
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._message = ""

    @property
    def lines(self) -> list[str]:
        """The lines so far, clean, and a message if there are none or will be no more."""
        message = self._message or ("" if self._lines else "(no output yet)")
        return [*self._lines, message] if message else [*self._lines]

    async def follow(self, namespace: str, pod: str, container: str) -> None:
        """Read until the container ends; a server that goes away is asked again."""
        path = path_of(PODS, namespace, pod, "log")
        query = {"follow": "true", "tailLines": str(_TAIL)}
        if container:
            query["container"] = container
        while True:
            try:
                await self._read(path, query)
                self._say("(the output has ended)")
                return
            except Unreachable as error:
                self._say(f"(connection lost, retrying: {error})")
            except StatusError as error:
                self._say(f"({error.message})")
                if error.code < 500 and error.code != 429:
                    return
            await self._clock.sleep(_RETRY_SECONDS)

    async def _read(self, path: str, query: dict[str, str]) -> None:
        async with self._client.stream(path, query) as pieces:
            self._lines.clear()
            self._say("")
            cutter, portion = CutLines(), 0
            async for piece in pieces:
                self._add(cutter.feed(piece))
                self._changed()
                portion += len(piece)
                if portion > _PORTION:
                    portion = 0
                    await self._clock.sleep(_PORTION_SECONDS)
            self._add(cutter.end())

    def _add(self, lines: list[bytes]) -> None:
        # The older lines of a long burst are dropped anyway: do not clean them.
        for each in lines[-MOST_LINES:]:
            text = each.decode(errors="replace")
            self._lines.append(clean(text, ascii_only=self._ascii_only))

    def _say(self, text: str) -> None:
        self._message = clean(text)
        self._changed()
