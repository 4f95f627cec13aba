"""Attacks: what an attacker learns from a fitted model, measured on data with known secrets.

The attacks read the true edges or the true membership for scoring. All results are internal.
"""

from graphveil.attacks.influence import Predict as Predict
from graphveil.attacks.influence import ServedModel as ServedModel
from graphveil.attacks.influence import exact_influences as exact_influences
from graphveil.attacks.influence import influences as influences
from graphveil.attacks.influence import link_scores as link_scores
from graphveil.attacks.influence import network_predict as network_predict
from graphveil.attacks.influence import serve_model as serve_model
from graphveil.attacks.linkteller import AdversaryKnowledge as AdversaryKnowledge
from graphveil.attacks.linkteller import LinkReport as LinkReport
from graphveil.attacks.linkteller import LinkSettings as LinkSettings
from graphveil.attacks.linkteller import attack_links as attack_links
from graphveil.attacks.linkteller import attack_predict as attack_predict
from graphveil.attacks.linkteller import correlations as correlations
from graphveil.attacks.linkteller import full_knowledge as full_knowledge
from graphveil.attacks.linkteller import product_scores as product_scores
from graphveil.attacks.linkteller import public_knowledge as public_knowledge
from graphveil.attacks.linkteller import supervised_scores as supervised_scores
from graphveil.attacks.membership import Discriminator as Discriminator
from graphveil.attacks.membership import Ensemble as Ensemble
from graphveil.attacks.membership import MembershipReport as MembershipReport
from graphveil.attacks.membership import MembershipSettings as MembershipSettings
from graphveil.attacks.membership import attack_membership as attack_membership
from graphveil.attacks.membership import bayes_scores as bayes_scores
from graphveil.attacks.membership import fit_discriminator as fit_discriminator
from graphveil.attacks.membership import fit_ensemble as fit_ensemble
from graphveil.attacks.membership import lira_scores as lira_scores
from graphveil.attacks.membership import shadow_graph as shadow_graph
from graphveil.attacks.pairs import Pairs as Pairs
from graphveil.attacks.pairs import draw_pairs as draw_pairs
from graphveil.attacks.pairs import pair_scores as pair_scores
from graphveil.attacks.pairs import toggle_edge as toggle_edge
from graphveil.attacks.poisoning import PoisoningReport as PoisoningReport
from graphveil.attacks.poisoning import attack_collection as attack_collection
from graphveil.attacks.reconstruction import ReconstructionReport as ReconstructionReport
from graphveil.attacks.reconstruction import attack_records as attack_records
from graphveil.attacks.reconstruction import quality as quality
from graphveil.attacks.roc import RocCurve as RocCurve
from graphveil.attacks.roc import pure_advantage as pure_advantage
from graphveil.attacks.roc import pure_auc as pure_auc
from graphveil.attacks.roc import roc_auc as roc_auc
from graphveil.attacks.roc import theoretical_bound_of as theoretical_bound_of
from graphveil.audit.secret_edges import SecretEdges as SecretEdges
