from kedge.supervisor.rootfs.options import RootfsOptions


def test_options_survive_the_way_to_another_process() -> None:
    options = RootfsOptions(
        home="/h",
        mount_point="/m",
        rootless=False,
        cgroup_views=[("", "")],
        shm=3,
        any_device=True,
        proc=(-1, ""),
        first_id=65_536,
    )
    assert vars(RootfsOptions(**vars(options))) == vars(options)
    assert options.userns == -1
