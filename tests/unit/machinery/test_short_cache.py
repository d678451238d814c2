from kedge.machinery.short_cache import short_cache


def test_short_texts_are_computed_once_and_long_ones_each_time() -> None:
    calls = []

    @short_cache(2, longest=3)
    def size(text: str) -> int:
        calls.append(text)
        return len(text)

    assert [size(text) for text in ("abc", "abc", "abcd", "abcd")] == [3, 3, 4, 4]
    assert calls == ["abc", "abcd", "abcd"]


def test_the_oldest_results_are_dropped() -> None:
    calls = []

    @short_cache(2)
    def same(text: str) -> str:
        calls.append(text)
        return text

    for text in ("a", "b", "c", "a"):
        same(text)
    assert calls == ["a", "b", "c", "a"]
