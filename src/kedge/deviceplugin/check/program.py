"""CheckedProgram: the plugin or driver as a process, which a check starts, stops and kills."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence


class CheckedProgram:
    """The process of one program. A program that is started by hand has none."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Start the program, if there is a command; `env` is added to the environment."""
        if command:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )

    async def stop(self, number: int = signal.SIGTERM, seconds: float = 5.0) -> bool:
        """Stop what was started; whether it ended in time."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return process is not None
        os.killpg(process.pid, number)
        try:
            await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            return False
        return True

    @property
    def alive(self) -> bool:
        """Whether it runs, as far as we can know."""
        return self._process is None or self._process.returncode is None
