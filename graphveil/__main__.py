"""The command ``graphveil``, and ``python -m graphveil``."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C before it is loaded leaves no traceback."""
    try:
        from graphveil import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
