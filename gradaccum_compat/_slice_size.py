"""steps="auto": finds, by trying, the largest slice of a batch that memory has room for, and remembers it.

What is tried is a function that takes (loss_fn, variables, batch, steps); it is traced once for each steps.
"""

from __future__ import absolute_import, division, print_function

import collections

import tensorflow as tf

from gradaccum_compat import _checks, errors
from gradaccum_compat._slicing import Batch
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import no_autograph

#: How many sizes are remembered; the one that was not used for longest is forgotten first.
_MOST_PLANS = 32
_PLANS = collections.OrderedDict()


@no_autograph
def find(compute, loss_fn, variables, batch):
    """compute(loss_fn, variables, batch, steps) with as few steps as memory allows."""
    if not tf.executing_eagerly():
        raise errors.EagerRequiredError(
            'steps="auto" tries sizes until one fits, which only eager code can.', "a call inside of a graph",
            'Pass the number of slices, or call it outside of tf.function and hand its gradients to one that applies.')
    if tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context():
        raise errors.ContextError(
            "microbatch_gradients works on one replica's batch.", "a call outside of the replicas",
            "Call it in the function that strategy.run calls.")
    variables = variables if callable(variables) else _checks.variables(variables)
    batch = Batch(batch)
    return _plan(loss_fn, variables, batch).run(compute, loss_fn, variables, batch)


def _plan(loss_fn, variables, batch):
    """The plan for this code, these variables and these shapes; it holds the variables, so that no id is reused."""
    owner = variables if callable(variables) else tuple(id(each) for each in variables)
    shapes = tuple((each.dtype, tuple(each.shape.as_list()[1:])) for each in batch.tensors)
    key = (_code(loss_fn), _code(owner), shapes)
    plan = _PLANS.pop(key, None) or _Plan()
    _PLANS[key] = plan
    while len(_PLANS) > _MOST_PLANS:
        _PLANS.popitem(last=False)
    return plan


def _code(function):
    """What a lambda that is made anew in each training step keeps."""
    code = getattr(function, "__code__", function)
    return code if getattr(code, "__hash__", None) else id(code)


class _Plan(object):
    """What fits: `room` is the examples of the largest slice that did, once a larger one did not."""

    def __init__(self):
        self._room = None
        self._traces = None

    def run(self, compute, loss_fn, variables, batch):
        if self._traces is None or not self._traces.are_of(loss_fn, variables):
            self._traces = _Traces(compute, loss_fn, variables)
        traces = self._traces
        examples = _largest_over_replicas(max(batch.examples, 1))
        first = steps = _largest_over_replicas(-(-examples // (self._room or examples)))
        result, error = traces.attempt(batch, steps)
        while _largest_over_replicas(0 if error is None else 1):
            if steps >= examples:
                raise error or tf.errors.ResourceExhaustedError(None, None, "Another replica has no room for one.")
            steps = min(2 * steps, examples)
            result, error = traces.attempt(batch, steps)
        if steps > first:
            self._room = -(-examples // steps)
        return result


class _Traces(object):
    """A tf.function for each steps, of one loss_fn: another of the same code may close over something else."""

    def __init__(self, compute, loss_fn, variables):
        self._compute, self._loss_fn, self._variables = compute, loss_fn, variables
        self._functions = {}

    def are_of(self, loss_fn, variables):
        """The plan's key has the variables; of a callable it has the code alone."""
        same = variables is self._variables or not callable(variables)
        return same and loss_fn == self._loss_fn

    def attempt(self, batch, steps):
        """Returns (result, None), or (None, error) with every variable that was written as it had been."""
        if steps not in self._functions:
            self._functions[steps] = self._function(batch, steps)
        function, before = self._functions[steps], []
        try:
            variables = [BACKEND.local(each) for each in function.get_concrete_function().graph.variables]
            before = [(each, tf.identity(each)) for each in variables]
            result, weight = function(*batch.tensors)
            result.weight = weight
            return result, None
        except tf.errors.ResourceExhaustedError as error:
            for variable, value in before:
                variable.assign(value, read_value=False)
            return None, error

    def _function(self, batch, steps):
        compute, loss_fn, variables, like = self._compute, self._loss_fn, self._variables, batch.like

        def compute_slices(*tensors):
            result = compute(loss_fn, variables, like(tensors), steps)
            return result, result.weight

        # Of any number of examples: a shorter last batch is no new trace.
        return tf.function(compute_slices, input_signature=[
            tf.TensorSpec([None] + each.shape.as_list()[1:], each.dtype) for each in batch.tensors])


def _largest_over_replicas(value):
    """The largest of all replicas' values: what decides about the next try must be the same on each."""
    if not tf.distribute.has_strategy():
        return value
    context = tf.distribute.get_replica_context()
    own = tf.one_hot(context.replica_id_in_sync_group, context.num_replicas_in_sync, tf.cast(value, tf.float32), 0.0)
    return int(max(context.all_reduce(tf.distribute.ReduceOp.SUM, own).numpy()))
