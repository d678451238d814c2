"""Details of the whole machine: pressure, page faults, disks and the file system of pods."""

import contextlib
import os
from typing import Final

from kedge.node.stats.details import INODES, NUMBER, OOM_KILLS, STORAGE, DetailReading
from kedge.node.stats.group_details import number_after, pressures, read_once

_DISK: Final = tuple(NUMBER[f"disk-{each}"] for each in ("read", "write", "reads", "writes"))
_FAULTS: Final = NUMBER["page-faults"]
_MAJOR: Final = NUMBER["major-page-faults"]
_SECTOR: Final = 512
"""Bytes of a sector in /proc/diskstats, whatever those of the disk are."""


class MachineDetails:
    """Everything on this machine. Fulfils DetailSource."""

    def __init__(self, state: str, proc: str = "/proc", blocks: str = "/sys/block") -> None:
        """`state` is a directory on the file system that pods write to."""
        self._state = state
        self._proc = proc
        self._blocks = blocks
        self._devices: frozenset[bytes] = frozenset()
        """The devices that are known to be disks, or to be none."""
        self._disks: frozenset[bytes] = frozenset()
        self._pressures = [(f"{proc}/pressure/{name}", parse) for name, parse in pressures()]

    def fill(self, found: DetailReading) -> None:
        for path, parse in self._pressures:
            with contextlib.suppress(OSError, ValueError):
                parse(read_once(path), found)
        with contextlib.suppress(OSError, ValueError):
            self._fill_faults(found)
        with contextlib.suppress(OSError, ValueError, IndexError):
            self._fill_disks(found)
        with contextlib.suppress(OSError):
            status = os.statvfs(self._state)
            found[STORAGE] = float((status.f_blocks - status.f_bfree) * status.f_frsize)
            found[INODES] = float(status.f_files - status.f_ffree)

    def close(self) -> None:
        pass

    def _fill_faults(self, found: DetailReading) -> None:
        text = read_once(f"{self._proc}/vmstat")
        found[_FAULTS] = float(number_after(text, b"\npgfault "))
        found[_MAJOR] = float(number_after(text, b"\npgmajfault "))
        found[OOM_KILLS] = float(number_after(text, b"\noom_kill "))

    def _fill_disks(self, found: DetailReading) -> None:
        """Disks only: partitions, and devices that are made of others, would count again."""
        lines = [line.split() for line in read_once(f"{self._proc}/diskstats").splitlines()]
        devices = frozenset(line[2] for line in lines)
        if devices != self._devices:
            # Finding out takes as long as reading everything else.
            self._disks = frozenset(
                name.encode() for name in os.listdir(self._blocks) if self._is_disk(name)
            )
            self._devices = devices
        totals = [0] * len(_DISK)
        for _, _, name, reads, _, read, _, writes, _, written, *_ in lines:
            if name in self._disks:
                amounts = int(read) * _SECTOR, int(written) * _SECTOR, int(reads), int(writes)
                totals = [sum(each) for each in zip(totals, amounts, strict=True)]
        for at, total in zip(_DISK, totals, strict=True):
            found[at] = float(total)

    def _is_disk(self, name: str) -> bool:
        return os.path.exists(f"{self._blocks}/{name}/device")
