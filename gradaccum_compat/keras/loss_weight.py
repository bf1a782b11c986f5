"""LossWeight: the weight of the micro-batch at hand, from where Keras computes its loss."""

from __future__ import absolute_import, division, print_function

import warnings

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends.base import no_autograph
from gradaccum_compat.keras import loss_divisor

#: How Keras calls the two methods that compute a loss.
_ARGUMENTS = {
    "compute_loss": ("x", "y", "y_pred", "sample_weight"),
    "compiled_loss": ("y", "y_pred", "sample_weight"),
}


class LossWeight(object):
    """The weight function of a wrapped optimizer while ExactCycles is in fit().

    It follows the model's compute_loss (Keras 3, and Keras 2 from TensorFlow 2.9 on) and
    compiled_loss (Keras 2), notes in each trace what the loss is a mean over, and the optimizer
    reads that in the same trace.

    Each replica weighs its own share, times the number of replicas, so that nothing is reduced
    before the cycle ends: with "global_mean" the accumulator divides the sum of weight * gradient
    by the mean of the replicas' total weights, and each gradient is already divided by the number
    of replicas. That is the mean over all examples, where replicas are uneven too, and the weight
    of a cycle is the number of its examples.
    """

    def __init__(self, model, accumulation):
        self._model, self._accumulation = model, accumulation
        self._plain_function = model.train_function
        self._function = None
        self._reads_sums = accumulation.options["loss_reduction"] == "none"
        self._own_loss = not _is_of_keras(getattr(type(model), "compute_loss", None))
        self._notes, self._replaced, self._told = {}, {}, False

    @property
    def is_on(self):
        return bool(self._replaced)

    def serves(self, model, accumulation):
        """Whether begin() may go on with the training function that was built for it before."""
        same = self._model is model and self._accumulation is accumulation
        return same and self._plain_function is model.train_function

    def begin(self):
        """Follows the model's losses, and has fit() build its training function anew."""
        attributes = self._model.__dict__
        self._replaced = {"compiled_loss": attributes.get("compiled_loss")}
        if self._replaced["compiled_loss"] is not None:
            attributes["compiled_loss"] = _Container(
                self._replaced["compiled_loss"], self._noting("compiled_loss")
            )
        # Keras 2 has it from TensorFlow 2.9 on.
        if hasattr(self._model, "compute_loss"):
            self._replaced["compute_loss"] = attributes.get("compute_loss")
            attributes["compute_loss"] = self._noting("compute_loss")
        loss_divisor.Watch.of(self._model).on()
        self._accumulation.weight = self
        if self._function is None:
            self._model.train_function = None
            # Keras 2 returns the function, and Keras 3 sets it.
            made = self._model.make_train_function()
            self._function = self._model.train_function if made is None else made
        self._model.train_function = self._function

    def end(self):
        """Leaves the model and the optimizer as they were."""
        if not self._replaced:
            return
        for name, value in self._replaced.items():
            if value is None:
                self._model.__dict__.pop(name, None)
            else:
                self._model.__dict__[name] = value
        self._replaced = {}
        loss_divisor.Watch.of(self._model).off()
        self._accumulation.weight = 1.0
        self._model.train_function = self._plain_function
        self._notes.clear()

    def __call__(self):
        """The weight of the micro-batch at hand, as if each replica's share were like this one."""
        note = self._notes.get(_replica())
        if note is None or not _is_visible(note):
            raise errors.OptionError(
                "ExactCycles weighs a micro-batch where Keras computes its loss.",
                "a training step that calls neither compute_loss nor compiled_loss",
                "Compute the loss by self.compute_loss(x, y, y_pred, sample_weight), or by"
                " self.compiled_loss(y, y_pred, sample_weight) before TensorFlow 2.9; or leave"
                " ExactCycles out, and pass weight to ga.wrap_optimizer.",
            )
        return note * tf.cast(tf.distribute.get_strategy().num_replicas_in_sync, note.dtype)

    def _noting(self, name):
        original, note = getattr(self._model, name), self._note

        # Without control flow and try, since AutoGraph may convert it on the way to the loss.
        def compute(*args, **kwargs):
            depth = loss_divisor.begin()
            result = original(*args, **kwargs)
            note(loss_divisor.end(depth), dict(zip(_ARGUMENTS[name], args), **kwargs))
            return result

        return compute

    @no_autograph
    def _note(self, divisors, arguments):
        structures = [arguments.get(each) for each in ("y_pred", "y", "x")]
        self._notes[_replica()] = self._weight_of(divisors, structures)

    def _weight_of(self, divisors, structures):
        sums = [each for each in divisors if each.is_sum]
        if self._own_loss:
            # A compute_loss of the user's may do anything with a sum; most divide it.
            divisors = [each for each in divisors if not each.is_sum]
        elif sums or (self._reads_sums and divisors):
            return self._weight_of_sums(sums, divisors)
        counts = [each.count for each in divisors if each.count is not None]
        if len(counts) == 1 == len(divisors):
            return counts[0]
        if counts and len(set(each.over for each in divisors)) == 1 and divisors[0].over:
            return counts[0]
        if counts:
            self._tell_of_different_means(len(divisors))
        return _examples(structures)

    def _weight_of_sums(self, sums, divisors):
        if self._reads_sums and len(sums) == len(divisors):
            return tf.ones([])
        raise errors.OptionError(
            "Micro-batches of a loss that is a sum are added up, and means are weighed.",
            "{} of {} losses that are sums, and an optimizer that was wrapped with"
            " loss_reduction={!r}".format(
                len(sums), len(divisors), self._accumulation.options["loss_reduction"]
            ),
            'Leave reduction="sum" out of the losses; or, where all losses are sums, pass'
            ' loss_reduction="none" to ga.wrap_optimizer.',
        )

    def _tell_of_different_means(self, number):
        if not self._told:
            self._told = True
            warnings.warn(
                "gradaccum_compat: the model's {} losses may be means over different numbers"
                " (tokens of one, examples of another), and no single weight of a micro-batch is"
                " exact for all of them. ExactCycles weighs each micro-batch by its examples: the"
                " losses that are means over examples are exact, the others are means of"
                " means.".format(number)
            )


class _Container(object):
    """Keras 2's compiled_loss, with another function to call."""

    def __init__(self, container, call):
        self._container, self._call = container, call

    def __getattr__(self, name):
        return getattr(self._container, name)

    def __call__(self, *args, **kwargs):
        return self._call(*args, **kwargs)


def _is_of_keras(method):
    return method is None or method.__module__.split(".")[0] in ("keras", "tf_keras", "tensorflow")


def _replica():
    """The number of the replica that asks; None outside of the replicas, and on TPUs, where one
    trace serves all."""
    context = tf.distribute.get_replica_context()
    if context is None:
        return None
    number = context.replica_id_in_sync_group
    number = tf.get_static_value(number) if tf.is_tensor(number) else number
    return None if number is None else int(number)


def _is_visible(note):
    """Whether a tensor is of the graph at hand, or of one around it."""
    if tf.executing_eagerly():
        return hasattr(note, "numpy")
    graph = tf.compat.v1.get_default_graph()
    while graph is not None and note.graph is not graph:
        graph = getattr(graph, "outer_graph", None)
    return graph is not None


def _examples(structures):
    """The length of the first tensor in the structures."""
    for structure in structures:
        for each in tf.nest.flatten(structure):
            if isinstance(each, tf.RaggedTensor):
                return each.nrows()
            if isinstance(each, tf.sparse.SparseTensor):
                return each.dense_shape[0]
            if tf.is_tensor(each) and each.shape.rank != 0:
                return tf.shape(each, out_type=tf.int64)[0]
    raise errors.OptionError(
        "ExactCycles counts a micro-batch's examples by the length of its tensors.",
        "a loss that was computed from no tensor",
        "Hand the predictions to compute_loss.",
    )
