"""Which images go when the disk runs full."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.node.images.garbage import (
    DiskSpace,
    GarbagePlan,
    GarbageThresholds,
    ImageCandidate,
    bytes_to_free,
    plan,
)

SIZES = {"base": 100, "a": 10, "b": 20, "c": 30}
IMAGES = [
    ImageCandidate("new", 900.0, ("base", "a")),
    ImageCandidate("old", 100.0, ("base", "b")),
    ImageCandidate("middle", 500.0, ("c",)),
]


def decided(images: list[ImageCandidate], used: int, keep: set[str] | None = None) -> GarbagePlan:
    return plan(
        images,
        SIZES,
        keep=keep or set(),
        now=1000.0,
        thresholds=GarbageThresholds(),
        disk=DiskSpace(1000, 1000 - used),
    )


def test_nothing_goes_below_the_high_threshold() -> None:
    assert decided(IMAGES, used=840).images == ()


def test_the_longest_unused_go_until_the_low_threshold_is_reached() -> None:
    assert decided(IMAGES, used=850) == GarbagePlan(("old", "middle"), freed=50, wanted=50)
    assert bytes_to_free(DiskSpace(1000, 120), GarbageThresholds()) == 80


def test_what_is_kept_pinned_or_just_used_stays() -> None:
    images = [
        ImageCandidate("kept", 1.0, ("a",)),
        ImageCandidate("pinned", 2.0, ("b",), is_pinned=True),
        ImageCandidate("fresh", 990.0, ("c",)),
    ]
    assert decided(images, used=990, keep={"kept"}) == GarbagePlan((), 0, 190)


def test_a_shared_layer_is_freed_with_the_last_image_that_has_it() -> None:
    assert decided(IMAGES[:2], used=990).freed == 20
    older = [ImageCandidate("new", 800.0, ("base", "a")), IMAGES[1]]
    assert decided(older, used=990) == GarbagePlan(("old", "new"), freed=130, wanted=190)


def test_nameless_images_go_even_if_there_is_room() -> None:
    images = [*IMAGES, ImageCandidate("none", 800.0, ("a",), is_named=False)]
    assert decided(images, used=10) == GarbagePlan(("none",), freed=0, wanted=0)


@pytest.mark.parametrize(("high", "low"), [(80, 80), (101, 50), (50, -1)])
def test_thresholds_that_contradict_each_other_are_refused(high: int, low: int) -> None:
    with pytest.raises(ValueError, match="percentages"):
        GarbageThresholds(high_percent=high, low_percent=low)


@given(
    st.lists(st.tuples(st.floats(0, 1000), st.sets(st.sampled_from(sorted(SIZES)))), max_size=6),
    st.integers(0, 1000),
)
def test_no_more_goes_than_is_needed(made: list[tuple[float, set[str]]], used: int) -> None:
    images = [
        ImageCandidate(f"i{number}", moment, tuple(sorted(layers)))
        for number, (moment, layers) in enumerate(made)
    ]
    all_of_it = decided(images, used)
    assert all_of_it.images or all_of_it.freed == 0
    shorter = [each for each in images if each.id not in all_of_it.images[:-1]]
    if all_of_it.images:
        gone = {i.id: i for i in images}
        kept_layers = {x for i in images if i.id not in all_of_it.images for x in i.layers}
        freed = {x for i in all_of_it.images for x in gone[i].layers} - kept_layers
        assert all_of_it.freed == sum(SIZES[x] for x in freed)
        # Without the last one it would not have been enough.
        still = {x for i in shorter for x in i.layers}
        before = {x for i in images for x in i.layers} - still
        assert sum(SIZES[x] for x in before) < all_of_it.wanted
