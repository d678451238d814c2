from hypothesis import given
from hypothesis import strategies as st

from kedge.storage.store import prefix_end

texts = st.text(st.sampled_from("a/\x7f\ud7ff\ue000\U0010ffff"), max_size=4)


@given(texts, texts)
def test_the_end_of_a_prefix_separates_its_keys_from_all_later_ones(prefix: str, key: str) -> None:
    end = prefix_end(prefix)
    within = key >= prefix and (not end or key < end)
    assert within == key.startswith(prefix)
