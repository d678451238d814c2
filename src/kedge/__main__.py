"""The entry point of the command `kedge`."""

import sys

from kedge.cli import inheritance
from kedge.cli import main as command_line


def main() -> int:
    inheritance.put_right()
    return command_line.run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
