"""Table 3 of GAP: how well a shadow model tells who was trained on."""

from graphveil.lab.papers.published import gap as published
from graphveil.lab.papers.target import Axis, ReproductionTarget, TargetLine
from graphveil.lab.papers.targets.gap import BERKELEY, DEVIATIONS, NEEDS, NODE_DELTA, SOURCE, STAND_INS

INFINITE = float("inf")
_AT_NODES = {"unit": "node-record", "delta": NODE_DELTA}
TABLE3 = ReproductionTarget(
    name="gap:table3",
    title="Membership inference against GAP, SAGE and MLP at node level",
    source=f"{SOURCE}, Table 3",
    lines=(
        TargetLine(
            name="GAP-NDP",
            method="gap",
            measure="membership",
            parameters=_AT_NODES,
            paper={"out_degree_bound": 100},
            strict={"out_degree_bound": 20},
            free={"unit": "none"},
        ),
        TargetLine(
            name="SAGE-NDP",
            method="sage",
            measure="membership",
            parameters={**_AT_NODES, "out_degree_bound": 100},
            free={"unit": "none"},
        ),
        TargetLine(
            name="MLP-DP",
            method="mlp",
            measure="membership",
            parameters=_AT_NODES,
            free={"unit": "none", "tuned": False},
        ),
    ),
    axis=Axis(
        label="epsilon",
        keyword="epsilon",
        values=published.TABLE3_EPSILONS,
        quick=(1.0, 16.0, INFINITE),
    ),
    datasets=(BERKELEY,),
    stand_ins=STAND_INS,
    published=published.TABLE3,
    metrics={"auc": "AUC of the attack, %", "test": "test accuracy of the target, %"},
    needs=NEEDS,
    deviations=(
        *DEVIATIONS[:3],
        "GAP has two hops and D = 100, where the paper has the best of its Figure 6",
        "the attack model learns from the shadow model alone and is tried on the target, without the "
        "nodes of the shadow graph, as the paper's text has it; its scripts try it on the shadow model",
    ),
    minutes=(12, 6, 5),
)
TARGETS = {TABLE3.name: TABLE3}
