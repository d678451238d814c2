"""The entry point of the command `kedge`."""

import sys

NOT_LINUX = """\
kedge: pods need the kernel of Linux, and this is {}: run kedge in a virtual machine or a container
with Linux, for instance "limactl start template://debian", then "pip install kedge" there
"""


def main() -> int:
    if sys.platform != "linux":
        sys.stderr.write(NOT_LINUX.format(sys.platform))
        return 1
    # These modules cannot be imported elsewhere.
    from kedge.cli import inheritance
    from kedge.cli import main as command_line

    inheritance.put_right()
    return command_line.run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
