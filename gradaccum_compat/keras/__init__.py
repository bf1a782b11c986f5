"""For models that are trained by fit(): callbacks that go with a wrapped optimizer, and
BatchNormalization."""

from __future__ import absolute_import, division, print_function

from gradaccum_compat.keras.batch_normalization import (
    CycleBatchNormalization,
    check_batch_normalization,
)
from gradaccum_compat.keras.batch_sizes import BatchSizes
from gradaccum_compat.keras.exact_cycles import ExactCycles
from gradaccum_compat.keras.flush_partial_cycle import FlushPartialCycle
from gradaccum_compat.keras.statistics import Statistics

__all__ = [
    "BatchSizes",
    "CycleBatchNormalization",
    "ExactCycles",
    "FlushPartialCycle",
    "Statistics",
    "check_batch_normalization",
]
