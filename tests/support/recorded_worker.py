"""A worker as worker.py is, which is recorded and follows.

    recorded_worker.py OUT RECORD FOLLOWED

Writes the weights that it ends with.
"""

from __future__ import absolute_import, division, print_function

import json
import os
import sys

import tensorflow as tf

import gradaccum_compat as ga
from support import worker

STORY = "uneven shares"


def main(out, record, follow):
    if not tf.executing_eagerly():
        tf.compat.v1.enable_eager_execution()
    strategy = worker.make_strategy()
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    with ga.upgrade.record(record, follow=follow):
        weights = worker.train(strategy, index, STORY)
    with open(out, "w") as result:
        json.dump(weights, result)


if __name__ == "__main__":
    main(*sys.argv[1:])
