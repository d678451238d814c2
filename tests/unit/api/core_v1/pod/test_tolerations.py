import pytest

from kedge.api.core_v1.node_types import Taint
from kedge.api.core_v1.pod.affinity import Toleration
from kedge.api.core_v1.pod.tolerations import tolerates, untolerated

TAINT = Taint(key="dedicated", value="db", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "covered"),
    [
        (Toleration(key="dedicated", value="db"), True),
        (Toleration(key="dedicated", operator="Equal", value="db", effect="NoSchedule"), True),
        (Toleration(key="dedicated", operator="Equal", value="web"), False),
        (Toleration(key="dedicated", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoExecute"), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(key="dedicated", operator="Gt", value="1"), False),
    ],
)
def test_which_tolerations_cover_a_taint(toleration: Toleration, covered: bool) -> None:
    assert tolerates(toleration, TAINT) is covered


def test_one_taint_without_toleration_is_enough_to_be_kept_away() -> None:
    other = Taint(key="broken", effect="NoExecute")
    assert untolerated([Toleration(key="dedicated", operator="Exists")], [TAINT, other]) == other
    assert untolerated([Toleration(operator="Exists")], [TAINT, other]) is None
