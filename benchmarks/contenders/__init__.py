"""What is compared: ours, and what a user would pick instead. Each makes a function that runs one
cycle.

Each is written the way its documentation, or the usual advice, has it. A cycle is K micro-batches
and one update, and has ended when it returns.
"""

from __future__ import absolute_import, division, print_function

# In the order of the tables.
# isort: off
from benchmarks.contenders import baseline, ours, by_hand, packages  # noqa: F401

# isort: on
from benchmarks.contenders.registry import cycles, make, names  # noqa: F401

WITH_FLOOR = names()
#: Without the floor, which takes dense gradients alone.
EVERYONE = tuple(name for name in WITH_FLOOR if name != "floor")
