import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.apiserver import alike_bodies
from kedge.apiserver.alike_bodies import (
    FAMILIES,
    FORMS,
    MOST,
    MOST_PIECES,
    USES,
    AlikeBodies,
)

FILLER = {f"field{number}": "x" * 20 for number in range(50)}


def encoded(name: str, **more: Any) -> bytes:
    document = {"metadata": {"name": name}} | FILLER | more
    return json.dumps(document, separators=(",", ":")).encode()


def key(name: str) -> str:
    return f"/registry/pods/default/{name}"


def test_a_body_is_kept_without_what_the_first_of_its_family_has() -> None:
    alike = AlikeBodies()
    assert alike.shortened(key("web-a"), encoded("web-a", rate="100%")) is None
    short = alike.shortened(key("web-b"), encoded("web-b", rate="100%"))
    assert short is not None
    assert b"web-b" in short.own
    assert len(short.own) < 40
    assert short.whole() == encoded("web-b", rate="100%")


def test_bodies_that_differ_in_the_same_places_share_the_rest() -> None:
    alike = AlikeBodies()
    first, *others = [alike.shortened(key(f"web-{n}"), encoded(f"web-{n}")) for n in range(9)]
    assert first is None
    assert len({id(each.form) for each in others if each is not None}) == 1


def test_other_families_and_other_fields_are_not_compared() -> None:
    alike = AlikeBodies()
    alike.shortened(key("web-a"), encoded("web-a"))
    assert alike.shortened(key("job-a"), encoded("job-a")) is None
    assert alike.shortened(key("web-b"), encoded("web-b", more=1)) is None


@pytest.mark.parametrize("size", [0, MOST])
def test_small_and_large_bodies_stay_as_they_are(size: int) -> None:
    alike = AlikeBodies()
    bodies = [b'{"name":"%d","text":"%s"}' % (number, b"x" * size) for number in range(2)]
    assert [alike.shortened(key("web-a"), body) for body in bodies] == [None, None]


def test_bodies_that_have_little_in_common_stay_as_they_are() -> None:
    alike = AlikeBodies()
    bodies = [encoded("web-a", text=letter * 4096) for letter in "ab"]
    assert [alike.shortened(key("web-a"), body) for body in bodies] == [None, None]


def test_a_body_with_a_nul_stays_as_it_is() -> None:
    alike = AlikeBodies()
    bodies = [encoded("web-a", text="-").replace(b'"-"', b'"%s"' % text) for text in (b"a", b"\0")]
    assert [alike.shortened(key("web-a"), body) for body in bodies] == [None, None]


def test_a_nul_that_bodies_share_is_not_taken_for_a_place() -> None:
    alike = AlikeBodies()
    bodies = [encoded(f"web-{n}", text="-").replace(b'"-"', b'"\0"') for n in range(3)]
    assert [alike.shortened(key("web-a"), body) for body in bodies] == [None] * 3


def test_the_size_of_a_body_is_known_without_making_it() -> None:
    alike = AlikeBodies()
    alike.shortened(key("web-a"), encoded("web-a"))
    short = alike.shortened(key("web-b"), encoded("web-b"))
    assert short is not None
    assert short.size == len(short.whole())


def test_the_first_body_serves_some_others_and_some_sets_of_places_only() -> None:
    alike = AlikeBodies()
    used = [alike.shortened(key("web-a"), encoded(f"web-{n}")) for n in range(USES + 3)]
    assert [at for at, short in enumerate(used) if short is None] == [0, USES + 1]
    names = [f"field{number}" for number in range(FORMS + 1)]
    bodies = [encoded("b", **{name: "other"}) for name in names]
    kept = [alike.shortened(key("job-a"), body) for body in [encoded("a"), *bodies, bodies[0]]]
    assert [at for at, short in enumerate(kept) if short is None] == [0, FORMS + 1]


def test_few_families_are_remembered() -> None:
    alike = AlikeBodies()
    for number in range(FAMILIES + 1):
        alike.shortened(key(f"f{number}-a"), encoded("a"))
    assert alike.shortened(key("f1-b"), encoded("b")) is not None
    assert alike.shortened(key("f0-b"), encoded("b")) is None


def test_a_body_of_many_pieces_stays_as_it_is() -> None:
    alike = AlikeBodies()
    most = MOST_PIECES - len(FILLER) - 1
    few, many = (["x"] * number for number in (most, most + 1))
    for words, is_short in ((few, True), (many, False)):
        alike.shortened(key("web-a"), encoded("web-a", words=words))
        short = alike.shortened(key("web-b"), encoded("web-b", words=words))
        assert (short is not None) is is_short


def test_examples_take_no_more_memory_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 4 << 20
    monkeypatch.setattr(alike_bodies, "MOST_BYTES", most)
    alike = AlikeBodies()
    words = ["x" * 10] * (MOST_PIECES - 100)
    tracemalloc.start()
    try:
        for family in range(8):
            for number in range(FORMS + 1):
                own = [f"{family:05}{number:05}"] * (len(words) // 2)
                body = encoded("a", words=[*words[:number], *own, *words[len(own) + number :]])
                alike.shortened(key(f"f{family}-a"), body)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < most


@given(st.lists(st.dictionaries(st.sampled_from("abc%"), st.text(max_size=5)), max_size=5))
def test_every_body_is_made_again_as_it_was(documents: list[dict[str, str]]) -> None:
    alike = AlikeBodies()
    for document in documents:
        body = encoded("web", more=document)
        short = alike.shortened(key("web-a"), body)
        assert short is None or short.whole() == body
