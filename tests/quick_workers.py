"""What is loaded before workers of tests start, as copies of one process that has nothing but this in it."""

import torch._dynamo  # noqa: F401  (an optimizer imports it as it starts)
from quick_charts import QuickCharts

import graphveil.estimators.gap.method
import graphveil.estimators.mlp
import graphveil.runs.sweep  # noqa: F401

QuickCharts().install()
