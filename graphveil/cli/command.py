"""What all commands have in common as they read their words."""

from collections import Counter
from typing import Any

from typer.core import TyperCommand, TyperOption


class Command(TyperCommand):
    """A command that refuses a flag which is given twice: of two budgets, the last one must not just win.

    Flags that are declared to take several values may be repeated, and so may switches, which then say the
    same again.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words, once to count them."""
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        for flag, count in Counter(order).items():
            if count > 1 and isinstance(flag, TyperOption) and _takes_one_value(flag):
                ctx.fail(f"{flag.opts[0]} is given more than once; keep one.")
        return super().parse_args(ctx, args)


def _takes_one_value(flag: TyperOption) -> bool:
    return not flag.multiple and (not flag.is_flag or bool(flag.secondary_opts))
