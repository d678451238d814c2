"""The authorizer of expressions, asked from a thread."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from kedge.apiserver.authorization import expressions
from kedge.apiserver.authorization.attributes import Attributes, Decision
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.request import User
from kedge.machinery.cel import CelCondition, CelError, uses

JANE = User("jane")
ASKS = CelCondition("authorizer.path('/healthz').check('get').allowed()", uses.match_conditions())


class FixedAuthorizer:
    """Allows everything, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def decide(self, asked: Attributes) -> Decision:
        if self.error is not None:
            raise self.error
        return Decision(True)


def variables(authorizer: FixedAuthorizer) -> dict[str, Any]:
    return expressions.authorizer_variables(
        cast(Authorizer, authorizer), JANE, Attributes(JANE, "create")
    )


async def test_a_thread_gets_the_decision_of_the_event_loop() -> None:
    assert await asyncio.to_thread(ASKS.holds, variables(FixedAuthorizer()))


async def test_a_thread_gets_the_error_of_the_authorizer_at_once() -> None:
    broken = variables(FixedAuthorizer(RuntimeError("broken")))
    with pytest.raises(RuntimeError, match="broken"):
        await asyncio.wait_for(asyncio.to_thread(ASKS.holds, broken), 5)


def test_an_event_loop_that_does_not_answer_is_an_error_of_the_expression(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expressions, "_SECONDS", 0.01)

    async def begun() -> dict[str, Any]:
        return variables(FixedAuthorizer())

    stopped = asyncio.new_event_loop()
    try:
        values = stopped.run_until_complete(begun())
        with ThreadPoolExecutor(1) as pool, pytest.raises(CelError, match="did not answer"):
            pool.submit(ASKS.holds, values).result()
    finally:
        stopped.close()
