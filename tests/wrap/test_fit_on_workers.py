"""fit() on two workers, as real processes, ends with the weights of the big batch on one device."""

from __future__ import absolute_import, division, print_function

import pytest
import tensorflow as tf

from support import fitting, processes


def supported(generation):
    return not fitting.is_keras_3(generation) and hasattr(
        tf.distribute.Strategy, "distribute_datasets_from_function"
    )


@pytest.mark.parametrize(
    "generation",
    fitting.having(supported, "fit() on several workers came with TF 2.4, and Keras 3 has none"),
)
def test_workers_end_with_the_weights_of_the_big_batch(generation, tmpdir):
    first, second = processes.run(2, tmpdir, "fit_worker", [generation.family])
    assert first == second, "the workers have come apart"
    model, _ = fitting.compiled(generation, lambda: generation.optimizers.Adam(0.1), fitting.linear)
    fitting.fit(model, fitting.BIG)
    fitting.check_same(first, model.get_weights())
