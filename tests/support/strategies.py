"""The distribution strategies as modes of the contract, behind the face that modes.py has.

A case hands in micro-batches of one machine, and its reference stays that of one machine: each
micro-batch is the share of one replica, in turn, and the others hand in None with a weight of zero.
So no replica sees what the others see, and all of them have to end with the same weights.
"""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from support import modes, replicas

_made = {}


class Distributed(modes.Function):
    """Every call is a tf.function around strategy.run, a trace for each layout and each replica
    that has it."""

    small = 2

    def _make(self, values, optimizer, variable, options):
        # For plain_apply(); made when it is asked for.
        self._plain = lambda: modes.Eager(values, optimizer, variable)
        self._reduction, self._turn = options.get("loss_reduction"), 0
        with self.strategy().scope():
            super(Distributed, self)._make(values, optimizer, variable, options)

    @classmethod
    def strategy(cls):
        if cls not in _made:
            _made[cls] = cls._strategy()
        return _made[cls]

    @classmethod
    def _strategy(cls):
        raise NotImplementedError

    def _spread(self, function):
        strategy = self.strategy()
        return (strategy.run if hasattr(strategy, "run") else strategy.experimental_run_v2)(
            function
        )

    def _local(self, value):
        return self.strategy().experimental_local_results(value)

    def _one(self, value):
        results = [each.numpy() for each in self._local(value)]
        assert (
            len(set(each.tobytes() for each in results)) == 1
        ), "the replicas disagree: {}".format(results)
        return results[0]

    def weights(self):
        if callable(self._plain):
            # A Keras variable keeps TensorFlow's in its value.
            return [
                self._one(each if callable(each.value) else each.value) for each in self.variables
            ]
        return self._plain.weights()

    def plain_apply(self, gradients):
        """On one machine, without the strategy."""
        if callable(self._plain):
            self._plain = self._plain()
        self._plain.plain_apply(gradients)

    def _run(self, name, call):
        if name not in self._calls:
            asked_outside = isinstance(getattr(type(self.accumulator), name), property)
            self._calls[name] = tf.function(call if asked_outside else lambda: self._spread(call))
        return self._one(self._calls[name]())

    def _run_with(self, method, gradients, weight):
        owner, layout = self._turn % self.strategy().num_replicas_in_sync, modes.kinds(gradients)
        self._turn += 1
        weight = tf.convert_to_tensor(weight)
        key = (method, owner, layout, modes.shapes(gradients), weight.dtype)
        if key not in self._calls:

            def call(flat, weight):
                return self._spread(
                    lambda: getattr(self.accumulator, method)(
                        *self._share(owner, layout, flat, weight)
                    )
                )

            self._calls[key] = self._decorate(
                call, modes.specs(gradients), tf.TensorSpec(weight.shape, weight.dtype)
            )
        return self._one(self._calls[key](modes.flatten(gradients), weight))

    def _share(self, owner, layout, flat, weight):
        if replicas.replica() == owner:
            return modes.unflatten(layout, flat), weight
        # The weight of a global mean is that of all replicas' examples.
        return [None] * len(layout), (
            weight if self._reduction == "global_mean" else tf.zeros_like(weight)
        )

    def gradients(self):
        layout = []

        def call():
            layout.append(
                [
                    None if each is None else self._local(each)[0]
                    for each in self.accumulator.gradients()
                ]
            )
            return [tf.convert_to_tensor(each) for each in modes._flatten_tensors(layout[-1])]

        flat = tf.function(call)()
        return modes._like(layout[-1], [each.numpy() for each in flat])


class OneDevice(Distributed):

    @classmethod
    def _strategy(cls):
        return tf.distribute.OneDeviceStrategy("/cpu:0")


class CentralStorage(Distributed):

    @classmethod
    def _strategy(cls):
        replicas.look_often()
        return tf.distribute.experimental.CentralStorageStrategy(
            compute_devices=["/cpu:%d" % index for index in range(replicas.COUNT)],
            parameter_device="/cpu:0",
        )


class Mirrored(Distributed):

    @classmethod
    def strategy(cls):
        return replicas.strategy()


ALL = [OneDevice, CentralStorage, Mirrored]

#: The strategies that each module of the contract runs under, besides the modes; of each only what
#: it alone can show. Several replicas can break any of these. One device with a strategy around it
#: has its own way to be asked (test_meaning) and to hand gradients over (test_missing_gradients);
#: replicas that share their variables add up what differs in kind (test_sparse), and
#: tests/distributed/ has more on them. The other modules are about calls, types, graphs or
#: checkpoints.
OF_MODULE = {
    "test_meaning": ALL,
    "test_missing_gradients": [OneDevice, Mirrored],
    "test_nonfinite": [Mirrored],
    "test_schedule": [Mirrored],
    "test_sparse": [CentralStorage, Mirrored],
}
