"""What is read from the text of a kubelet, and what is passed over."""

import pytest

from kedge.metrics.scrape.page import TimedReading, parse

NOW = 1_900_000_000.0
TEXT = b"""\
# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="main",namespace="shop",pod="web"} 4.5 1899999990123
container_memory_working_set_bytes{container="main",namespace="shop",pod="web"} 67e6 1899999990123
container_start_time_seconds{container="main",namespace="shop",pod="web"} 1.8999e+09 1900000000000
container_swap_usage_bytes{container="main",namespace="shop",pod="web"} 0 1899999990123
node_cpu_usage_seconds_total 1234.5 1899999995000
node_memory_working_set_bytes 1e+09 1899999995000
pod_cpu_usage_seconds_total{namespace="shop",pod="web"} 5 1899999991000
pod_memory_working_set_bytes{namespace="shop",pod="web"} 7e+07 1899999991000
resource_scrape_error 0
"""


def test_a_page_has_the_node_its_pods_and_their_containers() -> None:
    page = parse(TEXT, NOW)
    assert page.machine == TimedReading(1899999995.0, 1_234_500_000_000, 1e9, 0.0)
    web = page.pods["shop", "web"]
    assert web.total == TimedReading(1899999991.0, 5_000_000_000, 7e7, 0.0)
    assert web.containers == {"main": TimedReading(1899999990.123, 4_500_000_000, 6.7e7, 1.8999e9)}


def test_what_has_no_time_was_read_now() -> None:
    page = parse(b"node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 2\n", NOW)
    assert page.machine == TimedReading(NOW, 1_000_000_000, 2.0, 0.0)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e300", "many", "0x10"])
def test_what_is_no_possible_number_is_unknown(value: str) -> None:
    text = f"node_cpu_usage_seconds_total {value} 5\nnode_memory_working_set_bytes 2 1000\n"
    assert parse(text.encode(), NOW).machine == TimedReading(1.0, -1, 2.0, 0.0)


@pytest.mark.parametrize(
    "labels",
    [
        'container="a"',
        'namespace="x"',
        'container="a",pod="p"',
        'container="",namespace="n",pod="p"',
    ],
)
def test_a_container_that_is_nobody_s_is_passed_over(labels: str) -> None:
    line = f"container_cpu_usage_seconds_total{{{labels}}} 1\n"
    assert parse(line.encode(), NOW).pods == {}


def test_a_container_of_the_future_is_passed_over_and_a_start_after_the_reading_unknown() -> None:
    def lines(pod: str, time: float, start: float) -> str:
        labels = f'{{container="c",namespace="n",pod="{pod}"}}'
        return (
            f"container_cpu_usage_seconds_total{labels} 1 {time * 1000:.0f}\n"
            f"container_start_time_seconds{labels} {start}\n"
        )

    text = lines("ahead", NOW + 31, NOW) + lines("fine", NOW, 1e18)
    pods = parse(text.encode(), NOW).pods
    assert list(pods) == [("n", "fine")]
    assert pods["n", "fine"].containers["c"].started == 0.0


@pytest.mark.parametrize("text", [b"", b"\xff\xfe\x00", b"<html>", b"node_cpu_usage_seconds_total"])
def test_anything_else_says_nothing(text: bytes) -> None:
    page = parse(text, NOW)
    assert page.machine is None
    assert page.pods == {}
