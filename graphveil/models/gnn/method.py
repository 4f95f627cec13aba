"""A user's module on protected records: one noisy push, then the module on each node's own star."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from graphveil._random import PublicStreams
from graphveil.errors import ArtifactError, ConfigError, UnitError
from graphveil.graph import Graph
from graphveil.models.classcode.owner.encoder import ask_encoder
from graphveil.models.classcode.owner.messages import Messages
from graphveil.models.features.noisy_softmax import NoisySoftmax
from graphveil.models.gnn.plan import StarPlan
from graphveil.models.gnn.route import check_trainable, route_of
from graphveil.models.gnn.stars import StarInputs
from graphveil.models.gnn.start import FromCodes
from graphveil.models.gnn.teaching import public_key, scheduled, teachers
from graphveil.models.gnn.trained import TrainedStars, weights_of
from graphveil.models.membership import OTHER, record_groups
from graphveil.models.method import Method, Outcome, State
from graphveil.models.own.code import Factory, built, is_known
from graphveil.models.own.probing import refuse_mixing
from graphveil.models.own.types import refuse_types
from graphveil.models.session import Session
from graphveil.models.sizes import PublicSizes
from graphveil.models.training.private import fit_sums
from graphveil.models.training.record_plan import released_accuracies
from graphveil.privacy import NodeOwner
from graphveil.privacy.wording import EdgeUse
from graphveil.release import DPSGDQuery, PushData, PushQuery, Release, ReleasePlan, calibrate_plan
from graphveil.release.steps.own_stars import read_own_stars
from graphveil.train import PrivateSchedule
from graphveil.train.devices import private_device
from graphveil.train.stars import StarSum, star_logits

_STAGE = "module"


@dataclass(frozen=True, kw_only=True)
class StarGnn(Method):
    """A module on stars of published rows, for unit ``node-owner``.

    Args:
        module: builds it from two public sizes, or the name of what does.
        epochs, batch_size, clip, learning_rate: of the module's steps; ``batch_size`` None for 5 % of the
            records that teach.
        shares: of mu^2, for encoder and module; None for the encoder is a public rule of sizes and budget.
        leaves: M.
        degree_budget: D of the push.
        from_codes: whether the module corrects what the public codes say, or starts from nothing.
    """

    module: Factory | str = field(repr=False)
    schedule: PrivateSchedule
    shares: tuple[float | None, float]
    leaves: int
    degree_budget: int = 1
    from_codes: bool = True

    def check(self, graph: Graph) -> None:
        """Refuse a graph or a module that cannot be trained; nothing is booked yet."""
        super().check(graph)
        module = self.built(graph.num_classes, PublicStreams(0))
        refuse_types(module)
        widths = self._widths(graph.num_classes)
        refuse_mixing(module, *widths)
        device, parents = private_device(self.device), torch.zeros(self.leaves, dtype=torch.int64)
        check_trainable(self._started(module, graph.num_classes), *widths, parents, device)

    def sizes_of(self, graph: Graph) -> PublicSizes:
        """Return public sizes, with the number of records that teach."""
        return replace(
            PublicSizes.of(graph), labelled=int(teachers(graph, metrics=self.terms.private_metrics).sum())
        )

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the steps, the push, the steps of the module, and counts."""
        terms, asked = self.terms, self.asked(sizes)
        delta = terms.delta_for(sizes.nodes)
        return calibrate_plan(asked.unit, terms.budget, delta, asked.queries, num_nodes=sizes.nodes)

    def asked(self, sizes: PublicSizes) -> StarPlan:
        """Return the questions, before the size of their noise is chosen."""
        unit = self.terms.unit
        if not isinstance(unit, NodeOwner):
            raise UnitError(f"{self.name} on stars is for unit 'node-owner', not {unit.name!r}")
        module, records = self.built(sizes.classes, PublicStreams(0)), sizes.labelled or sizes.records
        return StarPlan(
            unit=unit,
            features=sizes.width,
            classes=sizes.classes,
            parameters=sum(weight.numel() for weight in module.parameters() if weight.requires_grad),
            records=records,
            schedule=scheduled(self.schedule, records),
            shares=self.shares,
            metrics=self.terms.private_metrics,
            degree_budget=self.degree_budget,
        )

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        """Return how edges are used: a node is predicted from its own list."""
        return "read"

    def built(self, classes: int, streams: PublicStreams) -> nn.Module:
        """Return the module with new weights."""
        return built(self.module, *self._widths(classes), streams.torch(_STAGE)).eval()

    def fit(self, graph: Graph, session: Session) -> Outcome:
        """Train the encoder, push, train the module on stars, and predict every node from its own."""
        plan = session.plan
        if plan is None:
            raise ConfigError("a private GNN asks under a plan, and this session has none")
        module = self.built(graph.num_classes, session.streams)
        release = session.open(graph, record_groups(graph))
        first, push, steps = plan.queries[:3]
        assert isinstance(first, DPSGDQuery) and isinstance(push, PushQuery) and isinstance(steps, DPSGDQuery)
        with session.stage("encoder"):
            labelled = teachers(graph, metrics=self.terms.private_metrics)
            encoder = ask_encoder(graph, first, labelled, release, session)
            log_posteriors = encoder.log_posteriors(graph.x)
        with session.stage("aggregate"):
            sent = Messages(graph.y, labelled, graph.num_classes, push.bounds[OTHER]).first(log_posteriors)
            rows = release.ask(PushData(sent))
            stars = read_own_stars(graph.adjacency, self.leaves, public_key(session, "leaves"))
            inputs = StarInputs.of(log_posteriors, rows, push.sigma, sent, stars, push.degree_budget)
        with session.stage("classifier"):
            proba = self._trained(module, inputs, graph, labelled, release, session)
        accuracy = dict[str, float]()
        if self.terms.private_metrics:
            accuracy = released_accuracies(release, proba.argmax(dim=1), graph)
        release.close()
        weights = {name: value.detach().clone() for name, value in module.state_dict().items()}
        return Outcome(
            trained=TrainedStars(encoder=encoder, weights=weights, module=module),
            proba=proba,
            released={"rows": rows.to(torch.float32)},
            private_accuracy=accuracy,
        )

    def restore(self, state: State, sizes: PublicSizes, released: State) -> TrainedStars:
        """Return the fit with these weights, and the module where its code is known here."""
        if state["encoder"].shape != (sizes.width + 1, sizes.classes):
            raise ArtifactError(
                f"the model's weights are not those of {sizes.width} features and {sizes.classes} classes; "
                "take them from the original run"
            )
        weights, encoder = weights_of(state), NoisySoftmax.restore(state)
        if not is_known(self.module):
            return TrainedStars(encoder=encoder, weights=weights)
        module = self.built(sizes.classes, PublicStreams(0))
        module.load_state_dict(weights)
        return TrainedStars(encoder=encoder, weights=weights, module=module)

    def _trained(
        self,
        module: nn.Module,
        inputs: StarInputs,
        graph: Graph,
        labelled: Tensor,
        release: Release,
        session: Session,
    ) -> Tensor:
        """Train the module on the stars of those who teach, and return everybody's probabilities."""
        nodes = labelled.nonzero()[:, 0]
        started, device = self._started(module, graph.num_classes), session.private_device
        route, code, dtype = route_of(started, inputs.columns, graph.num_classes, device)
        labels = graph.y[nodes]

        def stars(index: Tensor) -> tuple[Tensor, Tensor]:
            return inputs.of_nodes(nodes[index])

        training = self.asked(self.sizes_of(graph)).training
        bound = (*(part[nodes] for part in (inputs.roots, inputs.written)), inputs.rows)
        listed = (inputs.stars.leaves[nodes], inputs.stars.lengths[nodes])
        fit_sums(
            _STAGE,
            module,
            lambda: StarSum(started, stars, labels, inputs.width, route=route, dtype=dtype, device=device),
            (*bound, *listed, labels, code),
            training,
            release,
            session,
        )
        logits = star_logits(
            started,
            inputs.of_nodes,
            graph.num_nodes,
            inputs.width,
            graph.num_classes,
            route=route,
            device=device,
        )
        return logits.softmax(dim=1).to(torch.float32)

    def _started(self, module: nn.Module, classes: int) -> nn.Module:
        """Return the module, with what the public codes say added to its logits if it starts there."""
        return FromCodes(module, classes) if self.from_codes else module

    def _widths(self, classes: int) -> tuple[int, int]:
        """Return the numbers that a node of a star has, and the classes."""
        return 2 * classes, classes
