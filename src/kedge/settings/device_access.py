"""DeviceAccessRule: which variables of containers name objects that a pod needs permission to use.

A device plugin reads these variables to configure a device, for instance with a bitstream.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

VERB: Final = "use"
"""The verb that a service account needs for an object that a variable names."""


class DeviceAccessRule(NamedTuple):
    """The values of some variables are names of objects of a resource."""

    variable: str
    """The name of the variable, in which stars stand for any text."""
    plural: str
    group: str

    @property
    def resource(self) -> str:
        return f"{self.plural}.{self.group}"

    def __str__(self) -> str:
        return f"{self.variable}={self.resource}"


class UsedObject(NamedTuple):
    """An object that a container wants to use."""

    variable: str
    rule: DeviceAccessRule
    name: str

    @property
    def refusal(self) -> str:
        """Say that a service account may not use the object, and how it could."""
        return (
            f'variable {self.variable}: the service account needs the verb "{VERB}" for'
            f' {self.rule.resource} "{self.name}"'
        )


def parse_device_access(value: str) -> DeviceAccessRule:
    """Return the rule of `VARIABLE=RESOURCE.GROUP`."""
    variable, _, resource = value.partition("=")
    plural, _, group = resource.partition(".")
    if not (variable and plural and group):
        raise argparse.ArgumentTypeError(
            f'"{value}" is not VARIABLE=RESOURCE.GROUP, such as'
            " 'FPGA_BITSTREAM_ID_*=bitstreams.fpga.intel.com'"
        )
    return DeviceAccessRule(variable, plural, group)


def used_objects(
    rules: Sequence[DeviceAccessRule], variables: Mapping[str, str]
) -> Iterator[UsedObject]:
    """Yield the objects that variables name, by variable; an empty value names none."""
    for variable in sorted(variables):
        for rule in rules:
            if variables[variable] and fnmatchcase(variable, rule.variable):
                yield UsedObject(variable, rule, variables[variable])
