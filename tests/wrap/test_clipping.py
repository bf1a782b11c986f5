"""The optimizer's own clipping acts once, on the accumulated gradient."""

from __future__ import absolute_import, division, print_function

import pytest
import tensorflow as tf

from support import fitting

CLIPPING = ["clipnorm", "clipvalue", "global_clipnorm"]
LIMIT = 0.1


def clipping(generation, option):
    """A function that makes an optimizer that clips far below the gradients of micro-batches, or a
    skip."""

    def make():
        return generation.optimizers.SGD(1.0, momentum=0.5, **{option: LIMIT})

    try:
        make()
    except (TypeError, ValueError):
        pytest.skip("this Keras has no {}".format(option))
    return make


@pytest.mark.parametrize("option", CLIPPING)
def test_in_fit(generation, option):
    fitting.check_fit(generation, clipping(generation, option))


@pytest.mark.parametrize("option", CLIPPING)
def test_in_a_loop_with_a_tape(generation, option):
    """As the plain optimizer: up to TF 2.3 apply_gradients does not clip."""
    ends = []
    make = clipping(generation, option)
    for size, maker in (
        (fitting.BIG, make),
        (fitting.BIG // fitting.STEPS, fitting.accumulating(make)),
    ):
        model, optimizer = fitting.compiled(generation, maker, fitting.linear)
        x, y = fitting.data()
        for start in range(0, len(x), size):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(
                    tf.square(model(tf.constant(x[start : start + size])) - y[start : start + size])
                )
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        ends.append(model.get_weights())
    fitting.check_same(*ends)


def clips_on_replicas(generation):
    """Up to TF 2.3 a strategy's fit() has the gradients reduced first, and refuses to clip them or
    does not."""
    return not fitting.is_optimizer_v2(generation) or hasattr(
        generation.optimizers.SGD, "_transform_gradients"
    )


@pytest.mark.parametrize(
    "generation", fitting.having(clips_on_replicas, "up to TF 2.3 Keras does not clip on replicas")
)
@pytest.mark.parametrize("option", CLIPPING)
def test_on_replicas_after_the_reduction(generation, option):
    fitting.check_fit(generation, clipping(generation, option), fitting.linear, replicated=True)
