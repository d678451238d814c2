from kedge.supervisor.launch.options import LaunchOptions


def test_options_survive_the_way_to_another_process() -> None:
    options = LaunchOptions(7, (8, 9, 10))
    options.namespaces = [11]
    options.target = (12, 0x2000_0000)
    options.cgroup_files = ["/sys/fs/cgroup/x/cgroup.procs"]
    assert vars(LaunchOptions.of(vars(options))) == vars(options)


def test_a_child_gets_every_descriptor_that_its_options_name() -> None:
    options = LaunchOptions(7, (8, 9, 10))
    options.namespaces, options.target = [11], (12, 0)
    options.target_pidns, options.target_userns, options.userns = 13, 14, 15
    options.terminal = 16
    assert options.descriptors() == {0, 1, 2, *range(7, 17)}
