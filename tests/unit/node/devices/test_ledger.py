"""Who holds which devices."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.deviceplugin.messages import DevicePluginOptions
from kedge.node.devices.ledger import (
    AllocationError,
    DeviceAmounts,
    DeviceChoice,
    DeviceLedger,
    DeviceOwner,
    PluginDevice,
)

R = "example.com/d"


def ledger(*ids: str, options: DevicePluginOptions | None = None) -> DeviceLedger:
    made = DeviceLedger()
    made.register(R, options or DevicePluginOptions())
    made.set_devices(R, dict.fromkeys(ids, PluginDevice(True)))
    return made


def hold(book: DeviceLedger, pod: str, *ids: str, container: str = "c") -> None:
    book.hold(DeviceOwner(pod, container), R, ids, b"")


def test_amounts_follow_the_devices() -> None:
    book = ledger("a", "b")
    assert book.amounts() == {R: DeviceAmounts(2, 2)}
    book.set_devices(R, {"a": PluginDevice(True), "b": PluginDevice(False)})
    assert book.amounts() == {R: DeviceAmounts(2, 1)}
    book.set_devices(R, {"a": PluginDevice(True)})
    assert book.amounts() == {R: DeviceAmounts(1, 1)}
    book.mark_lost(R)
    assert book.amounts() == {R: DeviceAmounts(1, 0)}
    book.remove_devices(R)
    assert book.amounts() == {R: DeviceAmounts(0, 0)}


def test_allocated_devices_are_still_counted() -> None:
    book = ledger("a", "b")
    hold(book, "p", "a")
    assert book.amounts() == {R: DeviceAmounts(2, 2)}


def test_pods_whose_devices_change_are_named() -> None:
    book = ledger("a", "b")
    hold(book, "p", "a")
    hold(book, "q", "b")
    assert book.set_devices(R, {"a": PluginDevice(True), "b": PluginDevice(False)}) == {"q"}
    assert book.mark_lost(R) == {"p"}
    assert list(book.health("p")) == [("c", R, "a", False)]


def test_only_free_healthy_devices_can_be_chosen() -> None:
    book = ledger("d-10", "d-2", "d-3", "d-4", "d-5")
    hold(book, "p", "d-3")
    book.reserve(R, ["d-4"])
    book.set_devices(R, {f"d-{i}": PluginDevice(i != 5) for i in (2, 3, 4, 5, 10)})
    assert book.choice(R, 2, set()).free == ("d-2", "d-10")
    with pytest.raises(AllocationError) as caught:
        book.choice(R, 3, set())
    assert str(caught.value) == (
        f"requested number of devices unavailable for {R}. Requested: 3, Available: 2"
    )
    book.cancel_reservation(R, ["d-4"])
    assert book.choice(R, 3, set()).free == ("d-2", "d-4", "d-10")


def test_devices_of_an_earlier_container_are_used_first() -> None:
    book = ledger("a", "b", "c")
    hold(book, "p", "b", container="init")
    choice = book.choice(R, 2, {"b"})
    assert choice.decided() == ("b", "a")
    assert choice.decided(["c"]) == ("b", "c")


@given(
    st.lists(st.sampled_from("abcdef"), unique=True),
    st.lists(st.sampled_from("ghij"), unique=True),
    st.lists(st.sampled_from("abcdefghijxyz")),
    st.data(),
)
def test_advice_never_leads_beyond_what_is_available(
    free: Sequence[str], again: Sequence[str], advice: Sequence[str], data: st.DataObject
) -> None:
    number = data.draw(st.integers(len(again), len(again) + len(free)))
    got = DeviceChoice(tuple(again), tuple(free), number).decided(advice)
    assert len(got) == len(set(got)) == number
    assert set(again) <= set(got) <= {*again, *free}
    followed = [each for each in dict.fromkeys(advice) if each in free]
    assert set(followed[: number - len(again)]) <= set(got)


def test_a_request_may_not_change() -> None:
    book = ledger("a", "b")
    hold(book, "p", "a")
    assert book.missing(DeviceOwner("p", "c"), R, 1) == 0
    assert book.missing(DeviceOwner("p", "other"), R, 1) == 1
    with pytest.raises(AllocationError) as caught:
        book.missing(DeviceOwner("p", "c"), R, 2)
    assert str(caught.value) == (
        f'pod "p" container "c" changed request for resource "{R}" from 1 to 2'
    )


def test_devices_that_are_no_good_any_more_are_refused() -> None:
    book = ledger("a", "b")
    hold(book, "p", "a")
    book.set_devices(R, {"a": PluginDevice(False), "b": PluginDevice(True)})
    with pytest.raises(AllocationError) as caught:
        book.missing(DeviceOwner("p", "c"), R, 1)
    assert str(caught.value) == (
        f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {R}"
    )
    book.mark_lost(R)
    with pytest.raises(AllocationError) as caught:
        book.missing(DeviceOwner("q", "c"), R, 1)
    assert str(caught.value) == (
        f"no healthy devices present; cannot allocate unhealthy devices {R}"
    )


def test_what_is_released_is_free_again() -> None:
    book = ledger("a")
    hold(book, "p", "a")
    assert book.pods() == {"p"}
    book.release("p")
    assert book.choice(R, 1, set()).free == ("a",)
    assert (book.pods(), book.releases) == (set(), [])


def test_a_device_is_not_free_before_its_plugin_has_said_farewell() -> None:
    book = ledger("a", options=DevicePluginOptions(release_required=True))
    hold(book, "p", "a")
    book.release("p")
    (farewell,) = book.releases
    with pytest.raises(AllocationError):
        book.choice(R, 1, set())
    book.notified(farewell)
    assert book.choice(R, 1, set()).free == ("a",)
