"""Log: what an accumulator does, as arrays, on its way into a record. NumPy alone.

An update comes in two calls: before() with what the optimizer gets and begins from, after() with
the weights that it ends with. Its line is made and written by a thread of its own, while training
goes on with the next cycle; the next update waits for it. Whatever goes wrong with writing is said
once, and training goes on.
"""

from __future__ import absolute_import, division, print_function

import atexit
import functools
import os
import sys
import threading
import weakref

import numpy as np
from six.moves import queue

from gradaccum_compat.upgrade import _format, _sketch

#: The cycles whose micro-batches are recorded one by one, and how many sketches of them a line
#: holds at most.
FIRST_CYCLES = 3
_MOST_SKETCHES = 2**16
#: Where the gradients are so small that this costs little, as many cycles, and as many sketches.
_CYCLES_OF_SMALL, _SMALL, _SKETCHES_OF_SMALL = 30, 100000, 2**13


def is_snapshot(number, snapshots):
    """Whether the state of an update is recorded: of 0, 1, 2, 3, 10, 30, 100, 300, ...

    Unless told otherwise.
    """
    if snapshots is not None:
        return number in snapshots
    if number <= 3:
        return True
    while number % 10 == 0:
        number //= 10
    return number in (1, 3)


def say(text):
    """Says something to the user who runs the program.

    A warning could be made an error, and end the training.
    """
    try:
        sys.stderr.write("gradaccum_compat: {}\n".format(text))
        sys.stderr.flush()
    except Exception:  # no one listens
        pass


def _never_fails(method):
    """Recording ends with the first thing that goes wrong, and training does not."""

    @functools.wraps(method)
    def guarded(self, *args):
        with self._lock:
            if not self._on:
                return
            try:
                method(self, *args)
            except Exception as error:
                self._stop(error)

    return guarded


class Log(object):
    """The record of one accumulator.

    Args:
        session: says where to record, and until when.
        describe: function that returns the manifest, called when the first thing is recorded.
        name: the accumulator's.
        snapshots: numbers of updates, or None.
    """

    def __init__(self, session, describe, name, snapshots):
        self._session, self._describe, self._name, self._snapshots = (
            session,
            describe,
            name,
            snapshots,
        )
        self._lock = threading.RLock()
        self._on, self._writer, self._manifest = True, None, None
        self._initial, self._initial_is_written = {}, False
        self._recorded = 0  # updates
        self._cycles, self._sketched = _CYCLES_OF_SMALL, 0
        self._micro = {}  # micro-batches of the cycle at hand, by number and replica
        self._losses = {}  # their weights and losses, by the same
        self._line = self._state = self._weights = self._gradients = None
        self._worker = _Worker()
        reference = weakref.ref(self)
        atexit.register(lambda: reference() is not None and reference().close())

    @property
    def folder(self):
        return None if self._writer is None else self._writer.folder

    def close(self):
        self._worker.end()
        with self._lock:
            self._on = False
            if self._writer is not None:
                self._writer.close()

    @_never_fails
    def initial(self, arrays):
        """Keeps arrays as the program made them; what is not among them is what the first update
        begins from.

        Args:
            arrays: by their keys in a state.
        """
        self._initial.update((key, np.array(each)) for key, each in arrays.items())

    @_never_fails
    def loss(self, replica, count, weight, loss):
        """The loss of a micro-batch of one replica, None where the program gives none."""
        if count == 0:
            self._losses = {key: each for key, each in self._losses.items() if key[1] != replica}
        if loss is not None:
            self._losses[count, replica] = (weight, loss)

    def wants_micro_batches(self):
        """Whether micro-batches are recorded one by one in the cycle at hand."""
        return self._on and self._recorded + (self._line is not None) < self._cycles

    @_never_fails
    def micro_batch(self, replica, count, weight, gradients):
        """A micro-batch of one replica, whose cycle had `count` micro-batches before it."""
        if self._recorded >= self._cycles:
            return
        self._sketched += len(gradients)
        if not _are_small(gradients) or self._sketched > _SKETCHES_OF_SMALL:
            self._cycles = FIRST_CYCLES
        if count == 0:
            self._micro = {key: each for key, each in self._micro.items() if key[1] != replica}
        if len(self._micro) * len(gradients) < _MOST_SKETCHES:
            self._micro[count, replica] = (
                weight,
                [
                    None if each is None else _sketch.encode(_summary(each).sketch)
                    for each in gradients
                ],
            )

    @_never_fails
    def before(
        self,
        number,
        micro_batches,
        weight,
        learning_rate,
        iterations,
        gradients,
        weights,
        slots,
        followed,
    ):
        """What the optimizer is about to use.

        Args:
            number: how many updates came before.
            micro_batches: of the cycle, on all replicas.
            weight: of all of them.
            learning_rate: a number or None.
            iterations: the optimizer's, or None.
            gradients: for each variable an array, (values, rows, shape) with unique rows, or None.
            weights: an array for each variable.
            slots: for each variable {canonical name: array}.
            followed: whether weights and slots were taken from another record before the cycle
                began.
        """
        self._worker.wait()
        if not self._on:
            return
        self._begin()
        if not self._initial_is_written:
            first = {"iterations": np.int64(iterations)} if iterations is not None else {}
            first.update(self._arrays(weights, slots))
            first.update(self._initial)
            self._writer.initial(first)
            self._initial, self._initial_is_written = {}, True
        if self._weights is None:
            self._weights = [np.empty_like(each) for each in weights]
        for buffer, each in zip(self._weights, weights):
            np.copyto(buffer, each)
        self._gradients = gradients
        self._line = {
            "update": number,
            "micro_batches": micro_batches,
            "weight": _finite(weight),
            "learning_rate": _finite(learning_rate),
            "iterations": iterations,
            "loss": self._loss_of_cycle(),
            "followed": followed,
        }
        self._state = None
        if is_snapshot(number, self._snapshots) or not self._recorded:
            self._state = self._arrays(weights, slots)
            self._state.update(
                {
                    "gradient_%d" % index: _dense(each)
                    for index, each in enumerate(gradients)
                    if each is not None
                }
            )
            if iterations is not None:
                self._state["iterations"] = np.int64(iterations)
            if _finite(learning_rate) is not None:
                self._state["learning_rate"] = np.float64(learning_rate)

    @_never_fails
    def after(self, weights, iterations):
        """The weights that the optimizer leaves, not written to any more; its iterations."""
        line = self._line
        if line is None:
            return
        line["applied"] = (
            None in (iterations, line["iterations"]) or iterations > line["iterations"]
        )
        if self._recorded < self._cycles and self._micro:
            ordered = [self._micro[key] for key in sorted(self._micro)]
            line["micro_weights"] = [_finite(weight) for weight, _ in ordered]
            line["micro_sketches"] = [sketches for _, sketches in ordered]
        self._micro = {}
        given = line, self._state, self._gradients, weights
        self._line = self._state = self._gradients = None
        self._recorded += 1
        self._worker.do(lambda: self._write(*given))

    def _write(self, line, state, gradients, weights):
        """In the thread."""
        try:
            summary = _sketch.sketcher().summary
            line["gradient"] = [
                None if each is None else _format.as_json(_summary(each)) for each in gradients
            ]
            line["weights"] = [_format.as_json(summary(each)) for each in self._weights]
            line["update_"] = [
                _format.as_json(summary(each, minus=before))
                for each, before in zip(weights, self._weights)
            ]
            if state is not None:
                state.update({"after_%d" % index: each for index, each in enumerate(weights)})
                self._writer.state(line["update"], state)
            self._writer.update(line)
        except Exception as error:
            self._stop(error)

    def _arrays(self, weights, slots):
        arrays = {"weight_%d" % index: np.array(each) for index, each in enumerate(weights)}
        for index, named in enumerate(slots):
            arrays.update(
                {"slot_%d_%s" % (index, name): np.array(each) for name, each in named.items()}
            )
        return arrays

    def _begin(self):
        if self._writer is None:
            self._writer = _format.Writer(self._session.claim(self._name))
            self._manifest = self._describe()
            self._writer.manifest(self._manifest)

    def _loss_of_cycle(self):
        """The big batch's loss, by the rule that its gradient has; None where it is not known."""
        given = list(self._losses.values())
        self._losses = {}
        options, replicas = self._manifest["options"], self._manifest["replicas"]
        if options["nonfinite"] == "skip":
            given = [each for each in given if _finite(each[1]) is not None]
        total = sum(weight for weight, _ in given)
        if options["loss_reduction"] == "none":
            return _finite(sum(loss for _, loss in given)) if given else None
        if not total:
            return None
        if options["loss_reduction"] == "sum":
            return _finite(sum(loss for _, loss in given) / total)
        mean = sum(weight * loss for weight, loss in given) / total
        return _finite(mean * replicas if options["loss_reduction"] == "global_mean" else mean)

    def _stop(self, error):
        self._on = False
        self._line = self._state = self._gradients = None
        self._session.stopped(error)
        if self._writer is not None:
            self._writer.close()


class _Worker(object):
    """A thread that does one thing after another, made when there is the first."""

    def __init__(self):
        self._queue, self._process = queue.Queue(), None

    def do(self, function):
        if (
            self._process != os.getpid()
        ):  # a process that was forked has none of its parent's threads
            self._queue, self._process = queue.Queue(), os.getpid()
            thread = threading.Thread(target=_work, args=(self._queue,))
            thread.daemon = True
            thread.start()
        self._queue.put(function)

    def wait(self):
        """Returns when there is nothing to do any more."""
        if self._process == os.getpid():
            self._queue.join()

    def end(self):
        """The same, and the thread ends."""
        if self._process == os.getpid():
            self._queue.put(None)
            self._queue.join()
            self._process = None


def _work(things):
    while True:
        thing = things.get()
        if thing is not None:
            thing()
        things.task_done()
        if thing is None:
            return


def _are_small(gradients):
    arrays = [each[0] if isinstance(each, tuple) else each for each in gradients]
    return sum(each.size for each in arrays if each is not None) <= _SMALL


def _summary(gradient):
    if isinstance(gradient, tuple):
        return _sketch.sketcher().summary_of_rows(*_added_up(gradient))
    return _sketch.sketcher().summary(gradient)


def _added_up(slices):
    """(values, rows, shape) with each row once: a micro-batch may have one several times."""
    values, rows, shape = slices
    unique, positions = np.unique(rows, return_inverse=True)
    if len(unique) == len(rows):
        return slices
    sums = np.zeros((len(unique),) + values.shape[1:], values.dtype)
    np.add.at(sums, positions.reshape(-1), values)
    return sums, unique, shape


def _dense(gradient):
    if not isinstance(gradient, tuple):
        return np.array(gradient)
    values, rows, shape = gradient
    dense = np.zeros(shape, values.dtype)
    np.add.at(dense, rows, values)
    return dense


def _finite(number):
    """A float, or None for what JSON has no way to write."""
    number = None if number is None else float(number)
    return number if number is not None and number - number == 0 else None
