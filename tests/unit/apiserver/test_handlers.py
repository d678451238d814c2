"""Every verb of every resource in the catalog has one handler."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any, cast

import pytest
from msgspec.structs import replace

from kedge.api.catalog import BUILT_IN
from kedge.api.resource import Resource
from kedge.apiserver.authentication.authenticator import Authenticator
from kedge.apiserver.authentication.token_requests import TokenRequests
from kedge.apiserver.components import ControlPlaneComponents
from kedge.apiserver.handlers import ROWS, Handlers, handlers
from kedge.apiserver.scheduling_decisions import SchedulingDecisions
from kedge.apiserver.subresources import binding, pod_streams
from kedge.apiserver.verbs import read, write
from kedge.machinery.errors import StatusError

ALL = handlers(
    cast(Authenticator, None),
    TokenRequests(cast(Any, None)),
    SchedulingDecisions(ControlPlaneComponents()),
)


def offered() -> Iterator[tuple[Resource[Any], str, str]]:
    for resource in BUILT_IN:
        for verb in resource.verbs:
            yield resource, "", verb
        for subresource in resource.subresources:
            for verb in subresource.verbs:
                yield resource, subresource.name, verb


def resource(group: str, plural: str) -> Resource[Any]:
    return next(one for one in BUILT_IN if (one.group, one.plural) == (group, plural))


def test_everything_that_discovery_offers_has_a_handler() -> None:
    for one, subresource, verb in offered():
        assert callable(ALL.find(one, subresource, verb)), (one.plural, subresource, verb)


def test_a_kind_that_is_gone_is_not_kept() -> None:
    custom = replace(resource("", "pods"), group="example.com", plural="things")
    gone = weakref.ref(custom)
    assert ALL.find(custom, "", "get") is read.get
    del custom
    gc.collect()
    assert gone() is None


def test_every_row_names_something_that_discovery_offers() -> None:
    rows = {
        (group, name, verb) for group, name, verbs in ROWS if group != "*" for verb in verbs if verb
    }
    names = {
        (one.group, f"{one.plural}/{sub}" if sub else one.plural, verb)
        for one, sub, verb in offered()
    }
    assert rows <= names


@pytest.mark.parametrize(
    ("group", "plural", "subresource", "verb", "handler"),
    [
        ("", "pods", "", "get", read.get),
        ("", "pods", "status", "get", read.get),
        ("", "pods", "exec", "get", pod_streams.execute),
        ("", "pods", "exec", "create", pod_streams.execute),
        ("", "pods", "binding", "create", binding.serve),
        ("", "bindings", "", "create", binding.serve_collection),
        ("apps", "deployments", "", "create", write.create),
    ],
)
def test_a_row_of_its_own_wins_over_that_of_any_resource(
    group: str, plural: str, subresource: str, verb: str, handler: object
) -> None:
    assert ALL.find(resource(group, plural), subresource, verb) is handler


def test_groups_are_told_apart() -> None:
    stored, measured = resource("", "nodes"), resource("metrics.k8s.io", "nodes")
    assert ALL.find(stored, "", "get") is not ALL.find(measured, "", "get")


def test_what_has_no_handler_is_404() -> None:
    with pytest.raises(StatusError) as error:
        Handlers(ROWS).find(resource("", "pods"), "nothing", "get")
    assert error.value.code == 404
