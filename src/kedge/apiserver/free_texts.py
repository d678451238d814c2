"""Texts of a pod that neither defaults, admission nor validation look at.

Two pods that differ in such texts only get the same result, but for these texts. They are the
values of labels and annotations, the values of variables, and the words of commands.

Left out are values with a meaning to someone: annotations of Kubernetes and kedge, labels of a pod
whose placement may refer to them, labels that are not valid, and variables that are empty or may
refer to another variable.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1.pod.container import Container, EnvVar
from kedge.api.core_v1.pod.pod import Pod
from kedge.machinery import names

_LISTS: Final = ("containers", "initContainers")
_WORDS: Final = ("command", "args")
_PLACEMENTS: Final = frozenset(("affinity", "topologySpreadConstraints"))
_ALL_TEXT: Final = {str}

_MARK: Final = msgspec.Raw(b"?")
"""Stands for a text. It is not JSON, so no body can contain it."""


class ContainerTexts(NamedTuple):
    """The free texts of a container."""

    variables: Mapping[int, str]
    words: Mapping[str, Sequence[str]]


_NO_TEXTS: Final[Mapping[str, str]] = {}
_NONE: Final = ContainerTexts({}, {})


class FreeTexts(NamedTuple):
    """The free texts of a posted pod."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    containers: Mapping[str, Sequence[ContainerTexts]]


def without_texts(document: Mapping[str, Any]) -> tuple[dict[str, Any], FreeTexts]:
    """Return a posted pod with marks in place of its free texts, and the texts."""
    masked = dict(document)
    labels: Mapping[str, str] = _NO_TEXTS
    annotations: Mapping[str, str] = _NO_TEXTS
    containers: dict[str, Sequence[ContainerTexts]] = {}
    spec = document.get("spec")
    if type(spec) is dict:
        masked["spec"] = masked_spec = dict(spec)
        for name in _LISTS:
            given = spec.get(name)
            if type(given) is list:
                pairs = [*map(_without_texts, given)]
                masked_spec[name] = [each for each, _ in pairs]
                containers[name] = [texts for _, texts in pairs]
    meta = document.get("metadata")
    if type(meta) is dict:
        masked["metadata"] = masked_meta = dict(meta)
        if _PLACEMENTS.isdisjoint(spec if type(spec) is dict else ()):
            labels = _values(masked_meta, "labels", _is_plain_label)
        annotations = _values(masked_meta, "annotations", _is_plain_annotation)
    return masked, FreeTexts(labels, annotations, containers)


def _values(
    meta: dict[str, Any], name: str, is_free: Callable[[str, str], bool]
) -> Mapping[str, str]:
    """Take the free values out of a map of the metadata."""
    given = meta.get(name)
    if type(given) is not dict:
        return _NO_TEXTS
    free = {
        key: value for key, value in given.items() if type(value) is str and is_free(key, value)
    }
    meta[name] = given | dict.fromkeys(free, _MARK)
    return free


def _is_plain_label(key: str, value: str) -> bool:
    return not names.label_value(value)


def _is_plain_annotation(key: str, value: str) -> bool:
    return not ("kubernetes.io" in key or "k8s.io" in key or "kedge" in key)


def _without_texts(container: Any) -> tuple[Any, ContainerTexts]:
    if type(container) is not dict:
        return container, _NONE
    masked = dict(container)
    words: dict[str, Sequence[str]] = {}
    for name in _WORDS:
        given = container.get(name)
        if type(given) is list and {*map(type, given)} == _ALL_TEXT:
            words[name] = given
            masked[name] = [_MARK] * len(given)
    variables: dict[int, str] = {}
    env = container.get("env")
    if type(env) is list:
        masked["env"] = masked_env = list(env)
        for i, variable in enumerate(env):
            value = variable.get("value") if type(variable) is dict else None
            if type(value) is str and value and "$(" not in value:
                variables[i] = value
                masked_env[i] = {**variable, "value": _MARK}
    return masked, ContainerTexts(variables, words)


def with_texts(pod: Pod, texts: FreeTexts) -> Pod:
    """Return an admitted pod with the free texts of another one; the same pod if they are equal."""
    meta = pod.metadata
    if not (texts.labels.items() <= meta.labels.items()) or not (
        texts.annotations.items() <= meta.annotations.items()
    ):
        labels = {**meta.labels, **texts.labels}
        annotations = {**meta.annotations, **texts.annotations}
        pod = replace(pod, metadata=replace(meta, labels=labels, annotations=annotations))
    changed = {}
    for name, lists in texts.containers.items():
        before: Sequence[Container] = getattr(pod.spec, name)
        after = [*map(_with_texts, before, lists)]
        if not all(map(is_, before, after)):
            changed[name] = after
    return replace(pod, spec=replace(pod.spec, **changed)) if changed else pod


def _with_texts(container: Container, texts: ContainerTexts) -> Container:
    changed: dict[str, Any] = {}
    for name, words in texts.words.items():
        if getattr(container, name) != words:
            changed[name] = words
    env: list[EnvVar] | None = None
    for i, value in texts.variables.items():
        if container.env[i].value != value:
            env = env or list(container.env)
            env[i] = replace(env[i], value=value)
    if env is not None:
        changed["env"] = env
    return replace(container, **changed) if changed else container
