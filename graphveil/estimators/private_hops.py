"""Noisy sums of public vectors over in-neighbors, as training data for any custom model."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.figures import format_upper_bound
from graphveil._util.files import as_path, atomic_folder, load_checked, save_checked, writing_folder
from graphveil._util.threads import one_thread
from graphveil.core.features import safe_unit, shrink_unit, to_dense
from graphveil.core.noise.random import PublicStreams
from graphveil.core.plan import ReleasePlan, calibrate_plan
from graphveil.core.plan import hops as equal_hops
from graphveil.core.queries.neighbor_sums import NeighborSumData
from graphveil.core.unit import DirectedEdge, UndirectedEdge, parse_unit
from graphveil.core.view import protected_view
from graphveil.data import Graph
from graphveil.errors import ArtifactError, ConfigError, GraphError, UnitError
from graphveil.estimators.features.scaling import FeatureScaling
from graphveil.estimators.privacy_config import SEEDED, PrivacyConfig, data_notes, plan_guarantee
from graphveil.estimators.requirements import as_graph, check_unit
from graphveil.estimators.session import Session
from graphveil.privacy import Guarantee
from graphveil.privacy.serialization import guarantee_from_plain, guarantee_to_plain

_ROWS, _GUARANTEE, _PAGE, _FORMAT = "rows.safetensors", "guarantee.json", "RELEASED.md", "graphveil-rows"


@dataclass(frozen=True, eq=False)
class ReleasedRows:
    """Noisy aggregates that are safe to publish, and their guarantee.

    Using them with public data is post-processing and does not spend privacy budget.

    Args:
        hops: The noisy aggregates r_1 to r_K, each float32 (N, d).
        noise: Standard deviation of the noise of each hop.
        guarantee: Guarantee of the aggregates.
        sent: Input of the first hop, with norms of at most one, float64 (N, d).

    Privacy:
        Unit: that of the release. The aggregates in ``hops`` and their guarantee are public. ``sent`` is not
        covered: it has the norms of ``x``, which must be public already.
    """

    hops: tuple[Tensor, ...]
    noise: tuple[float, ...]
    guarantee: Guarantee
    sent: Tensor

    @property
    def rows(self) -> Tensor:
        """The noisy aggregates of the last hop."""
        return self.hops[-1]

    def formal_statement(self) -> str:
        """Return the guarantee summary."""
        return self.guarantee.formal_statement()

    def __repr__(self) -> str:
        count, dim = self.rows.shape
        kept = self.guarantee
        epsilon = format_upper_bound(kept.epsilon)
        return f"ReleasedRows({len(self.hops)} of {count}x{dim}, {kept.unit}, epsilon={epsilon})"

    def save(self, folder: Path | str) -> Path:
        """Write aggregates, guarantee and a guarantee summary to a new folder, atomically.

        Args:
            folder: Path that does not exist.

        Returns:
            The folder.

        Raises:
            ConfigError: If the folder exists, or cannot be written.

        Privacy:
            Charges: nothing. The folder is safe to publish.
        """
        path = as_path(folder, "folder")
        if path.exists():
            raise ConfigError(
                f"{path} already exists. Released aggregates are never overwritten. Choose another folder."
            )
        with writing_folder(path), atomic_folder(path) as work:
            tensors = {f"hop{number}": hop for number, hop in enumerate(self.hops, 1)} | {"sent": self.sent}
            save_checked(work / _ROWS, {name: part.contiguous() for name, part in tensors.items()})
            record = {"format": _FORMAT, "noise": self.noise, "guarantee": guarantee_to_plain(self.guarantee)}
            (work / _GUARANTEE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            (work / _PAGE).write_text(f"# Released rows\n\n{self.formal_statement()}\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, folder: Path | str) -> "ReleasedRows":
        """Read a folder that ``save`` wrote. Its guarantee is computed again from the stored mechanism.

        Args:
            folder: Folder that ``save`` wrote.

        Returns:
            The aggregates and their guarantee.

        Raises:
            ArtifactError: If the folder holds no released aggregates, or they are damaged.

        Privacy:
            Unit: that of the release. Reads and charges: nothing.
        """
        path = as_path(folder, "folder")
        try:
            record = json.loads((path / _GUARANTEE).read_text(encoding="utf-8"))
            if record["format"] != _FORMAT:
                raise ValueError
            noise = tuple(float(value) for value in record["noise"])
            guarantee = guarantee_from_plain(record["guarantee"])
            tensors = load_checked(path / _ROWS)[0]
            hops = tuple(tensors[f"hop{number}"] for number in range(1, len(noise) + 1))
            return cls(hops, noise, guarantee, tensors["sent"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise ArtifactError(
                f"{path} contains no released aggregates, or they are damaged. Use a folder that save() "
                "wrote."
            ) from error


@one_thread()
def private_hops(
    graph: Graph,
    x: Tensor | npt.NDArray[Any] | None = None,
    *,
    unit: str,
    epsilon: float,
    delta: float | str = "auto",
    hops: int = 1,
    normalize: bool = True,
    max_units: int | None = None,
    unsafe_noise_seed: int | None = None,
) -> ReleasedRows:
    """Return noisy sums of public vectors over in-neighbors, as one release.

        r_k = A^T x_{k-1} + N(0, s^2),    x_k = max(0, 1 - d s^2 / |r_k|^2) r_k / |r_k|,

    where x_0 is ``x``, L2-normalized per node or as it is (``normalize=False``).

    Shapes: ``x`` (N, d) to ``hops`` times (N, d).

    Args:
        graph: Graph whose edges are queried.
        x: Public vectors (N, d). None for the graph's features, with columns of large values scaled.
        unit: ``"undirected-edge"`` or ``"directed-edge"``.
        epsilon, delta: Budget of all hops together.
        hops: K, the number of aggregations.
        normalize: Whether every vector is L2-normalized. Otherwise norms must be at most one.
        max_units: Public bound on the number of protected edges, for ``delta="auto"``.
        unsafe_noise_seed: Makes the noise reproducible, for tests. The guarantee is then invalid.

    Returns:
        The noisy aggregates of all hops and their guarantee.

    Raises:
        ConfigError: If an argument is of another type or outside its range.
        UnitError: If the unit protects no edges, or not those of the graph.
        GraphError: If ``x`` does not fit the graph, has norms above one, or is not finite.
        BudgetError: If the ledger of the edges rejects the release.

    Privacy:
        Unit: edge-level. Reads: private edges. ``x`` must not depend on them: use features, training labels,
        outputs of a network that read no edges, or released aggregates. Charges: one release, recorded in the
        graph's ledger before the edges are read. The sensitivity of a hop is D = 1 for a directed edge and
        D = sqrt(2) for an undirected edge. K hops with noise s = sqrt(K) D / mu are one Gaussian of
        mu = mu*(epsilon, delta). Public: the result. Any training on it, features and labels is
        post-processing (``docs/privacy/proofs/training.md``).

    >>> from graphveil.data import synthetic
    >>> aggregates = private_hops(synthetic("tiny"), unit="undirected-edge", epsilon=1.0, delta=1e-6)
    >>> aggregates.rows.shape == aggregates.sent.shape
    True
    >>> aggregates.guarantee.releases, aggregates.guarantee.epsilon <= 1.0
    (1, True)
    """
    graph = as_graph(graph, unit)
    epsilon, delta, hops, max_units, normalize = map(
        checks.plain, (epsilon, delta, hops, max_units, normalize)
    )
    checks.switch(normalize=normalize)
    x = checks.fitting("x", x, Tensor | npt.NDArray[Any] | None)
    found = parse_unit(unit, max_degree=1)
    if not isinstance(found, UndirectedEdge | DirectedEdge):
        raise UnitError(
            f"private_hops sums public features over private edges, but unit {found.name!r} does not "
            "protect single edges. Use unit 'undirected-edge' or 'directed-edge'. To protect node "
            "records use method 'classcode' or 'gap' with unit='node-record'."
        )
    checks.positive(epsilon=epsilon)
    if max_units is not None:
        checks.integer_at_least(1, max_units=max_units)
    privacy_config = PrivacyConfig(
        unit=found,
        epsilon=float(epsilon),
        delta=delta,
        max_units=max_units,
        unsafe_noise_seed=unsafe_noise_seed,
    )
    checks.depth(hops=hops)
    graph = protected_view(graph, found)
    check_unit(privacy_config, graph, reads_edges=True)
    sent = _rows(graph, x, normalize=normalize)
    plan = plan_hops(privacy_config, graph.num_nodes, hops, sent.shape[1])
    guarantee = plan_guarantee(
        privacy_config,
        plan,
        graph,
        deviations=() if unsafe_noise_seed is None else (SEEDED,),
        notes=data_notes(privacy_config, graph),
    )
    session = Session(
        streams=PublicStreams(0), plan=plan, guarantee=guarantee, label="hops", noise_seed=unsafe_noise_seed
    )
    release, aggregates, rows = session.open(graph), list[Tensor](), sent
    for std in plan.noise_std:
        aggregates.append(release.answer(NeighborSumData(rows)))
        rows = shrink_unit(aggregates[-1], std)
    release.close()
    return ReleasedRows(tuple(aggregates), tuple(plan.noise_std), guarantee, sent)


def _rows(view: Graph, x: Tensor | npt.NDArray[Any] | None, *, normalize: bool) -> Tensor:
    given = (
        to_dense(FeatureScaling.from_public_features(view.x).apply(view.x))
        if x is None
        else torch.as_tensor(np.asarray(x) if not isinstance(x, Tensor) else x)
    )
    if given.ndim != 2 or len(given) != view.num_nodes or not given.shape[1]:
        raise GraphError(
            f"x has the shape {tuple(given.shape)}, but the graph has {view.num_nodes} nodes. Pass "
            "one row per node."
        )
    rows = given.detach().to(torch.float64)
    if not bool(rows.isfinite().all()):
        raise GraphError("x has NaN or infinite entries. Replace them, for example with numpy.nan_to_num(x).")
    if normalize:
        return safe_unit(rows)
    if bool((rows.norm(dim=1) > 1).any()):
        raise GraphError(
            "x has rows with a norm above 1, which would be replaced by zeros. Use normalize=True."
        )
    return rows


def plan_hops(privacy_config: PrivacyConfig, nodes: int, hops: int, dim: int) -> ReleasePlan:
    return calibrate_plan(
        privacy_config.unit,
        privacy_config.budget,
        privacy_config.delta_for(nodes),
        lambda mu: equal_hops(mu, hops, dim, privacy_config.unit),
        num_nodes=nodes,
    )
