from msgspec.structs import replace

from kedge.api.model import ObjectMeta
from kedge.controllers.access.root_ca import DESCRIPTION_KEY, mended, published

DATA = {"ca.crt": "PEM"}


def test_what_was_published_needs_no_mending() -> None:
    whole = published("ns", DATA)
    assert whole.metadata.annotations[DESCRIPTION_KEY]
    assert mended(whole, DATA) == whole


def test_foreign_data_goes_and_foreign_labels_stay() -> None:
    meta = ObjectMeta(name="kube-root-ca.crt", namespace="ns", labels={"mine": "yes"})
    changed = replace(published("ns", {"ca.crt": "other", "more": "x"}), metadata=meta)
    whole = mended(changed, DATA)
    assert whole.data == DATA
    assert whole.metadata.labels == {"mine": "yes"}
    assert whole.metadata.annotations[DESCRIPTION_KEY]


def test_another_description_is_as_good() -> None:
    whole = published("ns", DATA)
    meta = replace(whole.metadata, annotations={DESCRIPTION_KEY: "theirs"})
    reworded = replace(whole, metadata=meta)
    assert mended(reworded, DATA) == reworded
