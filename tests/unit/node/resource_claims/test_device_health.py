"""The health of devices, as drivers report it."""

from kedge.dra import messages as m
from kedge.node.resource_claims.device_health import (
    LONGEST_MESSAGE,
    MOST_DEVICES,
    UNKNOWN,
    DeviceHealthBook,
)


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def report(device: str, health: int = m.HEALTHY_DEVICE, **more: object) -> m.DeviceHealth:
    name = m.DeviceIdentifier(pool_name="p", device_name=device)
    return m.DeviceHealth(device=name, health=health, **more)  # type: ignore[arg-type]


def test_changes_are_reported_once() -> None:
    book = DeviceHealthBook(Time())
    assert book.update("d", [report("0"), report("1", m.UNKNOWN_HEALTH)]) == {("p", "0")}
    assert book.update("d", [report("0")]) == set()
    assert book.update("d", [report("0", m.UNHEALTHY_DEVICE)]) == {("p", "0")}
    assert book.update("d", [report("0", m.UNHEALTHY_DEVICE, message="hot")]) == {("p", "0")}
    found = book.of("d", "p", "0")
    assert (found.health, found.message) == ("Unhealthy", "hot")


def test_an_old_report_is_worth_nothing() -> None:
    time = Time()
    book = DeviceHealthBook(time)
    book.update("d", [report("0"), report("1", health_check_timeout_seconds=5), report("2")])
    time.now = 10
    assert book.of("d", "p", "1").health == UNKNOWN
    assert book.expire() == {"d": {("p", "1")}}
    book.update("d", [report("2", health_check_timeout_seconds=-1)])
    time.now = 31
    assert book.of("d", "p", "0").health == UNKNOWN
    assert book.expire() == {"d": {("p", "0")}}
    assert book.of("d", "p", "2").health == "Healthy"
    assert book.forget("d") == {("p", "2")}
    assert book.forget("d") == set()


def test_a_driver_cannot_fill_the_memory() -> None:
    book = DeviceHealthBook(Time())
    book.update("d", [report(str(i)) for i in range(MOST_DEVICES + 10)])
    book.update("d", [report(f"more-{i}") for i in range(MOST_DEVICES)])
    assert len(book.forget("d")) == MOST_DEVICES
    book.update("d", [report("0", message="x" * 2000)])
    message = book.of("d", "p", "0").message
    assert len(message) == LONGEST_MESSAGE
    assert message.endswith("x...")
