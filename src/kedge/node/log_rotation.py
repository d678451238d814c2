"""Log rotation: logs of containers are cut into files of bounded size, of which the newest stay."""

import logging
import os
from collections.abc import Callable, Iterable
from typing import Final

from kedge.machinery.clock import Clock, every
from kedge.node.runtime.runtime import Container, NotFoundError, Runtime, RuntimeFailure

log = logging.getLogger(__name__)

MOST_BYTES: Final = 10 << 20
"""A log is set aside once it is longer than that."""
MOST_FILES: Final = 5
"""Files of one container, the one it writes to included."""
PERIOD: Final = 10.0
"""Seconds between two looks at all logs, as upstream takes them."""


def set_aside(path: str) -> list[str]:
    """The older parts of a log, the eldest first."""
    directory, name = os.path.split(path)
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return [os.path.join(directory, each) for each in sorted(names) if each.startswith(f"{name}.")]


class LogRotation:
    """Keeps the logs of running containers short. Somebody must `run` it."""

    def __init__(
        self, runtime: Runtime, running: Callable[[], Iterable[Container]], clock: Clock
    ) -> None:
        self._runtime = runtime
        self._running = running
        self._clock = clock

    async def run(self) -> None:
        await every(PERIOD, self.look, self._clock)

    async def look(self) -> None:
        """Set aside every log that has grown too long."""
        for container in list(self._running()):
            try:
                if os.stat(container.log_path).st_size > MOST_BYTES:
                    await self._rotate(container)
            except FileNotFoundError:
                continue
            except (OSError, RuntimeFailure, NotFoundError) as error:
                log.warning("log not rotated path=%s error=%s", container.log_path, error)

    async def _rotate(self, container: Container) -> None:
        path = container.log_path
        # Once this one is set aside, there is room for one less.
        for old in set_aside(path)[: -(MOST_FILES - 2)]:
            os.unlink(old)
        aside = f"{path}.{self._clock.now():%Y%m%d-%H%M%S}"
        os.rename(path, aside)
        try:
            await self._runtime.reopen_log(container.id)
        except (RuntimeFailure, NotFoundError):
            # It goes on writing to the file that it has open: let that have its name again.
            os.rename(aside, path)
            raise
