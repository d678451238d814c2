"""Options and pages of lists whose objects are not stored."""

import pytest

from kedge.api.model import ListMeta
from kedge.api.scheduling_kedge_v1alpha1.scheduling_decision import RESOURCE
from kedge.apiserver.request import Request, User
from kedge.apiserver.verbs.unstored import PageOptions, page, page_options
from kedge.machinery.errors import StatusError
from kedge.web.message import HttpRequest

META = ListMeta(resourceVersion="7")


def options(query: str, version: int = 7) -> PageOptions:
    http = HttpRequest("GET", "/", query, {})
    return page_options(Request(http, User("joe"), RESOURCE, "list"), version)


def text(entry: str) -> str:
    return entry


def test_pages_join_to_the_whole() -> None:
    first, meta = page("abcde", text, options("limit=2"), META, counts_rest=True)
    assert ("".join(first), meta.resourceVersion, meta.remainingItemCount) == ("ab", "7", 3)
    asked = options(f"limit=3&continue={meta.continue_}")
    rest, last = page("abcde", text, asked, META, counts_rest=True)
    assert ("".join(rest), last) == ("cde", META)


def test_a_page_goes_on_after_an_entry_that_has_gone() -> None:
    rest, _ = page("acd", text, PageOptions(0, "b"), META, counts_rest=True)
    assert "".join(rest) == "cd"


def test_the_rest_of_a_selection_is_not_counted() -> None:
    _, meta = page("abc", text, PageOptions(1, ""), META, counts_rest=False)
    assert meta.continue_
    assert meta.remainingItemCount is None


@pytest.mark.parametrize(
    "query",
    [
        "",
        "resourceVersion=0",
        "resourceVersion=3&resourceVersionMatch=NotOlderThan",
        "resourceVersion=7&resourceVersionMatch=Exact",
    ],
)
def test_the_present_state_can_be_asked_for(query: str) -> None:
    assert options(query) == PageOptions(0, "")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("resourceVersion=6&resourceVersionMatch=Exact", 410),
        ("resourceVersion=x", 400),
        ("resourceVersionMatch=Exact", 422),
        ("sendInitialEvents=true", 422),
        ("continue=%21", 400),
        ("limit=x", 400),
    ],
)
def test_other_states_and_malformed_options_are_refused(query: str, code: int) -> None:
    with pytest.raises(StatusError) as error:
        options(query)
    assert error.value.code == code
