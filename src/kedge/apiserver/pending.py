"""Answers of other servers that a request waits for, such as the decision of a webhook.

The steps of a request do not wait. A step that needs such an answer raises AnswerPending; the App
then awaits the answer and begins the request again. Nothing was changed by then.
"""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Final

MOST_WAITING: Final = 1000
"""Requests that may wait for answers of other servers at once."""
MOST_ROUNDS: Final = 40
"""How many answers one decision may wait for, one after the other."""
MOST_ANSWERS: Final = 200
"""How many answers one request may wait for, one after the other: it begins again after each. An
expression may ask an authorizer twice, all expressions of a policy together 28 times."""

ANSWERS: Final[ContextVar[dict[object, object] | None]] = ContextVar("ANSWERS", default=None)
"""Answers that hold for the current request only, because they may not be cached."""


class AnswerPending(Exception):
    """An answer is not known yet; `ask` gets it, and makes it known."""

    def __init__(self, ask: Callable[[], Awaitable[None]]) -> None:
        super().__init__("an answer is pending")
        self.ask = ask


def remembered(key: object) -> object | None:
    """Return the answer that the current request got earlier."""
    answers = ANSWERS.get()
    return None if answers is None else answers.get(key)


def remember(key: object, answer: object) -> None:
    """Keep an answer for the rest of the current request."""
    answers = ANSWERS.get()
    if answers is not None:
        answers[key] = answer
