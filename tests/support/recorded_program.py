"""A program as users have them, run with and without `gradaccum-compat record`.

    recorded_program.py UPDATES [kill | full | modules]

kill: dies without a word after them. full: finds that the disk takes 20 kB a file. modules: prints
what is imported.
"""

from __future__ import absolute_import, division, print_function

import os
import signal
import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga

tf.compat.v1.enable_eager_execution()


def main(updates, what=None):
    if what == "full":
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
    variable = tf.Variable(np.ones([10, 10], np.float32))
    accumulator = ga.Accumulator(tf.compat.v1.train.AdamOptimizer(0.1), [variable], steps=2)
    step = tf.function(lambda factor: accumulator.step([factor * tf.ones([10, 10])]))
    for number in range(2 * updates):
        step(tf.constant(float(number)))
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "modules":
        ops = [
            op.type for op in step.get_concrete_function(tf.constant(1.0)).graph.get_operations()
        ]
        print(
            [each for each in sys.modules if each.startswith("gradaccum_compat.upgrade")],
            [each for each in ops if "PyFunc" in each],
        )
    print("trained", variable.numpy()[0, 0])


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
