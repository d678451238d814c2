"""Histograms as Prometheus text."""

from kedge.apiserver.histogram import MetricHistogram


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
