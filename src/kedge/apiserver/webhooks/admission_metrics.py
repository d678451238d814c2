"""Metrics of webhooks and admission policies, under upstream's names."""

from typing import Final

from kedge.apiserver.histogram import LabelledMetric
from kedge.apiserver.telemetry import Telemetry

_LATENCY: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10, 25)
_CONDITIONS: Final = (0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25)
_CHECKS: Final = (0.0000005, 0.001, 0.01, 0.1, 1.0)
_CONVERSIONS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 45, 60)
_CONVERTED: Final = tuple(0.001 * 2**exponent for exponent in range(15))
_MOST_CODE: Final = 600
_OUT_OF_BUDGET: Final = "validation failed due to running out of cost budget"


class AdmissionMetrics:
    """Counters and latencies of admission and conversion."""

    def __init__(self) -> None:
        hook = ("name", "type", "operation")
        self._webhooks = LabelledMetric(*hook, "rejected", bounds=_LATENCY)
        self._requests = LabelledMetric(*hook, "code", "rejected")
        self._rejections = LabelledMetric(*hook, "error_type", "rejection_code")
        self._failed_open = LabelledMetric("name", "type")
        condition = ("name", "kind", "type", "operation")
        self._condition_errors = LabelledMetric(*condition)
        self._exclusions = LabelledMetric(*condition)
        self._conditions = LabelledMetric(*condition, bounds=_CONDITIONS)
        check = ("policy", "policy_binding", "error_type")
        self._validations = LabelledMetric(*check, "enforcement_action", bounds=_CHECKS)
        self._mutations = LabelledMetric(*check, bounds=_CHECKS)
        conversion = ("crd_name", "from_version", "to_version", "succeeded")
        self._converted = LabelledMetric(*conversion, bounds=_CONVERTED)
        self._conversions = LabelledMetric("result", "failure_type", bounds=_CONVERSIONS)

    def webhook(
        self, name: str, step: str, operation: str, *, code: int, rejected: bool, seconds: float
    ) -> None:
        """Record a call; `step` is `validating` or `admit`."""
        refused = "true" if rejected else "false"
        self._requests.observe(name, step, operation, _code(code), refused)
        self._webhooks.observe(name, step, operation, refused, amount=seconds)

    def rejection(self, name: str, step: str, operation: str, *, error: str, code: int) -> None:
        """Record a webhook that refuses, or one that fails and refuses thereby."""
        self._rejections.observe(name, step, operation, error, _code(code))

    def failed_open(self, name: str, step: str) -> None:
        """Record a webhook whose failure is ignored."""
        self._failed_open.observe(name, step)

    def condition(self, name: str, kind: str, step: str, operation: str, seconds: float) -> None:
        """Record an evaluation of match conditions; `kind` is `webhook` or `policy`."""
        self._conditions.observe(name, kind, step, operation, amount=seconds)

    def condition_error(self, name: str, kind: str, step: str, operation: str) -> None:
        self._condition_errors.observe(name, kind, step, operation)

    def exclusion(self, name: str, kind: str, step: str, operation: str) -> None:
        """Record a webhook that is not called because of its conditions."""
        self._exclusions.observe(name, kind, step, operation)

    def validation(
        self, policy: str, binding: str, *, error: str, action: str, seconds: float
    ) -> None:
        """Record a decision of a ValidatingAdmissionPolicy."""
        self._validations.observe(policy, binding, error, action, amount=seconds)

    def mutation(self, policy: str, binding: str, *, error: str, seconds: float) -> None:
        """Record a mutation of a MutatingAdmissionPolicy."""
        self._mutations.observe(policy, binding, error, amount=seconds)

    def conversion(
        self, definition: str, versions: tuple[str, str], *, failure: str, seconds: float
    ) -> None:
        """Record a call of a conversion webhook; `failure` is empty if it has converted."""
        succeeded = "false" if failure else "true"
        self._converted.observe(definition, *versions, succeeded, amount=seconds)
        self._conversions.observe("failure" if failure else "success", failure, amount=seconds)

    def add_to(self, telemetry: Telemetry) -> None:
        """Serve the metrics."""
        admission = "apiserver_admission"
        for name, text, metric in (
            ("webhook_request_total", "Calls of webhooks.", self._requests),
            ("webhook_rejection_count", "Refusals by webhooks.", self._rejections),
            ("webhook_fail_open_count", "Failures that were ignored.", self._failed_open),
            (
                "match_condition_evaluation_errors_total",
                "Match conditions with errors.",
                self._condition_errors,
            ),
            (
                "match_condition_exclusions_total",
                "Calls that match conditions avoided.",
                self._exclusions,
            ),
        ):
            telemetry.counter(f"{admission}_{name}", text, metric.totals)
        for name, text, metric in (
            ("webhook_admission_duration_seconds", "Time of calls.", self._webhooks),
            ("match_condition_evaluation_seconds", "Time of evaluations.", self._conditions),
        ):
            telemetry.histogram(f"{admission}_{name}", text, metric.histograms)
        name, text = "apiserver_crd_conversion_webhook_duration_seconds", "Time of conversions."
        telemetry.histogram(name, text, self._converted.histograms)
        for name, text, metric in (
            ("validating_admission_policy_check", "Decisions of policies", self._validations),
            ("mutating_admission_policy_check", "Mutations by policies", self._mutations),
            ("conversion_webhook", "Calls of conversion webhooks", self._conversions),
        ):
            request = "_request" if name == "conversion_webhook" else ""
            counter = f"apiserver_{name}{request}_total"
            telemetry.counter(counter, f"{text}.", metric.totals)
            duration = f"apiserver_{name}_duration_seconds"
            telemetry.histogram(duration, f"{text}, by seconds.", metric.histograms)


def _code(code: int) -> str:
    return str(min(code, _MOST_CODE))


def error_type(message: str) -> str:
    """Return the label for the message of a policy that does not hold; empty if it holds."""
    if not message:
        return "no_error"
    if message.startswith("compilation"):
        return "compile_error"
    return "out_of_budget" if message.startswith(_OUT_OF_BUDGET) else "invalid_error"
