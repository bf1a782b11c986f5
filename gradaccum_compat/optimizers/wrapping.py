"""wrap_optimizer: an optimizer that accumulates by itself, for compile(), fit() and minimize()."""

from __future__ import absolute_import, division, print_function

from gradaccum_compat import _checks, _options, errors
from gradaccum_compat.optimizers import keras_2_11, keras_3, keras_v2, loss_scale, v1_train, wrapped

GENERATIONS = (keras_3, keras_2_11, keras_v2, v1_train)


def wrap_optimizer(optimizer, steps=4, loss_reduction="global_mean", weight=1.0, **options):
    """Returns an optimizer that moves once in `steps` calls, with the gradients of all of them.

    It is an instance of the optimizer's own class and shares its attributes, so that learning rates, schedules
    and callbacks work as before. Its iterations count updates.

    Example:
        >>> model.compile(optimizer=ga.wrap_optimizer(tf.keras.optimizers.Adam(), steps=4))   # doctest: +SKIP

    Args:
        optimizer: of tf.compat.v1.train, Keras 2 (either generation), Keras 3 or tf_keras.
        steps: micro-batches of a cycle.
        loss_reduction: as for Accumulator; the default is what Keras and Estimator hand an optimizer.
        weight: of each micro-batch: a number, a scalar tensor, or a function that returns one.
        **options: the other options of Accumulator; and, for an optimizer of tf.compat.v1.train, global_step, which
            says what the global step counts: "updates" or "micro_batches".

    Returns:
        The wrapped optimizer, with its Accumulator as `accumulator`.

    Raises:
        GradAccumError: one of its subclasses, for an argument that cannot be used.
    """
    _checks.optimizer(optimizer)
    _options.has_steps(steps)
    if wrapped.is_wrapped(loss_scale.inner(optimizer)):
        raise errors.OptimizerError(
            "An optimizer is wrapped once.", "one that accumulates already", "Pass the plain optimizer.")
    generation = next((each for each in GENERATIONS if each.serves(optimizer)), None)
    if generation is None:
        raise errors.OptimizerError(
            "wrap_optimizer takes an optimizer of tf.compat.v1.train, tf.keras, Keras 3 or tf_keras.",
            type(optimizer).__name__, "Use Accumulator, which takes anything that has apply_gradients.")
    if "global_step" in options and generation is not v1_train:
        raise errors.OptionError(
            "global_step is for optimizers of tf.compat.v1.train.", type(optimizer).__name__,
            "Leave it out: its iterations count updates.")
    return generation.wrap(optimizer, weight, dict(options, steps=steps, loss_reduction=loss_reduction))


def unwrap_optimizer(optimizer):
    """Returns the plain optimizer, with the state that it has: for serving, or to go on without accumulation."""
    if loss_scale.serves(optimizer):
        return loss_scale.around(optimizer, unwrap_optimizer)
    if not wrapped.is_wrapped(optimizer):
        raise errors.OptimizerError(
            "unwrap_optimizer takes what wrap_optimizer returned.", type(optimizer).__name__,
            "Use this optimizer as it is: it does not accumulate.")
    return optimizer._accumulation.hand_over.plain
