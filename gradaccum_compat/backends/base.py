"""Backend: the hooks that the algorithm stands on, with the bodies that both eras share.

Rules of this boundary: a hook says what is wanted, never for which TensorFlow; a subclass overrides
it only where its TensorFlow really differs; nothing here knows what a gradient or a cycle is.
"""

from __future__ import absolute_import, division, print_function

import functools
import logging
import sys
import threading

import six
import tensorflow as tf
from tensorflow.python.eager import def_function
from tensorflow.python.ops import control_flow_util


def _mark_as_converted(function):
    """TF 1.14 has no public do_not_convert; this is the mark that its AutoGraph leaves.

    The function itself has the mark too: what a tf.function is made from is converted in any case.
    """

    def unconverted(*args, **kwargs):
        return function(*args, **kwargs)

    for each in (unconverted, getattr(function, "__func__", function)):
        setattr(each, "__ag_compiled", True)
    unconverted.__name__ = getattr(function, "__name__", "unconverted")
    unconverted.__doc__ = function.__doc__
    return unconverted


#: Keeps AutoGraph away from our code: there is nothing to convert, and converting takes seconds.
no_autograph = getattr(tf.autograph.experimental, "do_not_convert", _mark_as_converted)

#: Strategy.run was experimental_run_v2 before TF 2.2.
_RUN = "run" if hasattr(tf.distribute.Strategy, "run") else "experimental_run_v2"

#: Up to TF 2.3 a restored sum is divided by the number of replicas on this worker alone, so that
#: each worker would have the whole. 2.4, which took this strategy out of `experimental`, divides it
#: by the number of all.
_WORKERS_RESTORE_SHARES = hasattr(tf.distribute, "MultiWorkerMirroredStrategy")

#: In a tf.function of TF 2.2 and 2.3, what reads a variable may come after what is written later
#: where a branch in between has an Assert. 2.4 is the first that can gather.
_ASSERT_KEEPS_THE_ORDER = hasattr(tf.distribute.Strategy, "gather")

#: How many bytes workers reduce at once where the strategy does not say. TensorFlow's own choice is
#: one pack of all gradients: on the loopback 2.21 took 0.57 s for 80 MB in five tensors as one
#: pack, and 0.12 s in packs of this size. Before TF 2.4 it cannot be said so.
_PACK = 4 * 2**20


#: TF 2.4, which can gather, enters XLA's control flow context before it traces; earlier ones do
#: not.
_HAS_A_CONTEXT = hasattr(tf.distribute.Strategy, "gather")


def compiled_by_xla():
    """Whether XLA will compile the ops that are made now. To be asked while a function is traced.

    From TensorFlow 2.4 on, a tf.function(jit_compile=True) enters XLA's control flow context before
    it traces. Every graph inside is within that context: branches, loops, replicas, functions that
    are traced there, and the training step of fit(jit_compile=True).

    One case cannot be seen: a plain tf.function that was traced elsewhere, and is then called in a
    compiled one with the same signature. TensorFlow takes the old trace there.
    """
    if tf.executing_eagerly():
        return False
    graph = tf.compat.v1.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph) or (
        not _HAS_A_CONTEXT and _in_a_function_to_compile()
    )


def _in_a_function_to_compile():
    """Whether this thread is tracing a tf.function(experimental_compile=True), which stands further
    up among its calls."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == def_function.__name__:
            if getattr(frame.f_locals.get("self"), "_experimental_compile", False):
                return True
        frame = frame.f_back
    return False


class _Advice(logging.Filter):
    """Leaves out MirroredStrategy's warning that eager calls have significant overhead."""

    def filter(self, record):
        return "eagerly has significant overhead" not in str(record.msg)


_is_no_advice = _Advice()


class Backend(object):
    """The hooks. One instance serves the process."""

    name = None

    # Variables

    def state_variable(self, shape, dtype, name, aggregation, values=None):
        """Makes a resource variable of which each replica has a value of its own.

        It begins at zero, or at what the function `values` returns.
        """
        raise NotImplementedError

    def _variable_options(self, shape, dtype, name, aggregation, values):
        return dict(
            initial_value=(
                functools.partial(tf.zeros, shape, dtype)
                if values is None
                else lambda: tf.constant(values(), dtype)
            ),
            dtype=dtype,
            trainable=False,
            name=name,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=aggregation,
        )

    def _restoring_its_share(self, variable):
        """The variable, of whose sum over all replicas each worker takes its share when a
        checkpoint is restored."""
        if _WORKERS_RESTORE_SHARES or variable.aggregation != tf.VariableAggregation.SUM:
            return variable
        strategy = tf.distribute.get_strategy()
        components = strategy.experimental_local_results(variable)
        workers = strategy.num_replicas_in_sync // len(components)
        if workers > 1 and components[0] is not variable:
            variable._gather_saveables_for_checkpoint = _divided(
                variable._gather_saveables_for_checkpoint, workers
            )
        return variable

    # Replicas

    def run(self, strategy, function, args=()):
        """Calls function on each replica, from outside the replicas."""
        run = getattr(strategy, _RUN)
        if not tf.executing_eagerly():
            return run(function, args=args)
        # TensorFlow tells the caller to compile this. The call is ours, and not the user's.
        logger = logging.getLogger("tensorflow")
        logger.addFilter(_is_no_advice)
        try:
            return run(function, args=args)
        finally:
            logger.removeFilter(_is_no_advice)

    def merge(self, function, args=()):
        """Calls function(*args) once for all replicas, from inside one; args become per-replica
        values."""
        return tf.distribute.get_replica_context().merge_call(
            no_autograph(lambda strategy, *merged: function(*merged)), args=args
        )

    def sum_batch(self, strategy, pairs, over_workers):
        """Sums of values over all replicas, in one reduction; pairs are (value, the variable where
        it goes to)."""
        chosen = (
            getattr(strategy.extended, "_communication_options", None) if over_workers else None
        )
        options = (
            []
            if chosen is None or chosen.bytes_per_pack
            else [tf.distribute.experimental.CommunicationOptions(bytes_per_pack=_PACK)]
        )
        return strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs, *options)

    def can_gather(self, strategy):
        """Whether the strategy can gather uneven numbers of rows. Before TF 2.4 none can."""
        return hasattr(strategy, "gather")

    def as_reduced(self, value, destination):
        """A value that is the same on each replica, as a reduction to destination would return
        it."""
        if not hasattr(destination, "values"):
            return tf.distribute.get_strategy().experimental_local_results(value)[0]
        if isinstance(value, tf.IndexedSlices) or not hasattr(value, "values"):
            return value
        # Up to TF 2.9 or so a variable is updated with Mirrored values alone. Nothing public makes
        # one; up to TF 2.1 it needs to be told which component is whose.
        from tensorflow.python.distribute import values

        whose = [value._device_map] if hasattr(value, "_device_map") else []
        return values.Mirrored(*(whose + [value.values]))

    # Graphs

    def assert_on_device(self, condition, message, value=None):
        """An op that raises InvalidArgumentError with the message unless the condition holds."""
        if compiled_by_xla():
            return tf.no_op()
        if _ASSERT_KEEPS_THE_ORDER:
            return tf.debugging.Assert(condition, [message] + ([] if value is None else [value]))
        # 0 / 1, and NaN where the condition fails: a constant NaN would set off TensorFlow's own
        # numeric checks.
        return tf.debugging.check_numerics(0.0 / tf.cast(condition, tf.float32), message)

    def cond_in_one_op(self, predicate, true_fn, false_fn, variables):
        """tf.cond; one op, where all that its branches use lies beside these variables on one CPU.

        Elsewhere TensorFlow puts the ops of both branches into the graph around them, since they
        may lie on several devices. There each call hands every variable to a branch that it does
        not take, and passes over each op in it: between two updates a step of 400 variables of
        32 x 32 takes 1.84 ms so and 1.60 ms in one op, 1.51 ms of which are the gradients'
        (TensorFlow 2.21; 2.15: 2.82, 2.53 and 1.72 ms).
        """
        if self.outermost_graph() is not None or not _on_one_cpu(variables):
            return tf.cond(predicate, true_fn, false_fn)
        with tf.device(variables[0].device):
            chosen = tf.cond(predicate, true_fn, false_fn)
        op = chosen[0].op
        while op.type == "Identity":
            op = op.inputs[0].op
        # Without this method, which is private, the conditional stays as TensorFlow makes it.
        if op.type in ("If", "StatelessIf") and hasattr(op, "_set_attr"):
            op._set_attr("_lower_using_switch_merge", tf.compat.v1.AttrValue(b=False))
        return chosen

    def outermost_graph(self):
        """The graph that all is being built in, or None where eager execution is outermost."""
        if tf.executing_eagerly():
            return None
        with tf.init_scope():
            return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()

    def at_top_level(self, function):
        """Calls function as if between two training steps, also from inside a trace.

        A tf.function refuses variables that are made on any but its first call, even under
        tf.init_scope. A thread of its own is eager and outside of every trace, on every TensorFlow.
        """
        if tf.executing_eagerly() and tf.distribute.get_replica_context() is None:
            return function()
        if tf.executing_eagerly() and not tf.distribute.has_strategy():
            return function()
        if self.outermost_graph() is not None:
            with tf.init_scope():
                return function()
        return _in_another_thread(function)


def _on_one_cpu(variables):
    devices = tf.config.experimental.list_logical_devices()
    if any(each.device_type not in ("CPU", "XLA_CPU") for each in devices):
        return False
    return len(set(each.device for each in variables)) == 1


def _divided(gather, workers):
    """A variable's way to be saved, with what is restored divided by the number of workers."""

    def saveable_of(factory, *args, **kwargs):
        saveable = factory(*args, **kwargs)
        restore = saveable.restore
        saveable.restore = lambda restored_tensors, restored_shapes: restore(
            [each / workers for each in restored_tensors], restored_shapes
        )
        return saveable

    return lambda: {
        key: functools.partial(saveable_of, factory) for key, factory in gather().items()
    }


def _in_another_thread(function):
    outcome = {}

    def target():
        try:
            outcome["value"] = function()
        except BaseException:  # handed to the caller's thread, whatever it is
            outcome["error"] = sys.exc_info()

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if "error" in outcome:
        six.reraise(*outcome["error"])
    return outcome["value"]
