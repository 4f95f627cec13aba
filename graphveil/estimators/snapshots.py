"""Release folders from fits: a fit as plain data, and its folder."""

from pathlib import Path

from graphveil.artifacts.cards import Card
from graphveil.artifacts.release_folder import write_release
from graphveil.artifacts.snapshot import Snapshot
from graphveil.estimators.fitted_model import FittedModel


def save_fitted(
    fitted: FittedModel, folder: Path, card: Card | None = None, *, per_node: Path | None = None
) -> None:
    """Write what may be published of a fit to a new folder, whole or not at all.

    Args:
        fitted: the fit; parameters that were set after it are no part of it.
        folder: a path that does not exist yet, or an empty folder.
        card: what the model card says about the data and the accuracy.
        per_node: a second such folder, for what the unit withholds from the first.

    Raises:
        ConfigError: a folder holds something, or nothing is withheld.
    """
    write_release(snapshot_of(fitted), folder, card, per_node=per_node)


def snapshot_of(fitted: FittedModel) -> Snapshot:
    """Return a fit as plain data."""
    return Snapshot(
        method=fitted.method.name,
        parameters=dict(fitted.parameters),
        features=fitted.sizes.width,
        classes=fitted.sizes.classes,
        nodes=fitted.sizes.nodes,
        train_records=fitted.sizes.train_records,
        class_names=fitted.class_names,
        guarantee=fitted.guarantee,
        rows=fitted.rows,
        sampler=fitted.sampler,
        state=fitted.trained.state(),
        released=fitted.released,
        proba=fitted.proba,
        ids=fitted.ids,
        scaling=fitted.scaling.as_plain(),
        encoding=fitted.encoding,
    )
