"""What all wrapped optimizers share: the class that they are of, and the accumulator behind it.

A wrapped optimizer is a second view of the plain one: an object of a subclass of its class, with the
same attributes (not copies of them). So whatever reads or sets a learning rate, a slot or a checkpoint
of the one does it to the other; and the plain one still moves by its own rules, which is what the
accumulator has it do once per cycle. What a generation calls "apply these gradients" is overridden
by its file here, and nothing else.
"""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat import _algebra, _checks, errors
from gradaccum_compat._loading import CLASS_NAME
from gradaccum_compat.accumulator import Accumulator

#: The attribute that a wrapped optimizer has and a plain one uses for nothing.
_ATTRIBUTE = "_gradaccum_compat"
#: The name under which a checkpoint of the optimizer has the accumulator.
_CHECKPOINT_KEY = "accumulator"

_CLASSES = {}


def is_wrapped(optimizer):
    return isinstance(optimizer, Wrapped)


def wrap(mixin, plain, weight, options):
    """Returns the plain optimizer's second view.

    Args:
        mixin: subclass of Wrapped, of the plain optimizer's generation.
        plain: the optimizer.
        weight: the micro-batches' weight: a number, a tensor, or a function that returns one.
        options: the Accumulator's.
    """
    wrapped = object.__new__(_class_of(mixin, type(plain)))
    # A dict of its own right: what Python 3.13 keeps inside of an object its garbage collector follows from there alone.
    attributes = dict(plain.__dict__)
    for each in (plain, wrapped):
        # Past each generation's own __setattr__, which would take the attributes for something to track.
        object.__setattr__(each, "__dict__", attributes)
    accumulation = Accumulation(mixin.HAND_OVER(plain), weight, options)
    wrapped.__dict__[_ATTRIBUTE] = accumulation
    wrapped._track_trackable(accumulation.accumulator, _CHECKPOINT_KEY, overwrite=True)
    return wrapped


def _class_of(mixin, plain_class):
    if (mixin, plain_class) not in _CLASSES:
        _CLASSES[mixin, plain_class] = type(CLASS_NAME, (mixin, plain_class), {"__doc__": plain_class.__doc__})
    return _CLASSES[mixin, plain_class]


class HandOver(object):
    """The plain optimizer as the accumulator gets it; a generation may do something before it moves.

    Attributes:
        plain: the optimizer.
        asked: ids of the variables that the last step had, None before the first: what was frozen by then is not
            among them.
    """

    #: What to do where a variable has a gradient that was not among the first ones.
    MORE_VARIABLES = (
        "Wrap a new optimizer and compile again after making more variables trainable; or make the layers "
        "trainable first, and freeze them after the first call of build() or fit().")

    def __init__(self, plain):
        self.plain = plain
        self.asked = None

    def __getattr__(self, name):
        return getattr(self.plain, name)

    def apply_gradients(self, pairs):
        # Handed a gradient of zero, momentum would go on moving the weights of a layer that is frozen by now.
        return self.move([pair for pair in pairs if self.asked is None or id(pair[1]) in self.asked])

    def move(self, pairs):
        return self.plain.apply_gradients(pairs)


class Accumulation(object):
    """The accumulator of a wrapped optimizer, with the variables that it learns of when they are first used."""

    def __init__(self, hand_over, weight, options):
        self.hand_over = hand_over
        self.options = options
        self.weight = weight
        self._variables = None
        self._left = False
        self.told = False
        self.accumulator = Accumulator(hand_over, lambda: self._variables, **options)

    def another(self):
        """One with the same options, for another graph."""
        return Accumulation(self.hand_over, self.weight, self.options)

    @property
    def is_built(self):
        return self._variables is not None

    def build(self, variables):
        """Makes the state of the accumulator, and the optimizer's own, for these variables if there is none yet."""
        if not self.is_built:
            self._variables = _checks.variables(list(variables))
            self.accumulator.build()

    def state(self):
        """The accumulator's variables, always in this order; none if it has not been used."""
        return list(self.accumulator.variables)

    def step(self, pairs, aggregated=False, drop_overflow=False):
        """Adds a micro-batch, and has the optimizer move at the end of a cycle. Returns whether it moved.

        Args:
            pairs: (gradient, variable) of each variable.
            aggregated: whether the caller has summed the gradients over the replicas already.
            drop_overflow: whether to drop the micro-batch on all replicas if its gradients are not finite on one.
        """
        pairs = list(pairs)
        self.build([variable for _, variable in pairs])
        gradients = self._in_order(pairs)
        self.hand_over.asked = frozenset(id(variable) for _, variable in pairs)
        if aggregated and not self._left and replicas() > 1:
            gradients = _algebra.scale(gradients, 1.0 / replicas())
        weight = self.weight() if callable(self.weight) else self.weight
        if not drop_overflow:
            return self.accumulator.step(gradients, weight)
        count = tf.cond(_overflow_anywhere(gradients), lambda: self.accumulator.micro_count,
                        lambda: self.accumulator.accumulate(gradients, weight))
        return self.accumulator._apply_if_full(count)

    def left_to_the_cycle(self, pairs):
        """Stands in for the sum over replicas of one micro-batch's gradients, which step() is then told to be done.

        A loss-scale optimizer asks for that sum to see on each replica whether one of them has overflowed: if so,
        the gradients become NaN on all of them.
        """
        self._left = True
        pairs = list(pairs)
        if replicas() == 1:
            return pairs
        gradients = [gradient for gradient, _ in pairs]
        poison = tf.compat.v2.where(_overflow_anywhere(gradients), float("nan"), 1.0)
        return list(zip(_algebra.scale(gradients, poison), [variable for _, variable in pairs]))

    def _in_order(self, pairs):
        """A gradient for each variable; None for those that are not among the pairs, as frozen layers are not."""
        positions = {id(variable): position for position, variable in enumerate(self._variables)}
        gradients = [None] * len(self._variables)
        for gradient, variable in pairs:
            if id(variable) not in positions:
                raise errors.VariablesError(
                    "A wrapped optimizer accumulates for the variables that it was first used with.",
                    "a gradient of {}, which was not among them".format(_checks.describe(variable)),
                    self.hand_over.MORE_VARIABLES)
            gradients[positions[id(variable)]] = gradient
        return gradients


def replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync


def _overflow_anywhere(gradients):
    """Whether the gradients hold NaN or infinity on one of the replicas."""
    overflow = 1.0 - tf.cast(_algebra.all_finite(gradients), tf.float32)
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, overflow) > 0


class Wrapped(object):
    """Base of the generations' mixins: what every wrapped optimizer has."""

    HAND_OVER = HandOver

    @property
    def accumulator(self):
        """The Accumulator behind it, with its counters, apply() and reset()."""
        return self._accumulation.accumulator

    @property
    def _accumulation(self):
        return self.__dict__[_ATTRIBUTE]
