"""The lowest oom_score_adj that this machine lets root give to a container.

Runtimes fail to create a container with a lower one, except containerd with
`restrict_oom_score_adj`.
"""

from pathlib import Path
from typing import Final

_PROCESS: Final = Path("/proc/self")
_CAP_SYS_RESOURCE: Final = 1 << 24
_LOWEST: Final = -1000


def lowest(process: Path = _PROCESS) -> int:
    """Return the lowest score: that of this process, unless it may lower it."""
    for line in (process / "status").read_text().splitlines():
        if line.startswith("CapEff:") and int(line.split()[1], 16) & _CAP_SYS_RESOURCE:
            return _LOWEST
    return int((process / "oom_score_adj").read_text())
