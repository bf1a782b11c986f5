"""The words of tables and plots. Imports no TensorFlow: rendering needs none."""

from __future__ import absolute_import, division, print_function

import collections

WORKLOADS = {
    "memory_bound": ("Memory-bound", (
        "Five dense layers, four of them 2048 x 2048; micro-batches of 4, K = 8, Adam. Adding a gradient to a sum moves\n"
        "about as many bytes as computing it.")),
    "compute_bound": ("Compute-bound", "The same layers with micro-batches of 256, K = 8, Adam."),
    "many_tensors": ("Many small tensors", (
        "400 variables of 32 x 32, whose gradients cost next to nothing; K = 8, SGD. In the other tables\n"
        "the gradients are there already, and only adding them up is timed, beside the barest loop that does it; of ten\n"
        "variables too, where it shows what else a call does.")),
    "sparse": ("Sparse", (
        "A table of 1,000,000 x 64, micro-batches that touch 1,000 rows, K = 8. The last tables follow the table's height.\n"
        "There the optimizer is timed by itself too, on the rows of a whole cycle: where it goes over the whole table, so\n"
        "does every cycle.")),
    "memory": ("Memory", (
        "Sixteen dense layers of 2048 x 2048 with micro-batches of 4 and Adam, each run in a process of its own: the peak of\n"
        "its resident memory over that of the run without accumulation, in bytes per parameter. A float32 sum is 4. What is\n"
        "freed goes back to the system at once (MALLOC_MMAP_THRESHOLD_, TF_ENABLE_ONEDNN_OPTS=0), or the peaks would be the\n"
        "allocator's: oneDNN's takes twice as much from the system each time, and writes an index of 1/32 of that. The last\n"
        "table has narrower and wider layers too: the graph of each takes the same.")),
    "transformer": ("Transformer blocks", (
        "Four blocks of width 256 on sequences of 128; micro-batches of 4, K = 8, Adam.")),
    "tracing": ("Tracing", (
        "The dense layers at width 32, Adam: the time from nothing to the first update, traces included, and the nodes of\n"
        "all graphs that were traced for it. A loop of calls traces once. microbatch_gradients has up to eight slices in its\n"
        "graph, and a loop for more.")),
}

CONTENDERS = collections.OrderedDict([
    ("plain", "no accumulation: K gradients, one update"),
    ("plain_legacy", "the same with the legacy optimizer"),
    ("bare_loop", "a bare loop of assign and assign_add"),
    ("floor", "the floor: bare assign and assign_add, a trace each"),
    ("optimizer", "the optimizer alone"),
    ("step", "gradaccum_compat: step"),
    ("accumulate_apply", "gradaccum_compat: accumulate, apply"),
    ("accumulate", "gradaccum_compat: accumulate"),
    ("microbatch_gradients", "gradaccum_compat: microbatch_gradients"),
    ("python_list", "a list that is added up in Python"),
    ("recipe", "variables, assign_add, zero fill: the usual recipe"),
    ("keras", "Keras 3: gradient_accumulation_steps"),
    ("gradient_accumulator", "gradient-accumulator from PyPI"),
    ("transformers", "transformers 4: GradientAccumulator"),
    ("horovod", "Horovod: backward_passes_per_step, one worker"),
])
