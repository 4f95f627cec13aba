"""What is loaded before workers of tests start, as copies of one process that has nothing but this in it."""

from quick_charts import QuickCharts

import graphveil.estimators.gap.method
import graphveil.estimators.mlp
import graphveil.runs.sweep  # noqa: F401

QuickCharts().install()
