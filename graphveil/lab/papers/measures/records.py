"""Records read back from randomized embeddings of them, by an inverse that was learned on public records."""

import numpy as np

from graphveil.data import to_dense
from graphveil.lab.attacks import attack_records
from graphveil.lab.attacks.inverses import in_unit_range, random_map
from graphveil.lab.attacks.reconstruction import ADAPTIVE, MEAN
from graphveil.lab.papers.cells import Work
from graphveil.lab.papers.measures.measurement import Measurement, MeasurementPaths
from graphveil.mechanisms import FeatureMechanism, FeatureRR, MultiBit
from graphveil.runs.inputs.source import Source

DIM, COLUMNS, RECORDS = 64, 200, 2000
MECHANISMS: dict[str, type[FeatureMechanism]] = {"feature-rr": FeatureRR, "multi-bit": MultiBit}


def measure(work: Work, paths: MeasurementPaths) -> Measurement:
    """Return the share of variance explained, and of people identified, by the attacker who knows the noise.

    One half of 2,000 records is public, and the other is attacked: their first 200 features, sent as 64
    numbers of a public random map.
    """
    x = to_dense(Source(dataset=work.dataset, root=paths.root).load().x).double().numpy()
    order = np.random.default_rng(work.seed).permutation(len(x))[:RECORDS]
    public, secret = np.array_split(x[order][:, :COLUMNS], 2)
    law = MECHANISMS[work.parameters["features"]](epsilon=work.parameters["eps_x"], dim=DIM)
    embed = in_unit_range(random_map(x[:, :COLUMNS].shape[1], DIM), public)
    found = attack_records(public, secret, law, embed=embed, seed=work.seed)
    adaptive, baseline = found.qualities[ADAPTIVE], found.qualities[MEAN]
    values = {"r2": adaptive["r2"], "identified": adaptive["identified"], "r2_of_mean": baseline["r2"]}
    return Measurement(values={name: value for name, value in values.items() if value is not None})
