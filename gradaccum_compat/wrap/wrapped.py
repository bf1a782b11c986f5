"""The base of all wrapped optimizers: their class, and the accumulator behind it.

A wrapped optimizer holds the plain one, and its class is a subclass of the plain one's class. It
reads and sets the plain one's attributes, so that both share learning rate, slots and schedules.
The plain optimizer stays as it is, and updates once per cycle by its own rules. Each generation's
file overrides the methods of that generation that apply gradients, and nothing else.
"""

from __future__ import absolute_import, division, print_function

import collections
import copy

import tensorflow as tf

from gradaccum_compat import errors, saver
from gradaccum_compat._loading import CLASS_NAME
from gradaccum_compat.accumulator import Accumulator
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import no_autograph
from gradaccum_compat.core import _arguments, _gradients

#: The attribute that a wrapped optimizer has of its own: its Accumulation.
_ATTRIBUTE = "_gradaccum_compat"
#: The name under which a checkpoint of the optimizer has the accumulator.
_CHECKPOINT_KEY = "accumulator"

#: The methods that a user may replace on a wrapped optimizer: the replacement accumulates.
_UPDATES = frozenset(["apply_gradients", "apply"])

_Reference = collections.namedtuple("_Reference", ["name", "ref"])
_CLASSES = {}


def is_wrapped(optimizer):
    return isinstance(optimizer, Wrapped)


def wrap(mixin, plain, weight, options):
    """Returns an optimizer around the plain one.

    Args:
        mixin: subclass of Wrapped, of the plain optimizer's generation.
        plain: the optimizer.
        weight: the micro-batches' weight: a number, a tensor, or a function that returns one.
        options: the Accumulator's.
    """
    accumulation = Accumulation(mixin.HAND_OVER(plain), weight, options)
    wrapped = object.__new__(_class_of(mixin, type(plain)))
    wrapped.__dict__[_ATTRIBUTE] = accumulation
    # A checkpoint of a wrapped optimizer may have been restored into the plain one before.
    if _CHECKPOINT_KEY in plain.__dict__.get("_self_unconditional_deferred_dependencies", ()):
        wrapped._handle_deferred_dependencies(_CHECKPOINT_KEY, accumulation.accumulator)
    return wrapped


def _class_of(mixin, plain_class):
    if (mixin, plain_class) not in _CLASSES:
        ours = mixin.__mro__[:-1]  # without object
        _CLASSES[mixin, plain_class] = type(
            CLASS_NAME,
            (mixin, plain_class),
            {
                "__doc__": plain_class.__doc__,
                # Where Keras looks for the class of a saved model.
                "__module__": "gradaccum_compat.wrap",
                "_OWN": frozenset(name for each in ours for name in vars(each)) | _UPDATES,
            },
        )
    return _CLASSES[mixin, plain_class]


class HandOver(object):
    """The plain optimizer as the accumulator gets it; a generation may do something before it
    updates.

    Attributes:
        plain: the optimizer.
        asked: ids of the variables that the last step had, None before the first. Variables that
            were frozen since then are not among them.
    """

    #: The remedy for a gradient of a variable that was not among the first ones.
    MORE_VARIABLES = (
        "Wrap a new optimizer and compile again after making more variables trainable; or make the"
        " layers trainable first, and freeze them after the first call of build() or fit()."
    )

    def __init__(self, plain):
        self.plain = plain
        self.asked = None

    def __getattr__(self, name):
        if name == "plain":  # not made yet, as in a copy
            raise AttributeError(name)
        return getattr(self.plain, name)

    def apply_gradients(self, pairs):
        # A frozen layer's gradient is zero. Given that, momentum would go on updating its weights.
        return self.update(
            [pair for pair in pairs if self.asked is None or id(pair[1]) in self.asked]
        )

    def update(self, pairs):
        return self.plain.apply_gradients(pairs)


class Accumulation(object):
    """The accumulator of a wrapped optimizer, with the variables that it learns of when they are
    first used."""

    def __init__(self, hand_over, weight, options):
        self.hand_over = hand_over
        self.options = options
        self.weight = weight
        self._variables = None
        self._left = False
        self._begin = None
        self.told = self._looked = False
        self.accumulator = self._new_accumulator()

    def _new_accumulator(self):
        return Accumulator(self.hand_over, lambda: self._variables, **self.options)

    def another(self):
        """One with the same options, for another graph."""
        return Accumulation(self.hand_over, self.weight, self.options)

    @property
    def is_built(self):
        return self._variables is not None

    def build(self, variables):
        """Makes the state of the accumulator, and the optimizer's own, for these variables if there
        is none yet."""
        if not self.is_built:
            if self.accumulator._replicas.graph is not BACKEND.outermost_graph():
                # Canned Estimators are handed an optimizer that was made outside of their graph.
                self.accumulator = self._new_accumulator()
            self._variables = _arguments.variables(list(variables))
            try:
                self.accumulator.build()
            except Exception:
                # Nothing half built is left behind for the next call.
                self._variables, self.accumulator = None, self._new_accumulator()
                raise
            self._take_values()

    def begin_with(self, values):
        """Has the state begin with these values when it is made, if there are any."""
        self._begin = values or None

    def _take_values(self):
        if self._begin is None:
            return
        with tf.init_scope():
            for variable, value in zip(self.state(), self._begin):
                variable.assign(value)
        self._begin = None

    def state(self):
        """The accumulator's variables; none if it has not been used.

        Saved models hold them in this order: those that a saved one may lack come last.
        """
        return sorted(self.accumulator.variables, key=saver.may_be_missing)

    def values(self):
        """The state's values; an empty list in a TF 1 graph, which knows none outside a session."""
        state = self.state() if tf.executing_eagerly() else []
        return [each.numpy() for each in state]

    def step(self, pairs, aggregated=False, drop_overflow=False):
        """Adds a micro-batch, and has the optimizer update at the end of a cycle. Returns whether
        it updated.

        Args:
            pairs: (gradient, variable) of each variable.
            aggregated: whether the caller has summed the gradients over the replicas already.
            drop_overflow: whether to drop the micro-batch on all replicas if its gradients are not
                finite on one.
        """
        pairs = list(pairs)
        fresh = not self.is_built
        self.build([variable for _, variable in pairs])
        gradients = self._in_order(pairs)
        if fresh and self.accumulator._recorder is not None:
            self.accumulator._recorder.gradients_came_first(gradients)
        self.hand_over.asked = frozenset(id(variable) for _, variable in pairs)
        if aggregated and not self._left and replicas() > 1:
            gradients = _gradients.scale(gradients, 1.0 / replicas())
        self._tell_of_equal_weights()
        weight = self.weight() if callable(self.weight) else self.weight
        if not drop_overflow:
            return self.accumulator.step(gradients, weight)
        count = tf.cond(
            _overflow_anywhere(gradients),
            lambda: self.accumulator.micro_count,
            lambda: self.accumulator.accumulate(gradients, weight),
        )
        return self.accumulator._apply_if_full(count)

    def with_loss_noted(self, loss, scaled=None):
        """Returns the loss, and has a recorder note its value where one records.

        Args:
            loss: the micro-batch's loss, a tensor or a function.
            scaled: a function from the loss to the scaled loss whose gradients are taken.
        """
        recorder = self.accumulator._recorder
        if recorder is None:
            return loss

        def noted(value):
            recorder.loss_of_next(value if scaled is None else scaled(value))
            return value

        return (lambda: noted(loss())) if callable(loss) else noted(loss)

    def _tell_of_equal_weights(self):
        """Warns of a fit() whose micro-batches should weigh differently. Looks once in eager code,
        and in each trace until it has warned."""
        weighs = callable(self.weight) or tf.is_tensor(self.weight)
        cycle = self.options["steps"] != 1 and "mean" in self.options["loss_reduction"]
        if weighs or not cycle or self._looked or not hasattr(self.hand_over.plain, "get_config"):
            return
        from gradaccum_compat.keras import unweighed  # which stands on this package

        self._looked = unweighed.tell(self) or tf.executing_eagerly()

    def left_to_the_cycle(self, pairs):
        """Takes the place of the sum over replicas of one micro-batch's gradients: the cycle sums
        them at its end.

        A loss-scale optimizer asks for that sum to see on each replica whether one of them has
        overflowed. If one has, the gradients become NaN on all replicas.
        """
        self._left = True
        pairs = list(pairs)
        if replicas() == 1:
            return pairs
        gradients = [gradient for gradient, _ in pairs]
        poison = tf.compat.v2.where(_overflow_anywhere(gradients), float("nan"), 1.0)
        return list(zip(_gradients.scale(gradients, poison), [variable for _, variable in pairs]))

    def _in_order(self, pairs):
        """A gradient for each variable; None for those that are not among the pairs, as frozen
        layers are not."""
        positions = {id(variable): position for position, variable in enumerate(self._variables)}
        gradients = [None] * len(self._variables)
        for gradient, variable in pairs:
            if id(variable) not in positions:
                raise errors.VariablesError(
                    "A wrapped optimizer accumulates for the variables that it was first used"
                    " with.",
                    "a gradient of {}, which was not among them".format(
                        _arguments.describe(variable)
                    ),
                    self.hand_over.MORE_VARIABLES,
                )
            gradients[positions[id(variable)]] = gradient
        return gradients


def replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync


def _overflow_anywhere(gradients):
    """Whether the gradients hold NaN or infinity on one of the replicas."""
    overflow = 1.0 - tf.cast(_gradients.all_finite(gradients), tf.float32)
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, overflow) > 0


class Wrapped(object):
    """Base of the generations' mixins: what every wrapped optimizer has."""

    HAND_OVER = HandOver
    #: The names that a mixin defines. All other attributes are the plain optimizer's.
    _OWN = frozenset()

    def __new__(cls, *args, **kwargs):
        raise errors.OptimizerError(
            "wrap_optimizer makes an optimizer that accumulates, from a plain one.",
            "a call of its class or of a subclass",
            "Derive a class from the plain optimizer's, and wrap an object of it.",
        )

    @property
    def accumulator(self):
        """The Accumulator behind it, with its counters, apply() and reset()."""
        return self._accumulation.accumulator

    @property
    def _accumulation(self):
        return self.__dict__[_ATTRIBUTE]

    # Attributes. A method of the plain class runs with the wrapped optimizer as its self: the
    # methods that it calls accumulate, and it reads and sets the plain optimizer's attributes.

    def __getattribute__(self, name):
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        own = object.__getattribute__(self, "__dict__")
        if name not in own and name not in object.__getattribute__(self, "_OWN"):
            plain = own[_ATTRIBUTE].hand_over.plain
            if name in plain.__dict__:
                return getattr(plain, name)
        return super(Wrapped, self).__getattribute__(name)

    def __getattr__(self, name):
        # A property that raised AttributeError raises it once more.
        if name.startswith("__") or name in self._OWN:
            return object.__getattribute__(self, name)
        return getattr(self.__dict__[_ATTRIBUTE].hand_over.plain, name)

    def __setattr__(self, name, value):
        # A function that is set in place of a method of ours is not the plain optimizer's method.
        if name in self._OWN and callable(value):
            self.__dict__[name] = value
        else:
            setattr(self.__dict__[_ATTRIBUTE].hand_over.plain, name, value)

    def __delattr__(self, name):
        if name in self.__dict__:
            del self.__dict__[name]
        else:
            delattr(self.__dict__[_ATTRIBUTE].hand_over.plain, name)

    def __dir__(self):
        plain = self.__dict__[_ATTRIBUTE].hand_over.plain
        return sorted(set(dir(type(self))) | set(self.__dict__) | set(dir(plain)))

    # Copies

    def __deepcopy__(self, memo):
        # The weight and the options as they are: a function that says the weight goes on to do so.
        plain, options, values = self._parts()
        memo[id(self)] = made = _again(copy.deepcopy(plain, memo), options, values)
        return made

    def __reduce_ex__(self, protocol):
        return _again, self._parts()

    def _parts(self):
        """The parts to make a copy from: the plain optimizer, wrap_optimizer's arguments, and the
        values of the cycle at hand."""
        return (
            self._accumulation.hand_over.plain,
            self._arguments(),
            self._accumulation.values(),
        )

    def _arguments(self):
        """The arguments of wrap_optimizer that make one like this."""
        return dict(self._accumulation.options, weight=self._accumulation.weight)

    # Checkpoints hold the accumulator beside what the plain optimizer has.

    @property
    def _checkpoint_dependencies(self):
        return list(super(Wrapped, self)._checkpoint_dependencies) + [
            _Reference(_CHECKPOINT_KEY, self.__dict__[_ATTRIBUTE].accumulator)
        ]

    def _trackable_children(self, *args, **kwargs):
        # TensorFlow 2.8 and later asks this.
        children = dict(super(Wrapped, self)._trackable_children(*args, **kwargs))
        children[_CHECKPOINT_KEY] = self.__dict__[_ATTRIBUTE].accumulator
        return children

    def _lookup_dependency(self, name, *args, **kwargs):
        if name == _CHECKPOINT_KEY:
            return self.__dict__[_ATTRIBUTE].accumulator
        return super(Wrapped, self)._lookup_dependency(name, *args, **kwargs)


class Minimizing(object):
    """Mixin for the generations whose optimizers have minimize(), which is given the loss."""

    @no_autograph
    def minimize(self, loss, *args, **kwargs):
        # A loss-scale optimizer around calls its own: what comes here is not scaled.
        noted = self._accumulation.with_loss_noted(loss)
        return super(Minimizing, self).minimize(noted, *args, **kwargs)


def _again(plain, arguments, values):
    """Makes a wrapped optimizer from the parts of another one."""
    from gradaccum_compat import wrap as package  # which imports this module

    made = package.wrap_optimizer(plain, **arguments)
    made._accumulation.begin_with(values)
    return made
