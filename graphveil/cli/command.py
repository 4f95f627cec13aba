"""What all commands have in common as they read their words."""

from collections import Counter
from typing import Any

from typer.core import TyperCommand, TyperOption


class Command(TyperCommand):
    """A command that rejects a repeated option and an option in the place of a value.

    Of two budgets, the last one must not just win, and ``--reason --json`` has no reason. Flags that are
    declared to take several values may be repeated, and so may switches, which then say the same again.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words, once to count them."""
        self._check_values(ctx, args)
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        for flag, count in Counter(order).items():
            if count > 1 and isinstance(flag, TyperOption) and _takes_one_value(flag):
                ctx.fail(f"{flag.opts[0]} is given more than once; keep one.")
        return super().parse_args(ctx, args)

    def _check_values(self, ctx: Any, args: list[str]) -> None:
        """Reject an option whose value is missing, so that the next option would be read as the value."""
        options = [one for one in self.get_params(ctx) if isinstance(one, TyperOption)]
        names = {name for one in options for name in (*one.opts, *one.secondary_opts)}
        valued = {name for one in options if not one.is_flag and not one.count for name in one.opts}
        words = iter(args)
        for word in words:
            if word == "--":
                return
            following = next(words, None) if word in valued else None
            if following is not None and (following.startswith("--") or following in names):
                ctx.fail(
                    f"{word} needs a value, and the next word is {following}. "
                    f"Write {word}={following} if that is the value."
                )


def _takes_one_value(flag: TyperOption) -> bool:
    return not flag.multiple and (not flag.is_flag or bool(flag.secondary_opts))
