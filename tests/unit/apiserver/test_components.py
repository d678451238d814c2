"""Components of the control plane, as they report to the server beside them."""

from kedge.api.scheduling_kedge_v1alpha1.scheduling_decision import KeptDecision
from kedge.apiserver.components import NOT_STARTED, ControlPlaneComponents


def test_a_component_fails_until_it_reports() -> None:
    components = ControlPlaneComponents(["kube-scheduler"])
    assert components.names == ["kube-scheduler"]
    assert components.failure("kube-scheduler") == NOT_STARTED
    answers = iter(("informers have not synced", ""))
    components.report("kube-scheduler", lambda: next(answers))
    assert components.failure("kube-scheduler") == "informers have not synced"
    assert components.failure("kube-scheduler") == ""


def test_decisions_are_those_of_the_running_scheduler() -> None:
    class NoDecisions:
        def why(self, namespace: str, name: str) -> None:
            return None

        def kept(self) -> list[KeptDecision]:
            return []

    components = ControlPlaneComponents()
    assert components.decisions is None
    scheduler = NoDecisions()
    components.set_scheduler(scheduler)
    assert components.decisions is scheduler
    components.set_scheduler(None)
    assert components.decisions is None
