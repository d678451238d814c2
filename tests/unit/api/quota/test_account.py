from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.resource_quota import ResourceQuotaSpec
from kedge.api.quota.account import QuotaAccount, greater, increase, listed
from kedge.api.quota.pods import PodQuotaMeter
from kedge.api.quota.resource_claims import ResourceClaimQuotaMeter
from kedge.api.resource_v1 import resource_claim
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.machinery.quantity import Quantity
from kedge.testing.pods import new_pod

KIND = ("", "pods")
METER = PodQuotaMeter()


def account(hard: dict[str, str], **spec: Any) -> QuotaAccount:
    amounts = {name: Quantity.parse(amount) for name, amount in hard.items()}
    opened = QuotaAccount(ResourceQuotaSpec(hard=amounts, **spec), {})
    opened.begin(KIND, METER)
    return opened


def put(book: QuotaAccount, key: str, pod: Pod) -> bool:
    measure = METER.measure(pod)
    return book.put(KIND, key, book.charge(KIND, METER, measure, measure.usage, key))


def used(book: QuotaAccount) -> dict[str, str]:
    return {name: str(amount) for name, amount in book.used.items()}


def cpu(amount: str) -> Pod:
    return new_pod(container={"resources": {"requests": {"cpu": amount}}})


def test_only_names_of_the_quota_are_summed() -> None:
    book = account({"requests.cpu": "9", "services": "1"})
    put(book, "a", cpu("500m"))
    put(book, "b", cpu("1"))
    assert used(book) == {"requests.cpu": "1500m"}


def test_a_change_replaces_what_the_object_took_and_says_whether_it_matters() -> None:
    book = account({"requests.cpu": "9"})
    assert put(book, "a", cpu("1"))
    assert put(book, "a", cpu("2"))
    assert not put(book, "a", cpu("2"))
    assert used(book) == {"requests.cpu": "2"}
    assert book.remove(KIND, "a")
    assert not book.remove(KIND, "a")
    assert used(book) == {"requests.cpu": "0"}


def test_objects_outside_the_scopes_take_nothing() -> None:
    book = account({"pods": "9"}, scopes=["BestEffort", "NotTerminating"])
    put(book, "a", cpu("1"))
    put(book, "b", new_pod(spec={"activeDeadlineSeconds": 1}))
    assert used(book) == {"pods": "0"}
    put(book, "c", new_pod())
    assert used(book) == {"pods": "1"}


def test_an_object_that_leaves_the_scope_gives_back_what_it_took() -> None:
    book = account({"pods": "9"}, scopes=["NotTerminating"])
    put(book, "a", new_pod())
    put(book, "a", new_pod(spec={"activeDeadlineSeconds": 1}))
    assert used(book) == {"pods": "0"}


def test_amounts_that_shrink_are_no_increase() -> None:
    one, two = Quantity.parse("1"), Quantity.parse("2")
    assert increase({"a": two, "b": one, "c": one}, {"a": one, "b": two}) == {"a": one, "c": one}
    assert increase({"a": two}, {"a": two}) == {}


def test_the_smallest_growth_is_an_increase() -> None:
    least = Quantity.parse("1n")
    assert increase({"a": least}, {}) == {"a": least}


def test_the_greater_amount_of_each_name_is_taken() -> None:
    one, two = Quantity.parse("1"), Quantity.parse("2")
    assert greater({"a": one, "b": two}, {"a": two, "b": one, "c": one}) == {
        "a": two,
        "b": two,
        "c": one,
    }


def test_amounts_of_the_same_size_keep_the_first_spelling() -> None:
    found = greater({"a": Quantity.parse("1Gi")}, {"a": Quantity.parse("1073741824")})
    assert str(found["a"]) == "1Gi"


def test_amounts_are_listed_by_name_and_missing_ones_as_nothing() -> None:
    amounts = {"pods": Quantity.parse("3"), "cpu": Quantity.parse("500m")}
    assert listed(amounts, ["pods", "memory", "cpu"]) == "cpu=500m,memory=0,pods=3"


def test_a_kind_is_counted_from_its_beginning_to_its_end() -> None:
    book = account({"requests.cpu": "9", "pods": "9"})
    assert book.has_begun(KIND)
    assert not book.has_begun(("", "services"))
    put(book, "a", cpu("1"))
    assert {name: str(amount) for name, amount in book.charged(KIND, "a").items()} == {
        "requests.cpu": "1",
        "pods": "1",
    }
    assert book.charged(KIND, "b") == {}
    book.end(KIND)
    assert not book.has_begun(KIND)
    assert book.used == {}


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 5))))
def test_the_sum_is_always_that_of_the_last_word_on_each_object(
    steps: list[tuple[str, int | None]],
) -> None:
    book = account({"requests.cpu": "9", "pods": "9"})
    last: dict[str, int] = {}
    for key, amount in steps:
        if amount is None:
            book.remove(KIND, key)
            last.pop(key, None)
        else:
            put(book, key, cpu(str(amount)))
            last[key] = amount
    assert book.used["pods"] == Quantity.from_value(len(last))
    assert book.used["requests.cpu"] == Quantity.from_value(sum(last.values()))


# Extended resources, which pods and claims to devices share.

CLAIMS = ("resource.k8s.io", "resourceclaims")
CLAIM_METER = ResourceClaimQuotaMeter()
IMPLICIT, NAMED = "requests.deviceclass.resource.kubernetes.io/gpus", "requests.d.example/gpu"


def sharing() -> QuotaAccount:
    amounts = {name: Quantity.parse("9") for name in (IMPLICIT, NAMED)}
    opened = QuotaAccount(ResourceQuotaSpec(hard=amounts), {IMPLICIT: NAMED})
    opened.begin(KIND, METER)
    opened.begin(CLAIMS, CLAIM_METER)
    return opened


def new_claim(count: int, made_for: str = "") -> ResourceClaim:
    exactly = {"deviceClassName": "gpus", "allocationMode": "ExactCount", "count": count}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": made_for, "uid": "1", "controller": True}
    meta = {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [owner],
    }
    return resource_claim.RESOURCE.from_document(
        {
            "metadata": meta if made_for else {},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        }
    )


def put_claim(book: QuotaAccount, key: str, claim: ResourceClaim) -> None:
    measure = CLAIM_METER.measure(claim)
    book.cover(measure.covered_by, key)
    charge = book.charge(CLAIMS, CLAIM_METER, measure, measure.usage, key)
    book.put(CLAIMS, key, charge)


def gpus(amount: str) -> Pod:
    return new_pod(container={"resources": {"requests": {"d.example/gpu": amount}}})


def test_claims_count_as_the_extended_resources_of_their_class() -> None:
    book = sharing()
    put_claim(book, "c", new_claim(2))
    put(book, "p", gpus("1"))
    assert used(book) == {IMPLICIT: "2", NAMED: "3"}


def test_a_claim_for_the_resources_of_a_pod_counts_only_beyond_the_pod() -> None:
    book = sharing()
    put(book, "/registry/pods/default/p", gpus("1"))
    put_claim(book, "c", new_claim(3, "p"))
    assert used(book) == {IMPLICIT: "3", NAMED: "3"}


def test_a_pod_covers_one_claim() -> None:
    book = sharing()
    put(book, "p", gpus("2"))
    put_claim(book, "a", new_claim(2, "p"))
    put_claim(book, "b", new_claim(2, "p"))
    assert used(book)[NAMED] == "4"
    book.remove(CLAIMS, "a")
    put_claim(book, "b", new_claim(2, "p"))
    assert used(book)[NAMED] == "2"
    assert book.covered_claim("p") == "b"


def test_a_kind_that_is_left_takes_only_its_own_share_along() -> None:
    book = sharing()
    put(book, "p", gpus("1"))
    put_claim(book, "c", new_claim(2))
    book.end(CLAIMS)
    assert used(book)[NAMED] == "1"
    book.end(KIND)
    assert used(book) == {}


def test_claims_of_classes_without_a_resource_do_not_count_as_one() -> None:
    amounts = {IMPLICIT: Quantity.parse("9")}
    book = QuotaAccount(ResourceQuotaSpec(hard=amounts), {})
    book.begin(CLAIMS, CLAIM_METER)
    put_claim(book, "c", new_claim(2))
    assert used(book) == {}
