"""All exceptions of the library, in one hierarchy.

::

    GraphveilError
    ├── InputError                             (ValueError) the caller can fix it; nothing was spent
    │   ├── ConfigError                        a parameter: unknown name, wrong type, outside its range
    │   ├── GraphError                         the data: columns, ids, features, labels, shapes
    │   │   └── TableError                     two tables: all problems, and arguments that fix them
    │   ├── ArtifactError                      a file or run folder: missing, damaged, hostile, other version
    │   └── LDPReportError                     an LDP report: malformed, replayed, of another protocol
    ├── PrivacyError                           the requested guarantee is not available; nothing was spent
    │   ├── UnitError                          the unit is missing, or does not fit the data
    │   ├── UnsupportedGuaranteeError          no proof can exist: a counterexample is known
    │   ├── NotImplementedGuaranteeError       unproved, or not implemented: names an alternative
    │   ├── CalibrationError                   no noise meets the budget
    │   └── BudgetError                        the privacy ledger rejects: requested, remaining, difference
    ├── ReleaseError                           a release failed after it was recorded; it stays charged
    ├── LedgerError                            the ledger's database cannot be used; nothing was released
    ├── RunError                               a run failed; what was saved can be resumed
    └── MissingDependencyError                 an optional package is needed: names the extra

Error messages state the problem (with the numbers), the reason, and a fix that can be pasted. They never
contain a value of the data, such as a feature, a node id, a label or a private count.
"""

from __future__ import annotations

from collections.abc import Sequence


class GraphveilError(Exception):
    """Base class of every error that this library raises on purpose.

    Messages name parameters as in Python, ``name=value``. The command line prints its own options instead.
    ``parameters`` are the names of those that a check rejected.
    """

    def __init__(self, *arguments: object, parameters: Sequence[str] = ()) -> None:
        super().__init__(*arguments)
        self.parameters = tuple(parameters)


class InputError(GraphveilError, ValueError):
    """An argument is unusable; nothing was computed or spent."""


class ConfigError(InputError):
    """A parameter is unknown, of the wrong type, or outside its range."""


class GraphError(InputError):
    """The graph data is malformed."""


class TableError(GraphError):
    """Tables cannot be used as they are; lists all problems that were found.

    ``problems`` are sentences. ``flags`` (command line) and ``keywords`` (Python) are arguments about columns
    with which the same tables are accepted. They are None if no argument fixes the tables. They contain
    column names, never values.
    """

    def __init__(
        self, problems: Sequence[str], flags: Sequence[str] | None = None, keywords: str | None = None
    ) -> None:
        """Store the problems (at least one) and the arguments that fix them."""
        self.problems = tuple(problems)
        self.flags = None if flags is None else tuple(flags)
        self.keywords = keywords
        words = self.words
        if keywords is not None:
            words = f"{words.removesuffix('.')}. The tables are accepted with {keywords}."
        super().__init__(words)

    @property
    def words(self) -> str:
        """All problems, in one line."""
        if len(self.problems) == 1:
            return self.problems[0]
        numbered = "; ".join(f"({number}) {words}" for number, words in enumerate(self.problems, start=1))
        return f"{len(self.problems)} things are wrong with these tables: {numbered}"


class ArtifactError(InputError):
    """A file or run folder is missing, damaged, hostile, or of another version."""


class LDPReportError(InputError):
    """An LDP report or a collection protocol is malformed, replayed, out of range, or of another version."""


class PrivacyError(GraphveilError):
    """The requested guarantee is not available; nothing was spent."""


class UnitError(PrivacyError, ValueError):
    """The privacy unit is missing, or does not fit the data."""


class UnsupportedGuaranteeError(PrivacyError):
    """No proof can exist for this combination: a counterexample is known."""


class ProtectedDataError(PrivacyError):
    """A method reads data that its unit protects, outside of a query. Nothing was returned."""


class NotImplementedGuaranteeError(PrivacyError):
    """This combination is unproved or not implemented; the error message names an alternative."""


class CalibrationError(PrivacyError, ValueError):
    """No amount of noise meets the budget."""


class BudgetError(PrivacyError):
    """The privacy ledger rejects a release; the error message has the requested and the remaining budget."""


class ReleaseError(GraphveilError):
    """A release failed after it was recorded; it stays charged."""


class LedgerError(GraphveilError):
    """The database of a ledger cannot be used; nothing is released that it did not record."""


class RunError(GraphveilError):
    """A run failed before its end; what was saved can be resumed."""


class MissingDependencyError(GraphveilError, ImportError):
    """An optional package is needed; the message names the extra that installs it."""
