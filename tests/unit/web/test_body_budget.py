"""A budget that several bodies share."""

from kedge.web.body_budget import BodyBudget


class BodySender:
    """A connection."""

    def __init__(self, budget: BodyBudget) -> None:
        self.budget = budget
        self.refused = False

    def refuse_body(self) -> None:
        self.refused = True
        self.budget.forget(self)


def test_the_body_that_has_been_coming_the_longest_is_given_up() -> None:
    budget = BodyBudget(100)
    old, young, complete = BodySender(budget), BodySender(budget), BodySender(budget)
    budget.grow(complete, 30)
    assert budget.finish(complete) == 30
    budget.grow(old, 40)
    budget.grow(young, 30)
    assert not old.refused
    budget.grow(young, 10)
    assert (old.refused, young.refused) == (True, False)
    assert budget.size == 70
    budget.forget(young)
    budget.release(30)
    assert budget.size == 0


def test_requests_that_are_being_answered_keep_their_bodies() -> None:
    budget = BodyBudget(100)
    busy, late = BodySender(budget), BodySender(budget)
    budget.grow(busy, 90)
    budget.finish(busy)
    budget.grow(late, 20)
    assert late.refused
    assert budget.size == 90
