"""Attacks: what an attacker gets out of a fitted model, measured on data whose secrets are known.

Everything here reads the true edges or the true membership to score itself, and is internal.
"""

from graphveil.lab.attacks.correlations import correlations
from graphveil.lab.attacks.discriminator import Discriminator, fit_discriminator
from graphveil.lab.attacks.ensemble import Ensemble, bayes_scores, fit_ensemble, lira_scores
from graphveil.lab.attacks.influence import Predict, influences, link_scores
from graphveil.lab.attacks.knowledge import AdversaryKnowledge, full_knowledge, public_knowledge
from graphveil.lab.attacks.link import LinkReport, LinkSettings, attack_links, attack_predict
from graphveil.lab.attacks.membership import (
    MembershipReport,
    MembershipSettings,
    attack_membership,
    shadow_graph,
)
from graphveil.lab.attacks.pairs import Pairs, draw_pairs
from graphveil.lab.attacks.poisoning import PoisoningReport, attack_collection
from graphveil.lab.attacks.reconstruction import ReconstructionReport, attack_records, quality
from graphveil.lab.attacks.roc import MeanInterval, RocCurve, roc_auc
from graphveil.lab.attacks.secret_edges import SecretEdges
from graphveil.lab.attacks.serving import ServedModel, network_predict, serve_model
from graphveil.lab.attacks.single_pair import (
    PairTest,
    largest_advantage,
    pair_scores,
    single_pair,
    toggle_edge,
)
from graphveil.lab.attacks.supervised import supervised_scores
from graphveil.lab.attacks.theoretical_bounds import pure_advantage, pure_auc, theoretical_bound_of
from graphveil.lab.attacks.whitebox import exact_influences

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
