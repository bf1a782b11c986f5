"""steps="auto": finds the largest slice that memory has room for by trying, and remembers its size.

Each try calls a function compute(loss_fn, variables, batch, steps), traced once for each `steps`.
Two stores outlive a call, and neither keeps anything of the user's alive: sizes are numbers, and
the traces of a loss_fn go with it.
"""

from __future__ import absolute_import, division, print_function

import collections
import weakref

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends.base import no_autograph
from gradaccum_compat.core import _state
from gradaccum_compat.microbatch import arguments
from gradaccum_compat.microbatch.batch import Batch, pack

#: How many sizes are remembered; the one that was not used for longest is forgotten first.
_MOST_SIZES = 32
_SIZES = collections.OrderedDict()
#: The traces of each loss_fn; of a bound method, those of its object.
_TRACES = weakref.WeakKeyDictionary()


@no_autograph
def find(compute, loss_fn, variables, batch):
    """Returns compute(loss_fn, variables, batch, steps) with as few steps as memory allows."""
    if not tf.executing_eagerly():
        raise errors.EagerRequiredError(
            'steps="auto" tries sizes until one fits, which only eager code can.',
            "a call inside of a graph",
            "Pass the number of slices, or call it outside of tf.function and hand its gradients to"
            " one that applies.",
        )
    arguments.check(loss_fn, variables, "auto")
    batch = Batch(batch)
    size, traces = _size(loss_fn, variables, batch), _traces(loss_fn, variables, batch)
    examples = _largest_over_replicas(max(batch.examples, 1))
    first = steps = _largest_over_replicas(-(-examples // (size.room or examples)))

    def attempt():
        return traces.attempt(compute, loss_fn, variables, batch, steps)

    result, error = attempt()
    while _largest_over_replicas(0 if error is None else 1):
        if steps >= examples:
            raise error or tf.errors.ResourceExhaustedError(
                None, None, "Another replica has no room for one example."
            )
        steps = min(2 * steps, examples)
        result, error = attempt()
    if steps > first:
        size.room = -(-examples // steps)
    return result


class _Of(object):
    """Objects of the user's that an entry of a store belongs to: their ids may be used again."""

    def __init__(self, objects):
        self._references = [weakref.ref(each) for each in objects]

    def are(self, objects):
        return all(reference() is each for reference, each in zip(self._references, objects))


class _Size(_Of):
    """The size that fits. `room`: the examples of the largest slice, once a larger one failed."""

    room = None


def _size(loss_fn, variables, batch):
    """Returns the size for this code, these variables and these shapes."""
    key = (_code(loss_fn), _key(variables), _shapes(batch))
    owners = [each for each in [loss_fn] + _listed(variables) if not hasattr(each, "__code__")]
    size = _SIZES.pop(key, None)
    _SIZES[key] = size = size if size and size.are(owners) else _Size(owners)
    while len(_SIZES) > _MOST_SIZES:
        _SIZES.popitem(last=False)
    return size


def _traces(loss_fn, variables, batch):
    """Returns the traces of this loss_fn: another of the same code may close over other values."""
    try:
        of_owner = _TRACES.setdefault(getattr(loss_fn, "__self__", loss_fn), {})
    except TypeError:  # an object that has no hash, or takes no weak references
        of_owner = {}
    key = (getattr(loss_fn, "__func__", None), _key(variables), _shapes(batch))
    owners = _listed(variables)
    if key not in of_owner or not of_owner[key].are(owners):
        of_owner[key] = _Traces(owners)
    return of_owner[key]


def _code(function):
    """Returns what a lambda that is made anew in each training step keeps."""
    return getattr(function, "__code__", None) or id(function)


def _listed(variables):
    return [variables] if callable(variables) else list(variables)


def _key(variables):
    return tuple(_code(each) for each in _listed(variables))


def _shapes(batch):
    return tuple((each.dtype, tuple(each.shape.as_list()[1:])) for each in batch.tensors)


class _Traces(_Of):
    """A tf.function for each number of steps."""

    def __init__(self, variables):
        super(_Traces, self).__init__(variables)
        self._functions = {}
        self._call = None

    def attempt(self, compute, loss_fn, variables, batch, steps):
        """Returns (result, None), or (None, error) with all variables as they were before."""
        if steps not in self._functions:
            self._functions[steps] = self._function(batch, steps)
        function, before = self._functions[steps], []
        # The trace asks for these, and must not hold them.
        self._call = lambda slices, steps: compute(loss_fn, variables, slices, steps)
        try:
            written = [
                _state.local(each) for each in function.get_concrete_function().graph.variables
            ]
            before = [(each, tf.identity(each)) for each in written]
            return function(*batch.tensors), None
        except tf.errors.ResourceExhaustedError as error:
            for variable, value in before:
                variable.assign(value, read_value=False)
            return None, error
        finally:
            self._call = None

    def _function(self, batch, steps):
        structure = batch.structure

        def compute_slices(*tensors):
            return self._call(pack(structure, tensors), steps)

        # Any number of examples: a shorter last batch is no new trace.
        return tf.function(
            compute_slices,
            input_signature=[
                tf.TensorSpec([None] + each.shape.as_list()[1:], each.dtype)
                for each in batch.tensors
            ],
        )


def _largest_over_replicas(value):
    """Returns the largest of all replicas' values, so that all decide alike about the next try."""
    if not tf.distribute.has_strategy():
        return value
    context = tf.distribute.get_replica_context()
    own = tf.one_hot(
        context.replica_id_in_sync_group,
        context.num_replicas_in_sync,
        tf.cast(value, tf.float32),
        0.0,
    )
    return int(max(context.all_reduce(tf.distribute.ReduceOp.SUM, own).numpy()))
