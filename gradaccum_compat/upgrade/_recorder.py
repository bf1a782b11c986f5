"""Recorder: what an accumulator calls while it is recorded.

It calls it at three places: with each micro-batch, right before the optimizer is called and right
after. In a graph these add ops that hand arrays to a Log, and, where a record is followed, assign
what that one has. While nothing is recorded there is no Recorder, and nothing of this folder is
imported.
"""

from __future__ import absolute_import, division, print_function

import numbers
import platform
import sys
import weakref

import numpy as np
import tensorflow as tf

import gradaccum_compat
from gradaccum_compat import _detect, errors
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import compiled_by_xla
from gradaccum_compat.core import _arguments, _state
from gradaccum_compat.upgrade import _format, _sketch, _slots, recording

#: For each graph the Recorders of the first replica, and how many each other one has asked for.
_of_graphs = weakref.WeakKeyDictionary()


def recorder_of(accumulator):
    """An accumulator's Recorder."""
    session = recording.session_here()
    graph = BACKEND.outermost_graph()
    if graph is None:
        return Recorder(session, accumulator)
    # Estimator calls a model function on each replica, the first one first, and so makes an
    # accumulator on each.
    first, asked = _of_graphs.setdefault(graph, ([], {}))
    replica = _replica()
    if replica == 0:
        first.append(Recorder(session, accumulator))
        return first[-1]
    asked[replica] = asked.get(replica, 0) + 1
    return _OnAnotherReplica(first[asked[replica] - 1], accumulator)


class Recorder(object):
    """The methods that an accumulator calls. In a graph each makes ops, and returns those to wait
    for."""

    def __init__(self, session, accumulator):
        self._session, self._accumulator = session, accumulator
        self._number = session.number()
        self._settings = None
        self._log = self._followed = self._slots = None
        self._optimizer = _slots.plain(accumulator._target.optimizer)
        self._rule, self._generation = _slots.rule_of(self._optimizer), _slots.generation_of(
            self._optimizer
        )
        # Now, since OptimizerV2 would run a Session for them once it has made variables of them.
        self._settings = _slots.settings_of(self._optimizer)
        self._follows_first = True
        self._losses = {}

    # The calls

    def built(self):
        """Called once the accumulator and the optimizer have made their variables."""
        target, home = self._accumulator._target, self._accumulator._replicas
        variables = [
            (_name(variable), tuple(raw.shape.as_list()))
            for variable, raw in zip(target.variables, target.raw)
        ]
        self._followed = self._session.followed(self._number, variables)
        snapshots = self._session.snapshots
        if snapshots is None and self._followed is not None:
            snapshots = self._followed.snapshots
        self._snapshots = None if snapshots is None else frozenset(snapshots)
        self._log = self._session.log(self._manifest, self._accumulator.name, self._snapshots)
        # What a program restores comes later, and is its own: to compare, and to begin from.
        begins = self._followed is not None and self._followed.has(0)
        if begins and not self._followed.was_restored():
            BACKEND.at_top_level(lambda: home.in_scope(self._begin_as_followed))

    def gradients_came_first(self, gradients):
        """Called where the accumulator was built with gradients at hand.

        They may be of the weights as they were.
        """
        self._follows_first = not tf.executing_eagerly() and not _all_from_outside(gradients)

    def loss_of_next(self, loss):
        """Called on each replica with the loss of the micro-batch whose gradients come next."""
        self._losses[_replica()] = loss

    def micro_batch(self, gradients, weight, count):
        """Called on each replica when a micro-batch is added.

        Args:
            gradients, weight: as they came.
            count: the cycle's micro-batches, with this one.
        """
        return self._micro_batch(gradients, weight, count, self._accumulator)

    def _micro_batch(self, gradients, weight, count, accumulator):
        _refuse_xla()
        replica = _replica()

        def begin(count, weight, loss):
            self._log.loss(replica, int(count) - 1, float(weight), _or_none(loss))
            return np.array(self._log.wants_micro_batches())

        def call(count, weight, *flat):
            self._log.micro_batch(replica, int(count) - 1, float(weight), layout(flat))

        layout, flat = _flattened(gradients, self._shapes())
        loss = self._losses.pop(replica, float("nan"))
        # Where it is no scalar, the gradients are those of its sum.
        first = [count, _number(weight), tf.reduce_sum(tf.cast(loss, tf.float64))]
        if tf.executing_eagerly():
            if begin(*[_array(each) for each in first]):
                _hand_over(call, first[:2] + flat)
            return []
        # Handing over a micro-batch's gradients takes as long as the rest of an update, and is of
        # use in few cycles.
        wanted = _python(begin, first, [tf.bool])[0]
        wanted.set_shape([])
        done = tf.cond(
            wanted,
            lambda: _python_done(call, first[:2] + flat),
            lambda: tf.constant(True),
        )
        if accumulator._reduction.shares_state:
            return [done]
        # In a tf.function the update waits for what was written to a variable, and not for a call
        # of Python: so zero is added to what it reads of each replica. Another micro-batch that is
        # added meanwhile loses nothing by that.
        with tf.control_dependencies([done.op]):
            return [_state.add(accumulator._cycle.weight_exact, tf.zeros([], tf.float64))]

    def before(self, gradients, total, came):
        """Called on each replica right before the optimizer is.

        Args:
            gradients: what the optimizer gets, None for a variable that has no gradient.
            total: the total weight of all replicas.
            came: for each variable whether it had a gradient in the cycle, which a
                graph cannot know when it is built.
        """
        _refuse_xla()
        cycle, replicas = self._accumulator._cycle, self._accumulator._replicas.count
        # In a graph each replica's ops are made by a thread, and each trace has its own tensors.
        number = _state.read(cycle.update_count)
        if not self._records_here():
            return []
        rate, iterations = self._learning_rate(), self._iterations()
        slots = [sorted(each) for each in self._slot_variables()]
        values = [
            _read(each[name])
            for each, names in zip(self._slot_variables(), slots)
            for name in names
        ]
        layout, flat = _flattened(gradients, self._shapes())

        def call(number, count, total, came, rate, iterations, *arrays):
            weights, arrays = arrays[: len(slots)], arrays[len(slots) :]
            held, rest = _named(slots, arrays)
            number = int(number)
            followed = (
                self._followed is not None
                and (number > 0 or self._follows_first)
                and self._followed.began(number, weights)
            )
            self._log.before(
                number,
                int(count) * replicas,
                float(total),
                _or_none(rate),
                self._counted(iterations),
                [each if mark else None for mark, each in zip(came, layout(rest))],
                weights,
                held,
                followed,
            )

        return _hand_over(
            call,
            [number, _state.read(cycle.micro_count), _number(total), came, rate, iterations]
            + [_read(each) for each in self._accumulator._target.raw]
            + values
            + flat,
        )

    def after(self):
        """Called on each replica right after the optimizer, before the update is counted."""
        number = _state.read(self._accumulator._cycle.update_count)
        ops = []
        if self._records_here():
            # A reference variable is written to in place, whoever holds its value.
            kept = [
                np.asarray if hasattr(_state.local(each), "handle") else np.array
                for each in self._accumulator._target.raw
            ]

            def call(iterations, *weights):
                self._log.after(
                    [keep(each) for keep, each in zip(kept, weights)], self._counted(iterations)
                )

            ops = _hand_over(
                call, [self._iterations()] + [_read(each) for each in self._accumulator._target.raw]
            )
        if self._followed is None:
            return ops
        with tf.control_dependencies([] if tf.executing_eagerly() else ops):
            return ops + self._follow(number + 1)

    # Following

    def _begin_as_followed(self):
        """Has the training begin from the followed record's first state."""
        variables = list(self._accumulator._target.raw) + [
            each[name] for each in self._slot_variables() for name in sorted(each)
        ]
        keys = self._keys()
        if tf.executing_eagerly():
            home = self._accumulator._replicas
            # A variable made in a function that is being traced has no value before it is assigned.
            self._log.initial(
                {
                    key: _array(home.first(_plain_read(each)))
                    for key, each in zip(keys, variables)
                    if _has_value(_raw(each))
                }
            )
            for variable, value in zip(variables, self._values(0)):
                _assign(_raw(variable), value)
            return
        # In a graph: each initializer is followed by an assignment.
        for key, variable in zip(keys, variables):
            for component in self._accumulator._replicas.local(_raw(variable)):
                self._initialized_as_followed(key, component)

    def _initialized_as_followed(self, key, variable):
        position = self._keys().index(key)

        def call(value):
            self._log.initial({key: value})
            return _value_or(value, self._values(0)[position])

        with tf.control_dependencies([variable.initializer]):
            own = _float(variable.read_value())
            value = _python(call, [own], [own.dtype])[0]
            value.set_shape(variable.shape)
            variable._initializer_op = tf.compat.v1.assign(
                variable, tf.cast(value, variable.dtype.base_dtype)
            ).op

    def _follow(self, number):
        """Sets this replica's weights and slots if the followed record has this update's state."""
        variables = list(self._accumulator._target.raw) + [
            each[name] for each in self._slot_variables() for name in sorted(each)
        ]
        variables = [_state.local(_raw(each)) for each in variables]
        if tf.executing_eagerly():
            if self._followed.has(int(number)):
                for variable, value in zip(variables, self._values(int(number))):
                    _assign(variable, value)
            return []
        due = _python(
            lambda number: np.array(self._followed.has(int(number))), [number], [tf.bool]
        )[0]
        due.set_shape([])

        def assigned():
            dtypes = [_float(each).dtype for each in variables]
            values = _python(
                lambda number, *own: [
                    _value_or(*each) for each in zip(own, self._values(int(number)))
                ],
                [number] + [_float(_plain_read(each)) for each in variables],
                dtypes,
            )
            ops = []
            for variable, value in zip(variables, values):
                value.set_shape(variable.shape)
                ops.append(tf.compat.v1.assign(variable, tf.cast(value, variable.dtype.base_dtype)))
            with tf.control_dependencies(ops):
                return tf.constant(True)

        return [tf.cond(due, assigned, lambda: tf.constant(False))]

    def _values(self, number):
        """The values to assign at an update: weights, then slots in their order.

        None for what stays as it is.
        """
        names = [sorted(each) for each in self._slot_variables()]
        weights, slots = self._followed.values(number, names, self._rule, self._generation)
        return weights + [held.get(name) for held, wanted in zip(slots, names) for name in wanted]

    def _keys(self):
        keys = ["weight_%d" % index for index in range(len(self._slot_variables()))]
        return keys + [
            "slot_%d_%s" % (index, name)
            for index, each in enumerate(self._slot_variables())
            for name in sorted(each)
        ]

    # The things to record

    def _records_here(self):
        """Whether this replica records: the first one of all, and of all workers."""
        if self._accumulator._options.reducer is not None:
            horovod = sys.modules.get("horovod.tensorflow")
            if horovod is not None and horovod.rank() > 0:
                return False
        # TensorFlow 1.14 numbers the replicas of each worker from 0.
        several = self._accumulator._reduction.several_processes
        return _replica() == 0 and (recording.is_chief() or not several)

    def _shapes(self):
        return [tuple(shape.as_list()) for shape in self._accumulator._target.shapes]

    def _slot_variables(self):
        """For each variable its slots by canonical names, in an order of their own."""
        if self._slots is None:
            self._slots = _slots.slots_of(self._optimizer, self._accumulator._target.variables)
        return self._slots

    def _learning_rate(self):
        try:
            rate = _slots.learning_rate_of(self._optimizer)
            return _number(float("nan") if rate is None else _plain_read(_raw(rate)))
        except Exception:  # an optimizer of someone's own
            return _number(float("nan"))

    def _iterations(self):
        """A tensor of one number, or of Adam's two powers, or of none."""
        found = _slots.iterations_of(self._optimizer)
        if found is None:
            return np.zeros([0])
        if isinstance(found, tuple):
            return tf.stack([tf.cast(_read(each), tf.float64) for each in found])
        return tf.reshape(tf.cast(_read(found), tf.float64), [1])

    def _counted(self, given):
        given = np.asarray(given)
        if given.size == 2:
            betas = _slots.betas_of(self._optimizer)
            return (
                None if betas is None else _slots.iterations_of_powers(given[0], given[1], *betas)
            )
        return int(given[0]) if given.size else None

    def _manifest(self):
        accumulator = self._accumulator
        options, home, target = accumulator._options, accumulator._replicas, accumulator._target
        in_strategy = not type(home.strategy).__name__.startswith("_Default")
        eager = BACKEND.outermost_graph() is None if self._home_graph() is None else False
        return {
            "schema": _format.SCHEMA,
            "run": self._session.run,
            "number": self._number,
            "gradaccum_compat": gradaccum_compat.__version__,
            "tensorflow": _detect.backend().tensorflow_version,
            "python": platform.python_version(),
            "numpy": _detect.numpy_version(),
            "platform": platform.platform(),
            "devices": _devices() if eager else [],
            "context": "eager" if eager else "graph",
            "strategy": _without_v1(type(home.strategy).__name__) if in_strategy else None,
            "replicas": home.count,
            "options": {
                "steps": options.steps if isinstance(options.steps, int) else None,
                "loss_reduction": options.loss_reduction,
                "dtype": tf.as_dtype(options.dtype).name,
                "clip_norm": options.clip_norm,
                "adaptive_clip": options.adaptive_clip,
                "nonfinite": options.nonfinite,
            },
            "optimizer": {
                "class": type(self._optimizer).__name__,
                "module": type(self._optimizer).__module__,
                "generation": self._generation,
                "settings": self._settings,
            },
            "variables": [
                {"name": _name(variable), "shape": shape.as_list(), "dtype": dtype.name}
                for variable, shape, dtype in zip(target.variables, target.shapes, target.dtypes)
            ],
            "slots": [sorted(each) for each in self._slot_variables()],
            "sketch": {"seed": _sketch.SEED, "size": _sketch.SIZE},
            "snapshots": "default" if self._snapshots is None else sorted(self._snapshots),
            "followed": self._session.follow if self._followed is not None else None,
        }

    def _home_graph(self):
        return self._accumulator._replicas.graph


class _OnAnotherReplica(object):
    """The Recorder of an accumulator that was made on another replica than the first.

    The first one's Recorder does all but hand over micro-batches.
    """

    def __init__(self, first, accumulator):
        self._first, self._accumulator = first, accumulator

    def built(self):
        pass

    def gradients_came_first(self, gradients):
        pass

    def loss_of_next(self, loss):
        self._first.loss_of_next(loss)

    def micro_batch(self, gradients, weight, count):
        return self._first._micro_batch(gradients, weight, count, self._accumulator)


# Between TensorFlow and NumPy


def _hand_over(function, values):
    """Calls function with arrays, now or when the returned ops run."""
    if tf.executing_eagerly():
        function(*[_array(each) for each in values])
        return []
    return [_python_done(function, values)]


def _python_done(function, values):
    """A scalar True, once function has been called."""
    done = _python(lambda *arrays: (function(*arrays), np.array(True))[1], values, [tf.bool])[0]
    done.set_shape([])
    return done


def _python(function, values, dtypes):
    """A function of arrays as an op of a graph, which runs each time. Returns its tensors."""
    results = tf.numpy_function(function, values, dtypes)
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _array(value):
    if isinstance(value, tf.Tensor) and value.dtype in (tf.float16, tf.bfloat16):
        value = tf.cast(value, tf.float32)
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def _float(tensor):
    """NumPy of TF 1.14 has no bfloat16."""
    return (
        tf.cast(tensor, tf.float32)
        if tensor.dtype.base_dtype in (tf.float16, tf.bfloat16)
        else tensor
    )


def _flattened(gradients, shapes):
    """The tensors of gradients, and a function that makes gradients of their arrays."""
    kinds, flat = [], []
    for gradient in gradients:
        if gradient is None:
            kinds.append(0)
        elif isinstance(gradient, tf.IndexedSlices):
            kinds.append(2)
            flat.extend([_float(tf.convert_to_tensor(gradient.values)), gradient.indices])
        else:
            kinds.append(1)
            flat.append(_float(tf.convert_to_tensor(gradient)))

    def layout(arrays):
        arrays = iter(arrays)
        found = []
        for kind, shape in zip(kinds, shapes):
            found.append(
                None
                if not kind
                else next(arrays) if kind == 1 else (next(arrays), next(arrays), shape)
            )
        return found

    return layout, flat


def _named(names, arrays):
    arrays = list(arrays)
    held = []
    for each in names:
        held.append(dict(zip(each, arrays)))
        arrays = arrays[len(each) :]
    return held, arrays


def _raw(variable):
    return _arguments.raw_variable(variable)


def _plain_read(variable):
    """A variable's value as it is when this runs; anything else as it is."""
    return variable.read_value() if hasattr(variable, "read_value") else variable


def _has_value(variable):
    return not hasattr(variable, "is_initialized") or bool(variable.is_initialized())


def _read(variable):
    """This replica's value of a variable, in a type that NumPy has."""
    return _float(_plain_read(_state.local(_raw(variable))))


def _number(value):
    return np.float64(value) if isinstance(value, numbers.Real) else tf.cast(value, tf.float64)


def _or_none(number):
    number = float(number)
    return number if number == number else None


def _assign(variable, value):
    if value is not None:
        variable.assign(tf.cast(value, variable.dtype))


def _value_or(own, value):
    return own if value is None else np.array(value, own.dtype)


def _replica():
    """The number of the replica that asks, among all; 0 outside of replicas."""
    context = tf.distribute.get_replica_context()
    number = 0 if context is None else context.replica_id_in_sync_group
    if isinstance(number, numbers.Integral):
        return int(number)
    return int(number.numpy() if tf.executing_eagerly() else tf.get_static_value(number))


def _all_from_outside(gradients):
    """Whether all gradients came into the function that is being traced as its arguments."""
    tensors = [getattr(each, "values", each) for each in gradients if each is not None]
    return all(
        getattr(getattr(each, "op", None), "type", "Placeholder") == "Placeholder"
        for each in tensors
    )


def _name(variable):
    """Keras 3's names are not unique; its paths are."""
    return str(getattr(variable, "path", None) or variable.name)


def _devices():
    # Before TF 2.1 it is in `experimental`, and 1.14 has none.
    for module in (tf.config, tf.config.experimental):
        if hasattr(module, "list_logical_devices"):
            return [each.name for each in module.list_logical_devices()]
    return []


def _refuse_xla():
    """XLA calls no Python: what it compiles cannot be recorded."""
    if compiled_by_xla():
        raise errors.RecordError(
            "Recording calls Python in each update, and XLA compiles none.",
            "an accumulator that is called in a function that XLA compiles",
            "Leave out jit_compile=True (compile(jit_compile=False) in Keras) while you record; or"
            " train without recording: the numbers are the same.",
        )


def _without_v1(name):
    """TF 1 has a twin of each strategy's class."""
    return name[: -len("V1")] if name.endswith("V1") else name
