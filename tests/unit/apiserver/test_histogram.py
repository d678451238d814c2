"""Histograms as Prometheus text."""

from kedge.apiserver.histogram import MOST_SERIES, LabelledMetric, MetricHistogram


def test_values_are_counted_by_upper_bounds() -> None:
    histogram = MetricHistogram((1, 2.5))
    for value in (0.5, 1, 2, 9):
        histogram.observe(value)
    assert list(histogram.lines("x", 'a="b"')) == [
        'x_bucket{a="b",le="1"} 2',
        'x_bucket{a="b",le="2.5"} 3',
        'x_bucket{a="b",le="+Inf"} 4',
        'x_sum{a="b"} 12.500000',
        'x_count{a="b"} 4',
    ]


def test_a_histogram_without_labels() -> None:
    assert list(MetricHistogram(()).lines("x", "")) == [
        'x_bucket{le="+Inf"} 0',
        "x_sum 0.000000",
        "x_count 0",
    ]


def test_series_are_told_apart_by_their_labels() -> None:
    metric = LabelledMetric("name", "code")
    for code in ("200", "500", "200"):
        metric.observe('a"b', code)
    assert list(metric.totals()) == [
        ('name="a\\"b",code="200"', 2),
        ('name="a\\"b",code="500"', 1),
    ]


def test_series_beyond_a_number_are_counted_together() -> None:
    metric = LabelledMetric("name")
    for number in range(MOST_SERIES + 5):
        metric.observe(str(number))
    counted = dict(metric.totals())
    assert counted['name="other"'] == 5
    assert len(counted) == MOST_SERIES + 1
