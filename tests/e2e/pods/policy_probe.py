"""Runs in a pod: serves on several ports, and tries to reach other pods when the test asks.

The test talks to it from the machine, whose packets pass all policies.
"""

import contextlib
import json
import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

NAME = os.environ["WHO"].encode()
CONTROL, PATIENCE = 7000, 0.6


def serve_tcp(port: int) -> None:
    listener = socket.create_server(("0.0.0.0", port), backlog=128)
    while True:
        channel, _ = listener.accept()
        with channel:
            channel.sendall(NAME)


def serve_udp(port: int) -> None:
    channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    channel.bind(("0.0.0.0", port))
    while True:
        _, sender = channel.recvfrom(100)
        channel.sendto(NAME, sender)


def reached(address: str, protocol: str, port: int) -> str:
    """Return the name of the server, or nothing."""
    try:
        if protocol == "tcp":
            with socket.create_connection((address, port), PATIENCE) as channel:
                return channel.recv(100).decode()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
            channel.settimeout(PATIENCE)
            channel.sendto(b"?", (address, port))
            return channel.recv(100).decode()
    except OSError:
        return ""


def resolved(name: str) -> bool:
    """Return whether the DNS server of the pod answers."""
    query = b"\x12\x34\x01\x00\x00\x01" + bytes(6)
    query += b"".join(bytes([len(each)]) + each.encode() for each in name.split("."))
    with open("/etc/resolv.conf") as config:
        server = next(line.split()[1] for line in config if line.startswith("nameserver"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.settimeout(PATIENCE)
        try:
            channel.sendto(query + b"\0\0\1\0\1", (server, 53))
            return channel.recv(512)[3] & 15 == 0
        except OSError:
            return False


def knock(address: str, port: int, seconds: float) -> bool:
    """Send a datagram every few milliseconds until one is answered; return whether one was."""
    end = time.monotonic() + seconds
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.settimeout(0.005)
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                channel.sendto(b"?", (address, port))
                return bool(channel.recv(100))
    return False


def scan(prefix: str, first: int, last: int, seconds: float) -> list[str]:
    """Return the names of all servers that ever answer at these addresses."""
    end = time.monotonic() + seconds
    found: set[str] = set()

    def watch(address: str) -> None:
        while time.monotonic() < end:
            found.add(reached(address, "tcp", 80))

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(watch, [f"{prefix}.{each}" for each in range(first, last)]))
    return sorted(found - {""})


def answer(asked: dict[str, Any]) -> Any:
    match asked["do"]:
        case "reach":
            with ThreadPoolExecutor(64) as pool:
                return list(pool.map(lambda each: reached(*each), asked["targets"]))
        case "knock":
            return knock(asked["address"], asked["port"], asked["seconds"])
        case "resolve":
            return resolved(asked["name"])
        case "scan":
            return scan(asked["prefix"], asked["first"], asked["last"], asked["seconds"])
    return None


def control(channel: socket.socket) -> None:
    with channel, channel.makefile("rw") as lines:
        print(json.dumps(answer(json.loads(lines.readline()))), file=lines, flush=True)


for serve, port in ((serve_tcp, 80), (serve_tcp, 81), (serve_udp, 80), (serve_udp, 81)):
    threading.Thread(target=serve, args=(port,), daemon=True).start()
controller = socket.create_server(("0.0.0.0", CONTROL))
print("ready", file=sys.stderr)
while True:
    threading.Thread(target=control, args=(controller.accept()[0],), daemon=True).start()
