"""wrap_optimizer: an optimizer that accumulates by itself, for compile(), fit() and minimize()."""

from __future__ import absolute_import, division, print_function

from gradaccum_compat import _loading, errors
from gradaccum_compat._loading import AccumulatedOptimizer  # noqa: F401, for Keras to import
from gradaccum_compat.core import _arguments
from gradaccum_compat.wrap import (
    keras_2_11,
    keras_3,
    keras_v2,
    loss_scale,
    saved,
    v1_train,
    wrapped,
)

_loading.register_with_each_keras()

GENERATIONS = (keras_3, keras_2_11, keras_v2, v1_train)


def wrap_optimizer(optimizer, steps, loss_reduction="global_mean", weight=1.0, **options):
    """Returns an optimizer that updates once in `steps` calls, with the gradients of all of them.

    It is an instance of the optimizer's own class and reads and sets its attributes, so that
    learning rates, schedules and callbacks work as before. Its iterations count updates. The
    optimizer itself stays as it is.

    Example:
        >>> model.compile(ga.wrap_optimizer(tf.keras.optimizers.Adam(), steps=4), loss="mse")

    Args:
        optimizer: of tf.compat.v1.train, Keras 2 (either generation), Keras 3 or tf_keras.
        steps: micro-batches of a cycle: an integer, or a schedule by updates as for Accumulator. A
            saved model does not hold a function: wrap the loaded optimizer with it once more.
        loss_reduction: as for Accumulator; the default is what Keras and Estimator hand an
            optimizer.
        weight: of each micro-batch: a number, a scalar tensor, or a function that returns one.
        **options: the other options of Accumulator; and, for an optimizer of tf.compat.v1.train,
            global_step, which says what the global step counts: "updates" or "micro_batches".

    Returns:
        The wrapped optimizer, with its Accumulator as `accumulator`.

    Raises:
        GradAccumError: one of its subclasses, for an argument that cannot be used.
    """
    inner = loss_scale.inner(optimizer)
    if wrapped.is_wrapped(inner):
        if isinstance(inner, saved.Saved) and saved.lacks_steps(inner):
            options = dict(options, loss_reduction=loss_reduction, weight=weight)
            return _with_steps(optimizer, steps, options)
        raise errors.OptimizerError(
            "An optimizer is wrapped once.",
            "one that accumulates already",
            "Pass the plain optimizer.",
        )
    _arguments.optimizer(optimizer)
    _loading.register_with_each_keras()  # with a tf_keras that was imported meanwhile
    if steps is None:
        raise errors.OptionError(
            "A wrapped optimizer knows how many micro-batches make a cycle.",
            "steps=None",
            "Pass steps=4, say; or use Accumulator, and call apply() where a cycle ends.",
        )
    generation = next((each for each in GENERATIONS if each.serves(optimizer)), None)
    if generation is None:
        raise errors.OptimizerError(
            "wrap_optimizer takes an optimizer of tf.compat.v1.train, tf.keras, Keras 3 or"
            " tf_keras.",
            type(optimizer).__name__,
            "Use Accumulator, which takes anything that has apply_gradients.",
        )
    if "global_step" in options and generation is not v1_train:
        raise errors.OptionError(
            "global_step is for optimizers of tf.compat.v1.train.",
            type(optimizer).__name__,
            "Leave it out: its iterations count updates.",
        )
    return generation.wrap(
        optimizer, weight, dict(options, steps=steps, loss_reduction=loss_reduction)
    )


def _with_steps(optimizer, steps, options):
    """Wraps what was loaded without its function of steps, and goes on with its cycle."""
    values = loss_scale.inner(optimizer)._accumulation.values()
    made = wrap_optimizer(unwrap_optimizer(optimizer), steps, **options)
    loss_scale.inner(made)._accumulation.begin_with(values)
    return made


def unwrap_optimizer(optimizer):
    """Returns the plain optimizer, with the state that it has: for serving, or to go on without
    accumulation.

    Example:
        >>> model.compile(ga.unwrap_optimizer(model.optimizer), loss="mse")

    Args:
        optimizer: what wrap_optimizer returned, or a loss-scale optimizer around it.

    Returns:
        The plain optimizer, or the loss-scale optimizer around it.

    Raises:
        OptimizerError: an optimizer that does not accumulate.
    """
    if loss_scale.serves(optimizer):
        return loss_scale.around(optimizer, unwrap_optimizer)
    if not wrapped.is_wrapped(optimizer):
        raise errors.OptimizerError(
            "unwrap_optimizer takes what wrap_optimizer returned.",
            type(optimizer).__name__,
            "Use this optimizer as it is: it does not accumulate.",
        )
    return optimizer._accumulation.hand_over.plain
