"""Every exception of the library, in one tree.

::

    GraphveilError
    ├── InputError                             (ValueError) the caller can fix it; nothing was spent
    │   ├── ConfigError                        a parameter: unknown name, wrong type, outside its range
    │   ├── GraphError                         the data: columns, ids, features, labels, shapes
    │   │   └── TableError                     two tables: all that is wrong, and what would pass
    │   ├── ArtifactError                      a file or run folder: missing, damaged, hostile, other version
    │   └── LDPReportError                     an LDP report: malformed, replayed, of another protocol
    ├── PrivacyError                           the guarantee asked for cannot be given; nothing was spent
    │   ├── UnitError                          the unit is missing, or does not fit the data
    │   ├── UnsupportedGuaranteeError          no proof can exist: a counterexample is known
    │   ├── NotImplementedGuaranteeError       plausible but unproved, or not built: names what to use instead
    │   ├── CalibrationError                   no noise meets the budget
    │   └── BudgetError                        the privacy ledger refuses: requested, remaining, difference
    ├── ReleaseError                           a release went wrong after it was recorded; it stays charged
    ├── LedgerError                            the ledger's database cannot be used; nothing was released
    ├── RunError                               a run failed; what was saved can be resumed
    └── MissingDependencyError                 an optional package is needed: names the extra

Messages say what (with the numbers), why, and a fix that can be typed. They never contain a value of
the data: no feature, node id, label or private count.
"""

from __future__ import annotations

from collections.abc import Sequence


class GraphveilError(Exception):
    """Base of every error that this library raises on purpose."""


class InputError(GraphveilError, ValueError):
    """Something the caller gave is unusable; nothing was computed or spent."""


class ConfigError(InputError):
    """A parameter is unknown, of the wrong type, or outside its range."""


class GraphError(InputError):
    """The graph data is malformed."""


class TableError(GraphError):
    """Tables cannot be used as they are: all that was found in one look.

    ``problems`` are sentences; ``flags`` and ``keywords`` say, for the command and for Python, what to choose
    about columns so that the same tables pass; None where no choice mends them. They name columns, never
    values.
    """

    def __init__(
        self, problems: Sequence[str], flags: Sequence[str] | None = None, keywords: str | None = None
    ) -> None:
        """Take the problems, at least one, and what would pass."""
        self.problems = tuple(problems)
        self.flags = None if flags is None else tuple(flags)
        self.keywords = keywords
        super().__init__(self.words + ("" if keywords is None else f"; what passes: {keywords}"))

    @property
    def words(self) -> str:
        """Every problem, in one line."""
        if len(self.problems) == 1:
            return self.problems[0]
        numbered = "; ".join(f"({number}) {words}" for number, words in enumerate(self.problems, start=1))
        return f"{len(self.problems)} things are wrong with these tables: {numbered}"


class ArtifactError(InputError):
    """A file or run folder is missing, damaged, hostile, or of another version."""


class LDPReportError(InputError):
    """A client's LDP report or a survey is malformed, replayed, out of range, or of another version."""


class PrivacyError(GraphveilError):
    """The guarantee asked for cannot be given; nothing was spent."""


class UnitError(PrivacyError, ValueError):
    """The unit of protection is missing, or does not fit the data."""


class UnsupportedGuaranteeError(PrivacyError):
    """No proof can exist for this combination: a counterexample is known."""


class NotImplementedGuaranteeError(PrivacyError):
    """This combination is unproved or not built; the message names what to use instead."""


class CalibrationError(PrivacyError, ValueError):
    """No amount of noise meets the budget."""


class BudgetError(PrivacyError):
    """The privacy ledger refuses a release: requested, remaining and difference are in the message."""


class ReleaseError(GraphveilError):
    """A release failed after it was recorded; it stays charged."""


class LedgerError(GraphveilError):
    """The database of a ledger cannot be used; what it did not record is not released."""


class RunError(GraphveilError):
    """A run failed part-way; what was saved can be resumed."""


class MissingDependencyError(GraphveilError, ImportError):
    """An optional package is needed; the message names the extra that installs it."""
