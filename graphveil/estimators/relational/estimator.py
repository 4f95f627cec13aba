"""RelationalClassifier: persons from several tables, protected row by row or person by person."""

from dataclasses import dataclass
from typing import ClassVar

from graphveil._util import checks
from graphveil.core.unit import UNITS, NoUnit, Person, Row
from graphveil.data.tables.encoding import REGRESSION
from graphveil.errors import ConfigError
from graphveil.estimators.base import Estimator
from graphveil.estimators.method import Method
from graphveil.estimators.relational.persons import PersonMethod
from graphveil.estimators.relational.rows import RowMethod
from graphveil.estimators.requirements import Rejections, rejected


@dataclass(kw_only=True, eq=False, repr=False)
class RelationalClassifier(Estimator):
    """Classify persons from several tables of what they did, or predict a number for each of them.

    **Unit** ``row``. Labeled persons are divided publicly into R and V. Rows of R are counted at their far
    ends, by the label of the owner, and far ends with similar noisy class mixes get the same code. All other
    rows are counted at their owner, by table, value and code. A logistic regression on these noisy counts and
    on posteriors from attributes is fitted to V. Every row is in one count, with discrete Laplace noise of
    the whole epsilon, for any number of tables.

    **Unit** ``person``. Everything that follows from a person's own rows and public catalogs is a feature:
    number and values of rows, attributes of far ends and, with enough persons, the far ends themselves. One
    linear model of these features is trained by noisy full-batch steps. With unit ``none`` it is trained
    without noise, as the non-private reference.

    Shapes: persons (N) to probabilities (N, C), or to numbers (N) with ``task="regression"``, which needs
    unit ``person`` and a public ``target_range``.

    Args:
        codes: Unit ``row``: number of codes of far ends. None for 4 below epsilon 2 and 8 from there on.
        items: Unit ``person``: whether each far end is a feature. None to decide by the budget and the public
            number of training persons.

    Raises:
        UnitError: If the unit is neither ``row`` nor ``person``, or a table under ``person`` is mutual.
        ConfigError: If a keyword has no effect under the unit.

    Privacy:
        Unit: ``row``. Reads: rows; attributes and labels are public. Charges: one release, epsilon-DP with
        delta 0. Public: counts, parameters and predictions.

        Unit: ``person``. Reads: attributes, labels and rows. Charges: one release of training steps, mu-GDP.
        Public: the parameters. The prediction for a person reads the person's own rows without noise. It is
        only for people who are authorized to access this person's record.

        Proofs: ``docs/privacy/proofs/tables.md``.

    >>> import graphveil as gv
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> kind, owner = rng.integers(2, size=1000), rng.integers(1000, size=20000)
    >>> film = np.where(rng.random(20000) < 0.8, 10 * kind[owner], 0) + rng.integers(10, size=20000)
    >>> part = np.array(["train", "val", "test"])[rng.choice(3, size=1000, p=[0.6, 0.1, 0.3])]
    >>> tables = gv.Tables(
    ...     {"user": np.arange(1000), "kind": np.where(kind, "a", "b"), "part": part},
    ...     id="user", label="kind", split="part", classes=["a", "b"],
    ...     rows={"seen": gv.Rows({"user": owner, "film": film}, owner="user", far="film")},
    ...     public={"film": np.arange(20)},
    ... )
    >>> models = [gv.RelationalClassifier(unit=unit, epsilon=4.0, seed=0) for unit in ("row", "person")]
    >>> [model.fit(tables).score(tables) > 0.8 for model in models]
    [True, True]
    """

    method: ClassVar[str] = "relational"
    fits: ClassVar[str] = "tables"
    reads_tables: ClassVar[bool] = True
    predicts_numbers: ClassVar[bool] = True
    rejections: ClassVar[Rejections] = rejected(
        "{method} learns from tables of persons and their rows, so it supports units 'row' and 'person', and "
        "not {unit!r}. Use one of these, or method 'classcode' for a graph.",
        *(UNITS.keys() - {Row.name, Person.name, NoUnit.name}),
    )

    codes: int | None = None
    items: bool | None = None

    def _check_config(self) -> None:
        super()._check_config()
        by_row = self.protected_unit.name == Row.name
        if self.codes is not None:
            checks.integer_at_least(1, codes=self.codes)
        other = "items" if by_row else "codes"
        if getattr(self, other) is not None:
            raise ConfigError(
                f"{other}={getattr(self, other)!r} has no effect under unit {self.unit!r}. Omit it."
            )
        if by_row and self.task == REGRESSION:
            raise ConfigError(
                "relational predicts classes only under unit 'row', and does not support task='regression'. "
                "Use unit='person'."
            )

    def _build_method(self) -> Method:
        if self.protected_unit.name == Row.name:
            return self._method(RowMethod)
        return self._method(PersonMethod)
