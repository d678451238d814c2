"""Valid documents of workloads for tests to change."""

from typing import Any

from kedge.machinery.patch import apply_merge

_WORKLOAD: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "nginx"}]},
        },
    },
}


def workload_document(change: dict[str, Any]) -> dict[str, Any]:
    """A Deployment, or anything with a selector and a template, with a merge patch applied."""
    document: dict[str, Any] = apply_merge(_WORKLOAD, change)
    return document


def job_document(change: dict[str, Any]) -> dict[str, Any]:
    """A Job that has a uid and is not prepared yet, with a merge patch applied."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = {"metadata": {"name": "pi", "uid": "u-1"}, "spec": {"template": template}}
    document: dict[str, Any] = apply_merge(job, change)
    return document
