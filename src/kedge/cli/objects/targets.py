"""Targets: which resources and objects the words of a command line mean, on this server."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from kedge.api.resource import Resource
from kedge.cli.failure import Failure

_WORKLOADS: Final = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job")
"""Kinds whose pods `kedge doctor` examines."""


class ObjectTarget(NamedTuple):
    """Objects of one resource: one by its name, or all."""

    resource: Resource[Any]
    name: str = ""


def kind_of(resource: Resource[Any]) -> str:
    """`pod`, or `deployment.apps`: what kubectl puts before a name."""
    kind = resource.kind.lower()
    return f"{kind}.{resource.group}" if resource.group else kind


def parse(words: Sequence[str], resources: Sequence[Resource[Any]]) -> list[ObjectTarget]:
    """Parse `TYPE`, `TYPE NAME...`, `TYPE,TYPE` or `TYPE/NAME...`; Failure if it names no type."""
    if any("/" in word for word in words):
        return [_slashed(word, resources) for word in words]
    types, *names = words
    found = [each for word in types.split(",") if word for each in lookup(word, resources)]
    unique = list(dict.fromkeys(found))
    if not unique:
        raise Failure("no type of resource was named")
    if names:
        return [ObjectTarget(resource, name) for resource in unique for name in names]
    return [ObjectTarget(resource) for resource in unique]


def _slashed(word: str, resources: Sequence[Resource[Any]]) -> ObjectTarget:
    type_, slash, name = word.partition("/")
    if not slash:
        raise Failure(
            f'there is no need to name a type beside TYPE/NAME: leave out "{word}", or give it as'
            f" {word}/NAME"
        )
    if not type_ or not name or "/" in name:
        raise Failure(f'"{word}" is neither a type nor TYPE/NAME')
    return ObjectTarget(lookup(type_, resources)[0], name)


def lookup(word: str, resources: Sequence[Resource[Any]]) -> list[Resource[Any]]:
    """The resource of that name, the first if several have it, or those of that category."""
    name, _, rest = word.lower().partition(".")
    within = [each for each in resources if not rest or _in_group(each, rest)]
    for names in (_own_names, _short_names):
        if found := next((each for each in within if name in names(each)), None):
            return [found]
    if found_all := list(_of_category(word, resources)):
        return found_all
    suffix = f' in group "{rest}"' if rest else ""
    raise Failure(
        f'the server doesn\'t have a resource type "{name}"{suffix}{_meant(name, within)}'
    )


def _meant(name: str, resources: Iterable[Resource[Any]]) -> str:
    """Return a question after the type that was probably meant; empty if none is similar."""
    import difflib

    names = {each: None for resource in resources for each in _own_names(resource)}
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    return f": did you mean {close[0]}?" if close else ""


def _in_group(resource: Resource[Any], rest: str) -> bool:
    """Whether `rest` of a word such as `deployments.v1.apps` is where the resource is."""
    return rest in (resource.group, f"{resource.version}.{resource.group}", resource.version)


def _own_names(resource: Resource[Any]) -> Iterable[str]:
    return resource.plural, resource.singular, resource.kind.lower()


def _short_names(resource: Resource[Any]) -> Iterable[str]:
    return resource.presentation.short_names


def _of_category(word: str, resources: Iterable[Resource[Any]]) -> Iterator[Resource[Any]]:
    seen: set[tuple[str, str]] = set()
    for resource in resources:
        if (
            word in resource.presentation.categories
            and (resource.group, resource.plural) not in seen
        ):
            seen.add((resource.group, resource.plural))
            yield resource


def examination(resource: Resource[Any], name: str, namespace: str) -> str:
    """Return the command that tells why an object is as it is."""
    where = f" -n {namespace}" if namespace else ""
    if resource.kind == "Pod":
        return f"'kedge doctor {name}{where}'"
    if resource.kind in _WORKLOADS:
        return f"'kedge doctor {resource.singular}/{name}{where}'"
    return f"'kedge describe {kind_of(resource)}/{name}{where}'"
