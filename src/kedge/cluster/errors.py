"""The errors of a cluster in a test."""


class ClusterError(Exception):
    """The cluster could not do it; the message says why."""


class WaitTimeout(ClusterError, TimeoutError):
    """An object did not reach the awaited state; the message says what was seen instead."""
