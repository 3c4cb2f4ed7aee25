"""`andrea-tui`: the console script."""

import sys

from andrea_tui.cli import run


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
