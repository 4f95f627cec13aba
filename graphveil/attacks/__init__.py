"""Attacks: what an attacker learns from a fitted model, measured on data with known secrets.

The attacks read the true edges or the true membership for scoring. All results are internal.
"""

from graphveil.attacks.discriminator import Discriminator, fit_discriminator
from graphveil.attacks.influence import Predict, exact_influences, influences, link_scores
from graphveil.attacks.linkteller import (
    AdversaryKnowledge,
    LinkReport,
    LinkSettings,
    attack_links,
    attack_predict,
    correlations,
    full_knowledge,
    public_knowledge,
    supervised_scores,
)
from graphveil.attacks.membership import (
    Ensemble,
    MembershipReport,
    MembershipSettings,
    attack_membership,
    bayes_scores,
    fit_ensemble,
    lira_scores,
    shadow_graph,
)
from graphveil.attacks.pairs import (
    Pairs,
    PairTest,
    SecretEdges,
    draw_pairs,
    pair_scores,
    single_pair,
    toggle_edge,
)
from graphveil.attacks.poisoning import PoisoningReport, attack_collection
from graphveil.attacks.products import product_scores
from graphveil.attacks.reconstruction import ReconstructionReport, attack_records, quality
from graphveil.attacks.roc import (
    MeanInterval,
    RocCurve,
    largest_advantage,
    pure_advantage,
    pure_auc,
    roc_auc,
    theoretical_bound_of,
)
from graphveil.attacks.serving import ServedModel, network_predict, serve_model

__all__ = [
    "AdversaryKnowledge",
    "Discriminator",
    "Ensemble",
    "LinkReport",
    "LinkSettings",
    "MeanInterval",
    "MembershipReport",
    "MembershipSettings",
    "PairTest",
    "Pairs",
    "PoisoningReport",
    "Predict",
    "ReconstructionReport",
    "RocCurve",
    "SecretEdges",
    "ServedModel",
    "attack_collection",
    "attack_links",
    "attack_membership",
    "attack_predict",
    "attack_records",
    "bayes_scores",
    "correlations",
    "draw_pairs",
    "exact_influences",
    "fit_discriminator",
    "fit_ensemble",
    "full_knowledge",
    "influences",
    "largest_advantage",
    "link_scores",
    "lira_scores",
    "network_predict",
    "pair_scores",
    "product_scores",
    "public_knowledge",
    "pure_advantage",
    "pure_auc",
    "quality",
    "roc_auc",
    "serve_model",
    "shadow_graph",
    "single_pair",
    "supervised_scores",
    "theoretical_bound_of",
    "toggle_edge",
]
