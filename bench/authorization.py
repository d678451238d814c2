"""Measure the time of one authorization decision.

Bindings of other users must not add to it: decisions come from an index by user and group.
"""

from collections.abc import Callable, Iterator
from time import perf_counter_ns

from kedge.api.rbac_v1.role_binding import RoleRef, Subject
from kedge.apiserver.authorization import defaults
from kedge.apiserver.authorization.attributes import of_path, of_resource
from kedge.apiserver.authorization.rbac import EVERYWHERE, Policy, RoleName
from kedge.apiserver.request import ANONYMOUS, User
from kedge.apiserver.route import ResourcePath, parse
from kedge.web.message import HttpRequest

ROUNDS = 1_000
TRIES = 100
OTHERS = (0, 1_000, 10_000)
"""Bindings of other people in the same cluster."""


def main() -> None:
    print(f"{'microseconds by bindings of others':40}{''.join(f'{n:>10,}' for n in OTHERS)}")
    rows: dict[str, list[float]] = {}
    for others in OTHERS:
        for name, decide in questions(cluster(others)):
            rows.setdefault(name, []).append(taken(decide))
    for name, figures in rows.items():
        print(f"{name:40}{''.join(f'{each:10.2f}' for each in figures)}")


def cluster(others: int) -> Policy:
    """The default roles and bindings, a user with two bindings, and other people's bindings."""
    made = Policy()
    for each in defaults.roles():
        made.put_role(RoleName(each.metadata.namespace, each.metadata.name), each.rules)
    for given in defaults.bindings():
        meta = given.metadata
        made.put_binding(meta.namespace, meta.name, given.roleRef, given.subjects)
    bind(made, "team", "alice", "system:aggregate-to-edit")
    bind(made, EVERYWHERE, "alice", "system:aggregate-to-view")
    for number in range(others):
        place = f"ns-{number % 100}" if number % 2 else EVERYWHERE
        bind(made, place, f"user-{number}", "system:aggregate-to-edit")
    for number in range(1_000):
        bind(made, f"tenant-{number}", "operator", "system:aggregate-to-edit")
    return made


def bind(made: Policy, namespace: str, user: str, role: str) -> None:
    ref = RoleRef(kind="ClusterRole", name=role)
    made.put_binding(namespace, f"{user}-{role}", ref, [Subject(kind="User", name=user)])


def questions(made: Policy) -> Iterator[tuple[str, Callable[[], object]]]:
    alice = User("alice", ("team-a", "team-b", "system:authenticated"))
    operator = User("operator", ("system:authenticated",))
    garbage = "generic-garbage-collector"
    collector = User(
        f"system:serviceaccount:kube-system:{garbage}",
        ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"),
    )
    pod = "/api/v1/namespaces/team/pods/web"

    def asking(user: User, verb: str, path: str) -> Callable[[], object]:
        http = HttpRequest("GET", path)

        def ask() -> object:
            target = parse(path)
            if isinstance(target, ResourcePath):
                return made.decide(of_resource(user, verb, target, http))
            return made.decide(of_path(user, verb, path))

        return ask

    yield "a user's right in a namespace", asking(alice, "create", pod)
    yield "a user's right everywhere", asking(alice, "get", pod)
    yield "a refusal", asking(alice, "escalate", "/apis/apps/v1/namespaces/team/deployments")
    tenant = "/api/v1/namespaces/tenant-7/pods/web"
    yield "a user bound in 1,000 namespaces", asking(operator, "create", tenant)
    yield "a controller, rules with stars", asking(collector, "patch", pod)
    yield "anonymous, /healthz", asking(ANONYMOUS, "get", "/healthz")


def taken(decide: Callable[[], object]) -> float:
    """Microseconds, the best of some tries."""
    best = 0.0
    for _ in range(TRIES):
        began = perf_counter_ns()
        for _ in range(ROUNDS):
            decide()
        each = (perf_counter_ns() - began) / ROUNDS / 1_000
        best = min(best, each) if best else each
    return best


if __name__ == "__main__":
    main()
