"""Read parquet, CSV and frames as checked columns, and encode columns as features.

Nothing here imports torch, so that a table is validated within a second.
"""

from graphveil.data.tables.encoding import matrix as matrix
from graphveil.data.tables.files import NULL_VALUES as NULL_VALUES
from graphveil.data.tables.files import RELEASED as RELEASED
from graphveil.data.tables.files import Column as Column
from graphveil.data.tables.files import Table as Table
from graphveil.data.tables.files import check_output as check_output
from graphveil.data.tables.files import column as column
from graphveil.data.tables.files import encode as encode
from graphveil.data.tables.files import is_csv as is_csv
from graphveil.data.tables.files import released as released
from graphveil.data.tables.files import too_long as too_long
from graphveil.data.tables.files import with_record as with_record
from graphveil.data.tables.files import without_formulas as without_formulas
from graphveil.data.tables.files import write as write
from graphveil.data.tables.ids import id_array as id_array
from graphveil.data.tables.ids import keys as keys
from graphveil.data.tables.ids import read_ids as read_ids
from graphveil.data.tables.ids import reject_weights as reject_weights
