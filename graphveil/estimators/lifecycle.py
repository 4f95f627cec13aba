"""The lifecycle that models of nodes, pairs and lists share: parameters, ``prepare``, ``fit``, ``guarantee``.

A model holds a frozen configuration (``Model.config``, a ``Method``) and a fit (``Model.fitted``, a
``FittedModel``). What a model predicts is its ``Method``; everything here is the same for all of them.
"""

import dataclasses
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from graphveil._util import checks
from graphveil._util.checks import fitting, hints_of
from graphveil._util.figures import counted, format_epsilon_delta
from graphveil._util.files import as_path, check_writable
from graphveil._util.threads import one_thread
from graphveil.core.accounting.gaussian import check_delta
from graphveil.core.backends import AggregationBackend
from graphveil.core.noise.random import PublicStreams
from graphveil.core.plan import ReleasePlan
from graphveil.core.unit import NoUnit, Unit, parse_unit
from graphveil.errors import ConfigError
from graphveil.estimators.fitted import FittedAttribute, FittedModel
from graphveil.estimators.method import FitResult, Method, PreparedFit
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.requirements import Rejections
from graphveil.estimators.session import OnProgress, Session, configuration_text
from graphveil.privacy import Guarantee
from graphveil.training.heads import MULTICLASS, TaskHead

M = TypeVar("M", bound=Method)
_log = logging.getLogger("graphveil")  # only public values are logged: sizes, units, budgets


class Model(ABC):
    """What all models have in common: checked parameters, a plan before a fit, a fit, and its guarantee.

    Keywords are checked and frozen into ``config`` when they are set. Keywords that are set after a fit apply
    to the next fit only.
    """

    method: ClassVar[str]
    fits: ClassVar[str] = "graph"  # what ``fit`` takes, in words
    rejections: ClassVar[Rejections] = {}  # units without support, by name
    deviations: ClassVar[tuple[str, ...]] = ()  # why no guarantee of the method is valid
    removed: ClassVar[Mapping[str, Any]] = {}  # former keywords, with the values that they have now

    unit: str | None
    epsilon: float | None
    delta: float | str
    seed: int | None
    unsafe_noise_seed: int | None
    max_units: int | None

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Keep the short ``repr`` in all models, which a plain ``@dataclass`` would replace."""
        super().__init_subclass__(**keywords)
        if "__repr__" not in vars(cls):
            cls.__repr__ = Model.__repr__  # type: ignore[method-assign]  # in its own namespace

    plan_ = FittedAttribute[ReleasePlan | None](lambda fit: fit.plan)

    def __post_init__(self) -> None:
        """Check the configuration and freeze it. Later assignments of a parameter do the same."""
        self._fit: FittedModel | None = None
        for name, hint in hints_of(type(self)).items():
            if name in parameter_names(type(self)):
                fitting(name, getattr(self, name), hint)
        self._check_config()
        self._config = self._build_method()

    def __setattr__(self, name: str, value: Any) -> None:
        value = checks.plain(value)
        if "_config" in self.__dict__ and name in parameter_names(type(self)):
            self.set_params(**{name: value})
        else:
            object.__setattr__(self, name, value)

    # -- configuration -------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor keywords.

        Args:
            deep: Without effect; for scikit-learn.

        Returns:
            Values by keyword.
        """
        return {name: getattr(self, name) for name in parameter_names(type(self))}

    def recorded_params(self) -> dict[str, Any]:
        """Return the keywords that can affect results; a resumed fit must have the same ones."""
        return {name: value for name, value in self.get_params().items() if name != "backend"}

    def set_params(self, **params: Any) -> Self:
        """Set constructor keywords for the next fit.

        Args:
            params: New values by keyword.

        Returns:
            This model.

        Raises:
            ConfigError: If a keyword is unknown, or the constructor rejects the values. None is then set.
        """
        known = self.get_params()
        for name in params:
            if name not in known:
                raise ConfigError(
                    f"{name!r} is not a parameter of {self.method}{checks.suggestion(name, known)}; "
                    f"parameters are {', '.join(known)}"
                )
        configured = type(self)(**{**known, **params})  # rejects what the constructor rejects
        for name in params:
            object.__setattr__(self, name, getattr(configured, name))
        self._privacy_config, self._config = configured.privacy_config, configured.config
        return self

    @property
    def config(self) -> Method:
        """The frozen configuration of the next fit. Setting a parameter replaces it."""
        return self._config

    @property
    def privacy_config(self) -> PrivacyConfig:
        """Privacy unit and budget. The name of the unit is parsed here, once per configuration."""
        if "_privacy_config" not in self.__dict__:
            self._privacy_config = self._build_privacy_config()
        return self._privacy_config

    @property
    def protected_unit(self) -> Unit:
        """The privacy unit."""
        return self.privacy_config.unit

    @classmethod
    def is_local(cls, unit: str | None) -> bool:
        """Return whether records are randomized before the method sees them, under a unit."""
        return False

    def _build_privacy_config(self) -> PrivacyConfig:
        unit = parse_unit(self.unit, max_degree=1)
        return PrivacyConfig(**{**self._named(PrivacyConfig), "unit": unit}, deviations=self.deviations)

    @property
    def _rejections(self) -> Rejections:
        """The units that the method does not support with these keywords, by name."""
        return self.rejections

    def _check_config(self) -> None:
        """Check every public parameter, before ``_build_method`` freezes them."""
        rejection = self._rejections.get(self.unit or "")
        if rejection is not None:
            raise rejection.of(self)
        unit = self.protected_unit
        if self.epsilon is not None:
            checks.positive(epsilon=self.epsilon)
        if self.delta != "auto":
            check_delta(unit, self.delta, 1)
        for name, least in (("seed", 0), ("unsafe_noise_seed", 0), ("max_units", 1)):
            if getattr(self, name) is not None:
                checks.integer_at_least(least, **{name: getattr(self, name)})

    @abstractmethod
    def _build_method(self) -> Method:
        """Return the frozen method of this configuration, for the unit and budget in ``privacy_config``."""

    def _method(self, kind: type[M], **fields: Any) -> M:
        """Return a frozen method for the unit and budget in ``privacy_config``.

        Fields that are not given are the keywords of the same name.
        """
        common = {"name": self.method, "privacy_config": self.privacy_config, "head": self._task_head}
        return kind(**{**self._named(kind), **common, **fields})

    def _named(self, kind: type[Any]) -> dict[str, Any]:
        """Return the keywords that have the names of fields of a dataclass."""
        names = {part.name for part in dataclasses.fields(kind)}
        return {name: value for name, value in self.get_params().items() if name in names}

    @property
    def _task_head(self) -> TaskHead:
        return MULTICLASS

    # -- fitting -------------------------------------------------------------------------------------------

    @abstractmethod
    def prepare(self, graph: Any) -> PreparedFit:
        """Check the data as ``fit`` does, and plan the fit; nothing is charged."""

    def preview(self, graph: Any) -> PreparedFit:
        """Return plan, guarantee and outputs of a fit, as ``prepare``.

        Args:
            graph: Data to fit.

        Returns:
            The planned fit.

        Raises:
            ConfigError, UnitError, GraphError: As ``fit`` does.

        Privacy:
            Unit: ``unit``. Reads and charges: as ``prepare``.
        """
        return self.prepare(graph)

    def _prepared(self, given: Any) -> PreparedFit | None:
        if not isinstance(given, PreparedFit):
            return None
        if given.method is not self.config:
            raise ConfigError(
                "Parameters were changed after prepare(). Call prepare(graph) again. No privacy budget "
                "was spent."
            )
        return given

    @one_thread()
    def _fit_in(self, session: Session, data: Any, prepared: PreparedFit | None = None) -> Self:
        started = time.perf_counter()
        with session.stage("calibrate"):
            ready = prepared or self.prepare(data)
        for folder in filter(None, (session.workspace, session.cache)):
            check_writable(folder)
        session.plan, session.guarantee = ready.plan, ready.guarantee
        spends = (
            "nothing is queried under a budget" if session.plan is None else "its release is recorded first"
        )
        _log.info("%s: a fit of %d nodes begins, %s", self.method, ready.scaled.num_nodes, spends)
        self._fit = None  # a fit that fails leaves no older predictions behind
        result, ready = self._result(ready, session)
        session.seconds["total"] = time.perf_counter() - started
        self._keep(FittedModel.from_result(result, ready, session, self.recorded_params()), ready)
        _log.info("%s: fitted; %s", self.method, cost_line(self.guarantee))
        return self

    def _result(self, ready: PreparedFit, session: Session) -> tuple[FitResult, PreparedFit]:
        return ready.method.fit(ready.method.view(ready.scaled), session), ready

    def _keep(self, fitted: FittedModel, ready: PreparedFit) -> None:
        self._fit = fitted

    def _session(
        self,
        on_progress: OnProgress,
        workspace: Path | str | None = None,
        backend: AggregationBackend | None = None,
        cache: Path | str | None = None,
    ) -> Session:
        return Session(
            streams=PublicStreams(self.seed),
            label=self.config.stream_name,
            noise_seed=self.unsafe_noise_seed,
            backend=backend,
            on_progress=on_progress,
            workspace=None if workspace is None else as_path(workspace, "workspace"),
            cache=None if cache is None else as_path(cache, "cache"),
            configuration=configuration_text(self._bound_params()),
        )

    def _bound_params(self) -> dict[str, Any]:
        """Return the keywords that the noise of private training is bound to.

        ``mode`` and ``removed`` are no keywords any more. They stay here, so that a seed gives the results
        that it gave before.
        """
        return {"mode": "strict", **self.removed, **self.recorded_params()}

    # -- results -------------------------------------------------------------------------------------------

    @property
    def fitted(self) -> FittedModel:
        """The fit, as a value.

        Raises:
            ConfigError: If the model is not fitted.
        """
        if self._fit is None:
            raise ConfigError(f"The model is not fitted. Call fit({self.fits}) first.")
        return self._fit

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the fit: everything that it releases."""
        return self.fitted.guarantee

    def __repr__(self) -> str:
        chosen = (
            f"{part.name}={getattr(self, part.name)!r}"
            for part in dataclasses.fields(self)  # type: ignore[arg-type]  # every model is a dataclass
            if part.init and getattr(self, part.name) != part.default
        )
        return f"{type(self).__name__}({', '.join(chosen)})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle an unfitted model. A fitted model has an open ledger, which must not be copied."""
        if self._fit is not None:
            raise ConfigError(
                "A fitted model cannot be pickled, copied or sent to another process, because the ledger "
                "of its queries would not be copied. Save it with model.save(folder) and load it there "
                "with load_model(folder)."
            )
        return super().__reduce_ex__(protocol)


def cost_line(guarantee: Guarantee) -> str:
    if guarantee.unit == NoUnit.name:
        return "no guarantee: nothing is protected"
    cost = format_epsilon_delta(guarantee.epsilon, guarantee.delta)
    invalid = "" if guarantee.valid else "; invalid because of known deviations"
    return f"{guarantee.unit}: {cost}, {counted(guarantee.releases, 'release')}{invalid}"


@cache
def parameter_names(cls: type[Model]) -> tuple[str, ...]:
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # every model is a dataclass
    return tuple(field.name for field in fields if field.init)
