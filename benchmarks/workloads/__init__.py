"""The workloads, one module each with run(settings), which returns sections.

A section is a dictionary: its title, the kind of its rows (see render.py), and the rows.
"""

from __future__ import absolute_import, division, print_function

import collections
import importlib

NAMES = (
    "memory_bound",
    "compute_bound",
    "many_tensors",
    "sparse",
    "memory",
    "transformer",
    "fit",
    "tracing",
    "growth",
    "recording",
    "statistics",
)

#: In how many processes a workload is measured, if more than one: where the largest tensors lie in
#: memory is another matter in each, and moves each contender by up to a tenth of its time. And
#: whether TensorFlow's threads stay on one
#: processor, beside the rows that it has in its cache: a sparse cycle takes 4.5 ms in some, and 7
#:     ms in others.
PROCESSES = {"memory_bound": 5, "sparse": 3}

#: Into how many parts a workload is cut, if more than one, for a process each: TensorFlow's
#: allocator keeps what the tables of a part took, in pieces that do not fit the next one's.
PARTS = {"sparse": 4}

#: What a workload is told: how often to time, whether to be small, for a look and for tests, and
#: which part to run, None for all of them.
Settings = collections.namedtuple("Settings", "rounds quick part")


def load(name):
    return importlib.import_module("benchmarks.workloads." + name)
