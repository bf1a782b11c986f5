"""Optimizers that users write: a subclass that overrides the documented update method and nothing
else."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf
from test_models import MICRO, embedding, words

import gradaccum_compat as ga
from support import fitting

STEPS = fitting.STEPS


def plain_descent(generation):
    """A class with the documented method alone, and the list in which it notes the kinds of
    gradients."""
    kinds = []
    if fitting.is_optimizer_v2(generation):
        return _with_resource_methods(generation, kinds), kinds
    return _with_update_step(generation, kinds), kinds


def _with_resource_methods(generation, kinds):
    # The base class is not under tf.keras.optimizers' public V2 names in 1.14.
    base = [each for each in generation.optimizers.SGD.__mro__ if "_create_hypers" in vars(each)][0]

    class Descent(base):
        def __init__(self, learning_rate=0.1, name="Descent", **kwargs):
            super(Descent, self).__init__(name, **kwargs)
            self._set_hyper("learning_rate", learning_rate)

        def _create_slots(self, var_list):
            for variable in var_list:
                self.add_slot(variable, "mean")

        def _moved(self, variable, gradient):
            mean = self.get_slot(variable, "mean")
            moved = mean.assign(0.9 * mean + gradient)
            with tf.control_dependencies([moved]):
                return variable.assign_sub(self._get_hyper("learning_rate", tf.float32) * moved)

        def _resource_apply_dense(self, gradient, variable, apply_state=None):
            kinds.append("dense")
            return self._moved(variable, gradient)

        def _resource_apply_sparse(self, gradient, variable, indices, apply_state=None):
            kinds.append("rows")
            whole = tf.scatter_nd(
                tf.expand_dims(indices, 1), gradient, tf.shape(variable, out_type=indices.dtype)
            )
            return self._moved(variable, whole)

        def get_config(self):
            return dict(
                super(Descent, self).get_config(),
                learning_rate=self._serialize_hyperparameter("learning_rate"),
            )

    return Descent


def _with_update_step(generation, kinds):
    class Descent(generation.optimizers.Optimizer):
        def __init__(self, learning_rate=0.1, name="Descent", **kwargs):
            if fitting.is_keras_3(generation):
                super(Descent, self).__init__(learning_rate=learning_rate, name=name, **kwargs)
            else:
                super(Descent, self).__init__(name, **kwargs)
                self._learning_rate = self._build_learning_rate(learning_rate)

        def build(self, variables):
            super(Descent, self).build(variables)
            if not hasattr(self, "means"):
                make = self.add_variable_from_reference
                self.means = [make(each, "mean") for each in variables]
                self.places = {self._key(each): place for place, each in enumerate(variables)}

        def _key(self, variable):
            return self._var_key(variable)

        def update_step(self, gradient, variable, learning_rate=None):
            kinds.append("rows" if isinstance(gradient, tf.IndexedSlices) else "dense")
            mean = self.means[self.places[self._key(variable)]]
            rate = tf.cast(self.learning_rate, tf.float32)
            mean.assign(0.9 * tf.convert_to_tensor(mean) + tf.convert_to_tensor(gradient))
            variable.assign_sub(rate * tf.convert_to_tensor(mean))

        def get_config(self):
            return dict(super(Descent, self).get_config(), learning_rate=0.1)

    return Descent


def test_its_update_method_moves_the_weights_once_per_cycle(generation):
    descent, _ = plain_descent(generation)
    fitting.check_fit(generation, descent)


def test_on_replicas(generation):
    descent, _ = plain_descent(generation)
    fitting.check_fit(generation, descent, fitting.linear, replicated=True)


def test_it_is_handed_an_embedding_s_rows(generation):
    """Rows come as rows, and what comes is the big batch's: momentum of NumPy's gradient."""
    descent, kinds = plain_descent(generation)
    model, _ = fitting.compiled(
        generation, lambda: ga.wrap_optimizer(descent(), steps=STEPS), embedding
    )
    fitting.fit(model, MICRO, words())
    assert set(kinds) == {"rows", "dense"} and kinds.count("dense") == 2 * kinds.count("rows")
    big, _ = fitting.compiled(generation, descent, embedding)
    fitting.fit(big, fitting.BIG, words())
    fitting.check_same(model.get_weights(), big.get_weights())
