"""Privacy units, privacy events, accounting, and guarantees with their words."""

from graphveil.core.accounting.accountant import Curve as Curve
from graphveil.core.accounting.accountant import privacy_curve as privacy_curve
from graphveil.core.accounting.gaussian import auto_delta as auto_delta
from graphveil.core.accounting.gaussian import calibrate_mu as calibrate_mu
from graphveil.core.accounting.gaussian import check_delta as check_delta
from graphveil.core.events import ApproximateDP as ApproximateDP
from graphveil.core.events import ByGroup as ByGroup
from graphveil.core.events import Composed as Composed
from graphveil.core.events import Event as Event
from graphveil.core.events import Gaussian as Gaussian
from graphveil.core.events import LocalReport as LocalReport
from graphveil.core.events import PairwiseGaussian as PairwiseGaussian
from graphveil.core.events import PoissonGaussian as PoissonGaussian
from graphveil.core.events import PoissonRoots as PoissonRoots
from graphveil.core.events import PureDP as PureDP
from graphveil.core.events import compose as compose
from graphveil.core.events import within_partition as within_partition
from graphveil.core.guarantee import Guarantee as Guarantee
from graphveil.core.unit import DirectedEdge as DirectedEdge
from graphveil.core.unit import EdgeSubset as EdgeSubset
from graphveil.core.unit import LocalAttributes as LocalAttributes
from graphveil.core.unit import NodeBoundedDegree as NodeBoundedDegree
from graphveil.core.unit import NodeRecord as NodeRecord
from graphveil.core.unit import NodeUnit as NodeUnit
from graphveil.core.unit import NoUnit as NoUnit
from graphveil.core.unit import Person as Person
from graphveil.core.unit import Row as Row
from graphveil.core.unit import UndirectedEdge as UndirectedEdge
from graphveil.core.unit import Unit as Unit
from graphveil.core.unit import parse_unit as parse_unit
from graphveil.privacy import statements

Guarantee.words = statements  # the core has no sentences
