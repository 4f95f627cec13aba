"""The lifecycle of models of pairs and of lists, and their public folder.

``links.json`` or ``recommender.json`` holds parameters and ids, ``model.safetensors`` the released numbers,
``privacy.json`` and ``PRIVACY.md`` the guarantee, which is computed again when the folder is read, and
``README.md`` the model card.
"""

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt

from graphveil._util.display import shown_progress
from graphveil._util.files import as_path, atomic_folder, load_checked, save_checked, writing_folder
from graphveil.core.plan import ReleasePlan
from graphveil.errors import ArtifactError, ConfigError
from graphveil.estimators.fitted import FittedModel
from graphveil.estimators.lifecycle import Model, parameter_names
from graphveil.estimators.method import State, TrainedModel
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.session import OnProgress, no_progress
from graphveil.privacy import Guarantee
from graphveil.publish.cards import PairCard, pair_card
from graphveil.publish.queries import release_rows
from graphveil.publish.release_folder import HUB_PAGE, PRIVACY, WEIGHTS, read_privacy_file, write_guarantee
from graphveil.publish.results import LINK_METRIC_NAMES, LINKS, RECOMMENDER
from graphveil.training.metrics import Interval


class PairModel(Model):
    """A model of pairs or of lists, which predicts by what was released and is saved to a folder."""

    def _fit_with(
        self, data: Any, workspace: Path | str | None, on_progress: OnProgress | None, *, progress: bool
    ) -> Self:
        with shown_progress(on_progress or no_progress, progress=progress) as shown:
            return self._fit_in(self._session(shown, workspace), data, self._prepared(data))

    @property
    def _metrics(self) -> dict[str, Interval] | None:
        metrics: dict[str, Interval] | None = self.fitted.learned["metrics"]
        return metrics

    @property
    def _card_metrics(self) -> list[tuple[str, str, float, float, float]]:
        return [
            (name, LINK_METRIC_NAMES[name], one.value, one.low, one.high)
            for name, one in (self._metrics or {}).items()
        ]

    # -- files ---------------------------------------------------------------------------------------------

    def save(self, folder: Path | str, *, dataset: str | None = None) -> Path:
        """Write the fitted model, its guarantee and a model card to a new folder, atomically.

        Args:
            folder: Path that does not exist.
            dataset: Name of the data on the model card.

        Returns:
            The folder.

        Raises:
            ConfigError: If the folder exists, or cannot be written.
            ConfigError: Before ``fit``, or under unit ``none``.

        Privacy:
            Charges: nothing. The folder contains released values only. It is safe to publish.
        """
        fit = self.fitted
        if fit.plan is None:
            raise ConfigError(
                "Unit 'none' has no guarantee, and its exact sums cannot be saved. Fit again with "
                "unit='node-record' and epsilon=1.0."
            )
        path = as_path(folder, "folder")
        if path.exists():
            raise ConfigError(
                f"{path} already exists, but a model must be saved to a new folder. Choose another folder."
            )
        plain, card = self._plain(), pair_card(self._card(dataset), fit.guarantee)
        with writing_folder(path), atomic_folder(path) as work:
            save_checked(work / WEIGHTS, fit.trained.state())
            (work / f"{self.method}.json").write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
            write_guarantee(work, fit.guarantee, fit.rows, fit.plan.sampler.__name__)
            (work / HUB_PAGE).write_text(card, encoding="utf-8")
        return path

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read a folder that ``save`` wrote. Its guarantee is computed again from the stored mechanism.

        Args:
            folder: Folder that ``save`` wrote.

        Returns:
            The fitted model.

        Raises:
            ArtifactError: If the folder holds no such model, or is damaged.

        Privacy:
            Reads and charges: nothing.
        """
        path, kind = as_path(folder, "folder"), cls.method
        found = find_link_folder(path)
        damaged = ArtifactError(
            f"{path} is not a saved {kind}, or it is damaged. Pass the folder that save() wrote."
        )
        if found is None or found.kind != kind:
            raise damaged
        files = [found.path / name for name in (f"{kind}.json", WEIGHTS, PRIVACY)]
        if any(file.is_symlink() for file in files):
            raise ArtifactError(f"{found.path} contains a symbolic link. Copy the files instead.")
        try:
            plain = json.loads(files[0].read_text(encoding="utf-8"))
            guarantee = read_privacy_file(files[2]).guarantee
            model = cls(**{name: plain["parameters"][name] for name in parameter_names(cls)})
            model._fit = model._restored(plain, load_checked(files[1])[0], guarantee)
        except ArtifactError:
            raise
        except Exception as error:  # any value of the files may have another type
            raise damaged from error
        return model

    @abstractmethod
    def _plain(self) -> dict[str, Any]:
        """Return what the folder holds in addition to the state: parameters, ids, metrics."""

    @abstractmethod
    def _card(self, dataset: str | None) -> PairCard:
        """Return the contents of the model card."""

    @abstractmethod
    def _restored(self, plain: Mapping[str, Any], state: State, guarantee: Guarantee) -> FittedModel:
        """Return the fit of a folder's contents. Any error means that it is damaged."""

    def _fit_of(
        self,
        sizes: PublicSizes,
        guarantee: Guarantee,
        plan: ReleasePlan,
        trained: TrainedModel,
        metrics: Mapping[str, Any] | None,
        ids: npt.NDArray[Any] | None = None,
        **learned: Any,
    ) -> FittedModel:
        known = None if metrics is None else {name: Interval(**one) for name, one in metrics.items()}
        return FittedModel(
            method=self.config,
            parameters=self.recorded_params(),
            sizes=sizes,
            guarantee=guarantee,
            plan=plan,
            trained=trained,
            proba=None,
            rows=release_rows(plan),
            sampler=plan.sampler.__name__,
            ids=ids,
            learned={"metrics": known, **learned},
        )


@dataclass(frozen=True)
class LinkFolder:
    """The public folder of a model, and its kind: ``links`` or ``recommender``."""

    kind: str
    path: Path


def find_link_folder(folder: Path | str) -> LinkFolder | None:
    root = Path(folder)
    for path in (root, root / "release"):
        for kind in (LINKS, RECOMMENDER):
            if (path / f"{kind}.json").is_file():
                return LinkFolder(kind, path)
    return None
