"""Edge weights of hops, computed from public or released vectors; this does not spend privacy budget."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from graphveil._util import checks
from graphveil.core.clipping.dpsgd import Adam
from graphveil.core.features import Features
from graphveil.core.queries.weights import Similarity
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.session import Session
from graphveil.nn.layers import FeedForward, batch_of
from graphveil.release.weights import parse_weight

ROWS = ("input", "previous")

_WIDTHS = (32, 16)  # hidden and output width of the network of learned_public
_STEPS, _PAIRS, _RATE = 300, 4096, 0.01
_SHARP = 5.0  # factor from cosines to logits


@dataclass(frozen=True)
class EdgeWeighting:
    """An edge weight and the source of its inputs. Inputs are public; no edge is read."""

    similarity: Similarity
    rows: str

    @classmethod
    def from_config(
        cls, weights: str, rows: str, *, encoder: bool, records: bool, attention: Similarity | None = None
    ) -> "EdgeWeighting | None":
        checks.one_of(ROWS, weight_rows=rows)
        similarity = parse_weight(weights)
        if similarity is None:
            return None
        if records:
            raise ConfigError(
                f"weights={weights!r} depends on node features, which node-level units protect. Use "
                "weights='one', or an edge-level unit."
            )
        if similarity.reads == "attention" and attention is not None:
            similarity = attention
        elif similarity.reads == "attention":
            raise ConfigError(
                f"weights={weights!r} is trained on the edges with privacy budget, which only gap with an "
                "edge-level unit supports. Use weights='learned_public', which is trained on public "
                "labels and does not spend budget."
            )
        if similarity.reads == "posteriors" and not encoder:
            raise ConfigError(
                f"weights={weights!r} needs the encoder's class probabilities. Use use_encoder=True."
            )
        if rows == "previous" and similarity.reads != "rows":
            raise ConfigError(
                f"weights={weights!r} uses {similarity.reads}, which are the same in every hop, so "
                "weight_rows='previous' has no effect. Use weight_rows='input'."
            )
        return cls(similarity, rows)

    @property
    def learned_from_edges(self) -> bool:
        """Whether edge weights are attention that is learned from the edges, for a part of the budget."""
        return self.similarity.reads == "attention"

    def weight_network(self, width: int, generator: torch.Generator) -> FeedForward | None:
        if self.similarity.reads != "learned":
            return None
        return FeedForward([width, *_WIDTHS], generator=generator, activation="selu")

    def learned(self, view: Graph, rows: Tensor, session: Session) -> FeedForward | None:
        """Return the network that is trained on public labels, or None. Edges are not read.

        Outputs get a high cosine if labels agree, on random labeled pairs. Pairs that agree have the same
        total weight as those that do not.
        """
        generator = session.streams.torch("weights")
        network = self.weight_network(rows.shape[1], generator)
        if network is None:
            return None
        nodes = view.labeled_in("train")
        x, y = rows[nodes].float(), view.y[nodes]
        optimizer = Adam(network.parameters())
        agreeing = float((y.bincount() / len(y)).square().sum())
        balance = torch.tensor((1 - agreeing) / agreeing)
        for _ in range(_STEPS):
            u, v = torch.randint(len(y), (2, _PAIRS), generator=generator)
            cosine = (normalize(network(x[u]), dim=1) * normalize(network(x[v]), dim=1)).sum(dim=1)
            agree = (y[u] == y[v]).float()
            optimizer.zero_grad()
            loss = binary_cross_entropy_with_logits(_SHARP * cosine, agree, pos_weight=balance)
            loss.backward()  # type: ignore[no-untyped-call]  # torch's own
            optimizer.step(rate=_RATE)
        return network

    def keys(
        self,
        view: Graph,
        rows: Tensor,
        encoder: nn.Module | None,
        network: nn.Module | None,
        session: Session,
    ) -> Features | None:
        if self.rows == "previous":
            return None
        if self.similarity.reads == "features":
            return view.x
        if self.similarity.reads == "rows":
            return rows

        @torch.no_grad()
        def compute() -> dict[str, Tensor]:
            if network is not None:
                return {"keys": network.eval()(rows.float())}
            assert encoder is not None  # from_config rejects such weights without an encoder
            return {"keys": encoder.eval()(batch_of(view.x)).softmax(dim=1)}

        # Stored in the workspace, as the aggregates are: a resumed release needs bit-identical inputs.
        return session.load_or_compute("weights", compute)["keys"]
