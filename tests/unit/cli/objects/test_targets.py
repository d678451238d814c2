"""What the words of a command line mean."""

from typing import Any

import pytest

from kedge.api.model import Document
from kedge.api.presentation import Presentation
from kedge.api.resource import Resource
from kedge.cli.failure import Failure
from kedge.cli.objects.targets import kind_of, parse


def resource(
    plural: str, kind: str, group: str = "", version: str = "v1", **names: list[str]
) -> Resource[Document]:
    shown = Presentation[Document](**names)  # type: ignore[arg-type]
    return Resource(
        type=Document, plural=plural, kind=kind, group=group, version=version, presentation=shown
    )


PODS = resource("pods", "Pod", short_names=["po"], categories=["all"])
EVENTS = resource("events", "Event", short_names=["ev"])
NEW_EVENTS = resource("events", "Event", "events.k8s.io", short_names=["ev"])
LIMITS = resource("limitranges", "LimitRange", short_names=["limits"])
SCALERS = resource("scalers", "Scaler", "autoscaling", version="v2", categories=["all"])
OLD_SCALERS = resource("scalers", "Scaler", "autoscaling", version="v1", categories=["all"])
SERVED = [PODS, EVENTS, LIMITS, NEW_EVENTS, SCALERS, OLD_SCALERS]


@pytest.mark.parametrize("word", ["pods", "pod", "po", "Pod", "PODS"])
def test_a_type_goes_by_its_plural_singular_short_name_and_kind(word: str) -> None:
    assert [target.resource for target in parse([word], SERVED)] == [PODS]


def test_a_group_and_a_version_tell_namesakes_apart() -> None:
    def found(word: str) -> Resource[Any]:
        return parse([word], SERVED)[0].resource

    assert found("events") is EVENTS
    assert found("events.events.k8s.io") is NEW_EVENTS
    assert found("scalers") is SCALERS
    assert found("scalers.v1.autoscaling") is OLD_SCALERS


def test_types_go_by_commas_and_categories() -> None:
    assert [target.resource for target in parse(["limits,po,pods"], SERVED)] == [LIMITS, PODS]
    assert [target.resource for target in parse(["all"], SERVED)] == [PODS, SCALERS]


def test_names_follow_the_type_or_a_slash() -> None:
    assert parse(["po", "a", "b"], SERVED) == [(PODS, "a"), (PODS, "b")]
    assert parse(["po/a", "limits/b"], SERVED) == [(PODS, "a"), (LIMITS, "b")]
    assert parse(["po,limits", "a"], SERVED) == [(PODS, "a"), (LIMITS, "a")]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["foos"], """the server doesn't have a resource type "foos"$"""),
        (["pods.apps"], """the server doesn't have a resource type "pods" in group "apps"$"""),
        (["po/a", "b"], 'no need to name a type beside TYPE/NAME: leave out "b"'),
        (["po/"], "neither a type nor TYPE/NAME"),
        (["po/a/b"], "neither a type nor TYPE/NAME"),
        ([","], "no type of resource was named"),
    ],
)
def test_what_means_nothing_is_said(words: list[str], complaint: str) -> None:
    with pytest.raises(Failure, match=complaint):
        parse(words, SERVED)


def test_a_kind_is_written_with_its_group() -> None:
    assert (kind_of(PODS), kind_of(SCALERS)) == ("pod", "scaler.autoscaling")
