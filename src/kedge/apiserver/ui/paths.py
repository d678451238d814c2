"""The paths of the dashboard, and the header of its requests."""

from typing import Final

ROOT: Final = "/ui"
CODES: Final = "/ui/codes"
SESSION: Final = "/ui/session"
SECRET_HEADER: Final = "x-kedge-dashboard"
"""Carries the page secret. A page of another origin cannot set it: the browser would ask first
whether it may (CORS), and this server never says yes."""


def is_page(path: str) -> bool:
    """Whether a path belongs to the dashboard."""
    return path.startswith(ROOT) and (len(path) == len(ROOT) or path[len(ROOT)] == "/")


def is_open(path: str) -> bool:
    """Whether a path of the dashboard needs no credentials: the files are the same in every
    cluster, and a session has secrets of its own."""
    return is_page(path) and path != CODES
