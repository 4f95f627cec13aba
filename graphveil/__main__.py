"""The command ``graphveil``, and ``python -m graphveil``."""

import sys
from contextlib import suppress


def main() -> None:
    """Run the command line; a signal before it is loaded leaves one line and no traceback."""
    from graphveil._util import process

    try:
        if sys.argv[1:2] != ["serve"]:  # which lets requests finish first
            process.interrupt_on_termination()
        from graphveil import cli
    except KeyboardInterrupt:
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write("graphveil: stopped; nothing was spent\n")
        sys.exit(process.exit_code())
    cli.main()


if __name__ == "__main__":
    main()
