"""The words of tables and plots. Imports no TensorFlow: rendering needs none."""

from __future__ import absolute_import, division, print_function

import collections

WORKLOADS = {
    "memory_bound": (
        "Memory-bound",
        (
            "Five dense layers, four of them 2048 x 2048; micro-batches of 4, K = 8, Adam. Adding a"
            " gradient to a sum moves\nabout as many bytes as computing it."
        ),
    ),
    "compute_bound": ("Compute-bound", "The same layers with micro-batches of 256, K = 8, Adam."),
    "many_tensors": (
        "Many small tensors",
        (
            "400 variables of 32 x 32, whose gradients cost next to nothing; K = 8, SGD. In the"
            " other tables\nthe gradients are there already, and only adding them up is timed,"
            " beside the barest loop that does it; of ten\nvariables too, where it shows what else"
            " a call does."
        ),
    ),
    "sparse": (
        "Sparse",
        (
            "A table of 1,000,000 x 64, micro-batches that touch 1,000 rows, K = 8. The last tables"
            " follow the table's height.\nThere the optimizer is timed by itself too, on the rows"
            " of a whole cycle: where it goes over the whole table, so\ndoes every cycle."
        ),
    ),
    "memory": (
        "Memory",
        (
            "Sixteen dense layers of 2048 x 2048 with micro-batches of 4 and Adam, each run in a"
            " process of its own: the peak of\nits resident memory over that of the run without"
            " accumulation, in bytes per parameter. A float32 sum is 4. What is\nfreed goes back to"
            " the system at once (MALLOC_MMAP_THRESHOLD_, TF_ENABLE_ONEDNN_OPTS=0), or the peaks"
            " would be the\nallocator's: oneDNN's takes twice as much from the system each time,"
            " and writes an index of 1/32 of that. The last\ntable has narrower and wider layers"
            " too: the graph of each takes the same."
        ),
    ),
    "transformer": (
        "Transformer blocks",
        "Four blocks of width 256 on sequences of 128; micro-batches of 4, K = 8, Adam.",
    ),
    "fit": (
        "Keras's fit",
        (
            "A stack of transformer blocks of the size of a small BERT, trained by fit() with Adam."
            " Plain training updates after\neach micro-batch, the others after every eighth of the"
            " same micro-batches: less than one means that accumulating\nis cheaper than updating."
        ),
    ),
    "growth": (
        "Growth",
        (
            "How a cycle grows: in eager code with the number of variables of 8 x 8, whose"
            " gradients are there already; in a\ntf.function with the parameters of one variable;"
            " and with K. On 2.15, 500 million parameters\ndo not fit into 24 GB, for both ways and"
            " the flags of a vector's rows, which are as large as its sum."
        ),
    ),
    "tracing": (
        "Tracing",
        (
            "The dense layers at width 32, Adam: the time from nothing to the first update, traces"
            " included, and the nodes of\nall graphs that were traced for it. A loop of calls"
            " traces once. microbatch_gradients has up to eight slices in its\ngraph, and a loop"
            " for more."
        ),
    ),
    "recording": (
        "Recording",
        (
            "The transformer blocks, recorded with ga.upgrade.record and not, between snapshots. A"
            " line takes 70 kB here, and a\nsnapshot, with the weights before and after, both slots"
            " and the gradient, 20 bytes per parameter."
        ),
    ),
    "statistics": (
        "Statistics",
        (
            "The dense layers, where reading each gradient once more is a large part of the work,"
            " and the transformer blocks,\nwith statistics=True and without."
        ),
    ),
}

CONTENDERS = collections.OrderedDict(
    [
        ("plain", "no accumulation: K gradients, one update"),
        ("plain_legacy", "the same with the legacy optimizer"),
        ("bare_loop", "a bare loop of assign and assign_add"),
        ("floor", "the floor: bare assign and assign_add, a trace each"),
        ("optimizer", "the optimizer alone"),
        ("step", "gradaccum_compat: step"),
        ("recorded", "gradaccum_compat: step, recorded"),
        ("statistics", "gradaccum_compat: step, statistics=True"),
        ("accumulate_apply", "gradaccum_compat: accumulate, apply"),
        ("accumulate", "gradaccum_compat: accumulate"),
        ("microbatch_gradients", "gradaccum_compat: microbatch_gradients"),
        ("python_list", "a list that is added up in Python"),
        ("recipe", "variables, assign_add, zero fill: the usual recipe"),
        ("keras", "Keras 3: gradient_accumulation_steps"),
        ("fit_plain", "fit: no accumulation, an update for each micro-batch"),
        ("fit_wrapped", "gradaccum_compat: fit with wrap_optimizer"),
        ("fit_keras", "fit with Keras 3's gradient_accumulation_steps"),
        ("gradient_accumulator", "gradient-accumulator from PyPI"),
        ("transformers", "transformers 4: GradientAccumulator"),
        ("horovod", "Horovod: backward_passes_per_step, one worker"),
    ]
)
