"""A simulated FPGA board with ports and a management interface that programs them.

A real board has device nodes for both. Here the ports are readable directories, and the management
interface is a directory that only the plugin can access.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REGIONS = {
    "ce48969398f05f33946d560708be108a": ["port-0", "port-1"],
    "9926ab6d6c925a68aabca7d84c545738": ["port-2"],
}
"""Ports by the interface ID of their region."""

BITSTREAMS = {
    "18b79ffa2ee54aa096ef4230dafacb5f": "ce48969398f05f33946d560708be108a",
    "56e203e9864f49a7b94b12284c31e02b": "ce48969398f05f33946d560708be108a",
    "d8424dc4a4a3c413f89e433683f9040b": "9926ab6d6c925a68aabca7d84c545738",
}
"""The region of each bitstream."""

DRIVER = {"clock": "200", "debug": "0", "dma": "on"}
"""Default parameters of the driver."""


class CannotProgram(Exception):
    """The board rejected the change and is unmodified."""


class Board:
    """A board in a directory, which is created if it does not exist."""

    def __init__(self, directory: str | Path) -> None:
        self._ports = Path(directory).absolute() / "ports"
        self._management = Path(directory).absolute() / "management"
        self._management.mkdir(mode=0o700, parents=True, exist_ok=True)
        for region, ports in REGIONS.items():
            for port in ports:
                if not self.port(port).exists():
                    self.port(port).mkdir(parents=True)
                    self._write(port, interface_id=region, bitstream="", driver="")

    def port(self, port: str) -> Path:
        """Return the visible state of a port: interface_id, bitstream, driver."""
        return self._ports / port

    def program(self, port: str, bitstream: str, settings: Mapping[str, str]) -> None:
        """Load a bitstream into the region of a port, and set its driver. Raises CannotProgram."""
        region = (self.port(port) / "interface_id").read_text().strip()
        if bitstream not in BITSTREAMS:
            raise CannotProgram(f"there is no bitstream {bitstream}")
        if BITSTREAMS[bitstream] != region:
            raise CannotProgram(f"bitstream {bitstream} is not made for region {region}")
        if strange := sorted(settings.keys() - DRIVER.keys()):
            raise CannotProgram(f"the driver has no setting {', '.join(strange)}")
        driver = ",".join(f"{name}={value}" for name, value in {**DRIVER, **settings}.items())
        self._write(port, interface_id=region, bitstream=bitstream, driver=driver)
        self._log(port=port, programmed=bitstream, driver=driver)

    def wipe(self, port: str) -> None:
        """Erase a port."""
        region = (self.port(port) / "interface_id").read_text().strip()
        self._write(port, interface_id=region, bitstream="", driver="")
        self._log(port=port, wiped=True)

    def history(self) -> list[dict[str, Any]]:
        """Return all operations of the management interface."""
        log = self._management / "log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def _write(self, port: str, **files: str) -> None:
        for name, content in files.items():
            path = self.port(port) / name
            beside = path.with_name(f".{name}")
            beside.write_text(f"{content}\n")
            os.replace(beside, path)

    def _log(self, **entry: Any) -> None:
        with open(self._management / "log", "a") as log:
            log.write(f"{json.dumps(entry)}\n")
