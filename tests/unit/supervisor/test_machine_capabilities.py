"""Capabilities of a machine, from what was tried on it."""

import pytest

from kedge.supervisor.machine_capabilities import (
    ADVISORY,
    ALL_IDS,
    BOUND,
    CONFINED,
    FULL,
    KERNEL,
    ONE_ID,
    OWN_ID,
    PLAIN,
    SAMPLED,
    SUBORDINATE_IDS,
    UNCONFINED,
    USERNS,
    MachineAttempts,
    MachineCapabilities,
    decide,
    of_level,
    read,
)

ROOT = MachineAttempts(
    is_root=True,
    namespaces=True,
    mapped_namespaces=False,
    overlay=True,
    controllers=frozenset({"cpu", "memory", "pids"}),
)
USER = MachineAttempts(is_root=False, namespaces=False, mapped_namespaces=True, overlay=True)
JAILED = USER._replace(mapped_namespaces=False)


def test_root_has_everything() -> None:
    assert decide(ROOT) == MachineCapabilities(
        is_root=True,
        namespaces=True,
        user_namespace=False,
        overlay=True,
        ids=ALL_IDS,
        devices=CONFINED,
        controllers=("cpu", "memory", "pids"),
        memory=KERNEL,
        cpu=KERNEL,
        pids=KERNEL,
        ephemeral_storage=SAMPLED,
    )
    assert decide(ROOT).level == FULL


def test_a_user_has_namespaces_and_sampled_limits() -> None:
    found = decide(USER)
    assert (found.level, found.ids, found.devices) == (USERNS, ONE_ID, BOUND)
    assert (found.memory, found.cpu, found.pids) == (SAMPLED, SAMPLED, SAMPLED)
    assert not found.has_cgroups


def test_a_user_has_subordinate_ids_where_they_could_be_mapped() -> None:
    assert decide(USER._replace(subordinate_ids=True)).ids == SUBORDINATE_IDS
    assert decide(JAILED._replace(subordinate_ids=True)).ids == OWN_ID


def test_limits_are_advisory_if_processes_cannot_be_found() -> None:
    found = decide(USER._replace(sees_children=False, controllers=frozenset({"pids"})))
    assert (found.memory, found.cpu, found.pids) == (ADVISORY, ADVISORY, KERNEL)


def test_each_controller_counts_by_itself() -> None:
    found = decide(USER._replace(controllers=frozenset({"memory"})))
    assert (found.level, found.memory, found.cpu, found.pids) == (
        USERNS,
        KERNEL,
        SAMPLED,
        SAMPLED,
    )
    assert found.devices == BOUND
    without = decide(ROOT._replace(controllers=frozenset({"cpu"})))
    assert (without.level, without.memory, without.cpu) == (USERNS, SAMPLED, KERNEL)


def test_control_groups_without_namespaces_still_limit() -> None:
    found = decide(JAILED._replace(controllers=frozenset({"memory", "cpu"})))
    assert (found.level, found.memory, found.cpu) == (PLAIN, KERNEL, KERNEL)
    assert (found.devices, found.ids, found.overlay) == (UNCONFINED, OWN_ID, False)


def test_root_without_namespaces_may_not_mount() -> None:
    jailed = decide(JAILED._replace(is_root=True))
    assert (jailed.level, jailed.is_root, jailed.ids) == (PLAIN, False, ALL_IDS)
    mapped = decide(USER._replace(is_root=True))
    assert (mapped.level, mapped.is_root, mapped.user_namespace) == (USERNS, False, True)


@pytest.mark.parametrize("level", [FULL, USERNS, PLAIN])
def test_a_supervisor_tells_its_capabilities(level: str) -> None:
    usual = of_level(level)
    assert usual.level == level
    assert read({"level": level}) == usual
    other = usual._replace(memory=ADVISORY, controllers=("pids",))
    assert read({"level": level, "capabilities": other.document()}) == other


def test_a_capability_of_a_later_release_is_ignored() -> None:
    document = {**of_level(FULL).document(), "teleports": True}
    assert read({"level": FULL, "capabilities": document}) == of_level(FULL)
