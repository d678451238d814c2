"""Priority: a pod's priority is that of its class, and only one class is everybody's."""

from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.model import Object
from kedge.api.scheduling_v1.priority_class import PREEMPT, RESOURCE, PriorityClass
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.watchcache import Change, Item, ResourceCache
from kedge.machinery.errors import StatusError

_NO_CLASS = PriorityClass(value=0, preemptionPolicy=PREEMPT)
"""The priority of a pod that names no class, if no class is the default."""


class Priority:
    """Sets the priority and the preemption policy of a pod from its PriorityClass, or the default
    class."""

    name = "Priority"

    def __init__(self, classes: ResourceCache) -> None:
        self._classes: dict[str, PriorityClass] = {}
        for item in classes.values():
            self._take(item)
        self._default = self._chosen()
        classes.listeners.add(self._follow)

    def _follow(self, change: Change | None) -> None:
        if change is None:
            return
        if change.type == "DELETED":
            self._classes.pop(change.item.key.rpartition("/")[2], None)
        else:
            self._take(change.item)
        self._default = self._chosen()

    def _take(self, item: Item) -> None:
        found = RESOURCE.decode(item.body)
        self._classes[found.metadata.name] = found

    def _chosen(self) -> PriorityClass | None:
        """The default class; of several that were made in a race, the one of least value."""
        defaults = [each for each in self._classes.values() if each.globalDefault]
        return min(defaults, key=lambda each: each.value, default=None)

    async def mutate(self, attempt: Attempt) -> Object | None:
        pod = attempt.object
        if not isinstance(pod, Pod) or attempt.request.subresource:
            return pod
        if attempt.operation == "CREATE":
            return self._resolved(attempt, pod)
        if attempt.operation == "UPDATE" and isinstance(attempt.old, Pod):
            return kept(pod, attempt.old)
        return pod

    async def validate(self, attempt: Attempt) -> None:
        wanted = attempt.object
        if not isinstance(wanted, PriorityClass) or not wanted.globalDefault:
            return
        present = self._default
        if present is None or attempt.request.subresource:
            return
        same = present.metadata.name == wanted.metadata.name
        if attempt.operation == "CREATE" or (attempt.operation == "UPDATE" and not same):
            why = f"PriorityClass {present.metadata.name} is already marked as default."
            raise refused(attempt, f"{why} Only one default can exist")

    def _resolved(self, attempt: Attempt, pod: Pod) -> Pod:
        spec = pod.spec
        if spec.priorityClassName:
            found = self._classes.get(spec.priorityClassName)
            if found is None:
                why = f"no PriorityClass with name {spec.priorityClassName} was found"
                raise refused(attempt, why)
        else:
            found = self._default or _NO_CLASS
        if spec.priority not in (None, found.value):
            raise _given(attempt, "integer", "priority", spec.priority, found.value)
        policy = found.preemptionPolicy or spec.preemptionPolicy
        if spec.preemptionPolicy not in (None, policy):
            raise _given(attempt, "string", "PreemptionPolicy", spec.preemptionPolicy, policy)
        changed = replace(
            spec,
            priorityClassName=spec.priorityClassName or found.metadata.name,
            priority=found.value,
            preemptionPolicy=policy,
        )
        return replace(pod, spec=changed)


def kept(new: Pod, old: Pod) -> Pod:
    """The new pod with the priority of the old one where it says nothing of its own."""
    priority = old.spec.priority if new.spec.priority is None else new.spec.priority
    policy = new.spec.preemptionPolicy or old.spec.preemptionPolicy
    if (priority, policy) == (new.spec.priority, new.spec.preemptionPolicy):
        return new
    return replace(new, spec=replace(new.spec, priority=priority, preemptionPolicy=policy))


def _given(attempt: Attempt, sort: str, field: str, given: object, computed: object) -> StatusError:
    why = (
        f"the {sort} value of {field} ({given}) must not be provided in pod spec; "
        f"priority admission controller computed {computed} from the given PriorityClass name"
    )
    return refused(attempt, why)
