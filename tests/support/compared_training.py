"""A small training with the Accumulator that records itself; what a test plants is told by options.

    python compared_training.py FOLDER CASES [THREADS]

CASES are JSON, {name: options}; each is recorded into FOLDER/name. THREADS is how many TensorFlow
may use.
"""

from __future__ import absolute_import, division, print_function

import functools
import json
import os
import sys

import numpy as np

if __name__ == "__main__":
    TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path[:0] = [TESTS, os.path.dirname(TESTS)]

from support import modes, replicas  # noqa: E402

ROWS, WIDTH, HIDDEN = 24, 8, 12


def optimizer_of(tf, name, rate, settings):
    """An optimizer by name: "v1.Adam", "keras.Adam" or "legacy.Adam"."""
    family, name = name.split(".")
    if family == "v1":
        return getattr(tf.compat.v1.train, name + "Optimizer")(rate, **settings)
    module = tf.keras.optimizers if family == "keras" else tf.keras.optimizers.legacy
    return getattr(module, name)(rate, **settings)


class Training(object):
    """An embedding, a hidden layer with tanh, an output: trained on random numbers that NumPy
    draws.

    Args:
        tf: TensorFlow.
        options: what differs from a clean run, see the defaults.
    """

    DEFAULTS = {
        "optimizer": "v1.GradientDescent",
        "rate": 0.05,
        "rates": None,  # by update, in place of `rate`
        "settings": {},
        "steps": 3,
        "cycles": None,  # micro-batches of each update, in place of `steps`
        "updates": 12,
        "mode": "eager",  # or "function", "compiled" by XLA, "session", "replicas"
        "examples": 10,  # of a micro-batch
        "seed": 0,
        "initial": 0,
        "scale": 1.0,  # of the loss
        "l2": 0.0,
        "clip_micro": None,
        "accumulator": {},
        "order": None,
        "half": None,
        "stop": [],
        "decay": 0.0,
        "permute": False,
        "overflow": None,
        "sparse": False,
        "uneven": False,
        "relu": False,
        "deep": 0,
        "centered": False,  # the bias has no effect: its gradient is rounding's alone
        "lost": None,  # before the last half of the updates: "slots" or "iterations"
    }

    def __init__(self, tf, **options):
        unknown = set(options) - set(self.DEFAULTS)
        assert not unknown, unknown
        self.tf = tf
        self.__dict__.update(self.DEFAULTS)
        self.__dict__.update(options)
        if self.mode == "replicas":
            with replicas.strategy().scope():
                self.make()
        elif self.mode == "session":
            self.graph = tf.Graph()
            with self.graph.as_default():
                self.make()
        else:
            self.make()

    def make(self):
        """Makes the variables and the optimizer."""
        tf = self.tf
        random = np.random.RandomState(self.initial)
        keras_3 = hasattr(tf.keras, "Variable") and not self.optimizer.startswith("v1.")
        make = tf.keras.Variable if keras_3 else tf.Variable
        if self.mode == "session":
            make = functools.partial(tf.compat.v1.Variable, use_resource=True)
        shapes = [("table", (ROWS, WIDTH)), ("kernel", (WIDTH, HIDDEN)), ("bias", (HIDDEN,))]
        shapes += [("deep_{}".format(index), (HIDDEN, HIDDEN)) for index in range(self.deep)]
        shapes += [("out", (HIDDEN, 3))]
        self.variables = [
            make((random.randn(*shape) * 0.4).astype(np.float32), name=name)
            for name, shape in shapes
        ]
        if self.rates:
            self.rate = tf.Variable(float(self.rates[0]), trainable=False, dtype=tf.float32)
        given = self.rate
        if self.rates and self.optimizer.startswith("v1."):
            given = lambda: self.rate.read_value()  # noqa: E731
        elif self.rates:
            given = float(self.rates[0])
        self.made = optimizer_of(tf, self.optimizer, given, self.settings)

    def set_rate(self, update):
        if not self.rates:
            return
        value = float(self.rates[update])
        self.rate.assign(value)
        if not self.optimizer.startswith("v1."):
            rate = self.made.learning_rate
            (
                rate.assign(value)
                if hasattr(rate, "assign")
                else setattr(self.made, "learning_rate", value)
            )

    def batch(self, number):
        random = np.random.RandomState(1000 * self.seed + number)
        examples = self.examples + (number % 3 if self.uneven else 0)
        rows = random.randint(0, ROWS - 6, examples)
        target = random.randn(len(rows), 3).astype(np.float32)
        if self.permute:
            order = np.random.permutation(len(rows))
            rows, target = rows[order], target[order]
        return rows.astype(np.int32), target

    def gradients(self, rows, target):
        tf = self.tf
        with tf.GradientTape() as tape:
            values = [tf.convert_to_tensor(each) for each in self.variables]
            tape.watch(values)
            activate = tf.nn.relu if self.relu else tf.tanh
            half = (lambda each: tf.cast(each, self.half)) if self.half else (lambda each: each)
            picked = tf.matmul(tf.one_hot(rows, ROWS), values[0])
            inner = tf.matmul(half(picked), half(values[1])) + half(values[2])
            inner = activate(inner - tf.reduce_mean(inner, axis=0) if self.centered else inner)
            for each in values[3:-1]:
                inner = activate(tf.matmul(inner, half(each)))
            error = tf.cast(tf.matmul(inner, half(values[-1])), tf.float32) - target
            loss = self.scale * tf.reduce_mean(tf.square(error))
            if self.l2:
                loss += self.l2 * sum(
                    tf.reduce_sum(tf.square(each)) for each in (values[1], values[-1])
                )
        found = tape.gradient(loss, values)
        if self.sparse:
            found = self.sparse_gradients(rows, target)
        if self.clip_micro:
            found = tf.clip_by_global_norm(found, self.clip_micro)[0]
        return [None if index in self.stop else each for index, each in enumerate(found)]

    def sparse_gradients(self, rows, target):
        tf = self.tf
        values = [tf.convert_to_tensor(each) for each in self.variables]
        picked = tf.gather(values[0], rows)
        with tf.GradientTape() as tape:
            tape.watch([picked] + values[1:])
            inner = tf.tanh(tf.matmul(picked, values[1]) + values[2])
            error = tf.matmul(inner, values[-1]) - target
            loss = self.scale * tf.reduce_mean(tf.square(error))
        found = tape.gradient(loss, [picked] + values[1:])
        return [tf.IndexedSlices(found[0], rows, dense_shape=tf.constant([ROWS, WIDTH]))] + found[
            1:
        ]

    def lose(self):
        """What a restore that does not know the optimizer's state leaves."""
        if self.lost == "iterations":
            self.made.iterations.assign(0)
            return
        every = self.made.variables() if callable(self.made.variables) else self.made.variables
        for each in every:
            if tuple(each.shape) != ():
                each.assign(np.zeros(tuple(each.shape), np.float32))

    def run(self):
        import gradaccum_compat as ga

        tf = self.tf
        if self.mode == "session":
            return self.run_in_a_session()
        accumulator = ga.Accumulator(self.made, self.variables, **self.accumulator)
        accumulate, apply = self.calls(accumulator)
        number = 0
        for update in range(self.updates):
            self.set_rate(update)
            if self.lost and update == self.updates // 2:
                self.lose()
            for _ in range(self.cycles[update] if self.cycles else self.steps):
                rows, target = self.batch(self.order[number] if self.order else number)
                if self.overflow == number:
                    target = target * np.float32("inf")
                accumulate(tf.constant(rows), tf.constant(target))
                number += 1
            before = [each.numpy() for each in self.variables] if self.decay else None
            apply()
            if self.decay:
                for variable, value in zip(self.variables, before):
                    variable.assign_sub(self.decay * value)

    def calls(self, accumulator):
        """What adds a micro-batch, and what updates, in the mode at hand."""
        tf = self.tf
        signature = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 3], tf.float32)]
        gradients = self.gradients
        if self.mode == "compiled":
            gradients = tf.function(gradients, **modes.JIT)

        def accumulate(rows, target):
            accumulator.accumulate(gradients(rows, target), weight=tf.shape(rows)[0])

        def on_replica(rows, target):
            first = tf.distribute.get_replica_context().replica_id_in_sync_group
            accumulate(rows[first :: replicas.COUNT], target[first :: replicas.COUNT])

        if self.mode == "function":
            return tf.function(accumulate, input_signature=signature), accumulator.apply
        if self.mode == "replicas":
            spread = tf.function(
                lambda rows, target: replicas.run(on_replica, (rows, target)),
                input_signature=signature,
            )
            return spread, tf.function(lambda: replicas.run(accumulator.apply))
        return accumulate, accumulator.apply

    def run_in_a_session(self):
        import gradaccum_compat as ga

        tf = self.tf
        with self.graph.as_default(), tf.compat.v1.Session() as session:
            rows = tf.compat.v1.placeholder(tf.int32, [None])
            target = tf.compat.v1.placeholder(tf.float32, [None, 3])
            accumulator = ga.Accumulator(self.made, self.variables, **self.accumulator)
            found = self.gradients(rows, target)
            accumulate = accumulator.accumulate(found, weight=tf.shape(rows)[0])
            apply = accumulator.apply()
            session.run(tf.compat.v1.global_variables_initializer())
            for number in range(self.updates * self.steps):
                session.run(accumulate, dict(zip([rows, target], self.batch(number))))
                if number % self.steps == self.steps - 1:
                    session.run(apply)


def main(folder, cases, threads=0):
    import tensorflow as tf

    if not tf.executing_eagerly():
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
        )
        tf.compat.v1.enable_eager_execution(config=config)
    elif threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    from gradaccum_compat import upgrade

    for name, options in sorted(cases.items()):
        with upgrade.record(os.path.join(folder, name), follow=options.pop("follow", None)):
            Training(tf, **options).run()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), *[int(each) for each in sys.argv[3:]])
