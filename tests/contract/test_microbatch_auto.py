"""steps="auto": the largest slice that fits, found by steps that really run out of memory."""

from __future__ import absolute_import, division, print_function

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from gradaccum_compat.microbatch import size
from gradaccum_compat.microbatch.batch import Batch
from support import replicas

v1, errors = tf.compat.v1, ga.errors
#: Elements of 4 bytes that no machine has.
TOO_MANY = 2**45
#: The sizes of the slices that memory_for had no room for.
REFUSED = []


@pytest.fixture(autouse=True)
def _nothing_refused():
    del REFUSED[:]


def memory_for(examples, room):
    """1.0 where there is room, and otherwise what TensorFlow makes of a kernel that got no
    memory."""

    def allocate(examples, room):
        if examples > room:
            REFUSED.append(int(examples))
            raise MemoryError("out of memory")
        return np.float32(1.0)

    return tf.numpy_function(allocate, [examples, room], tf.float32)


def really_memory_for(examples, room):
    """The same with a tensor that no machine has memory for; TensorFlow may wait 10 s for some to
    become free."""
    elements = tf.where(examples > room, tf.constant(TOO_MANY, tf.int64), tf.constant(1, tf.int64))
    # On random numbers: TF 1.14 makes nothing of a fill that is reduced at once.
    return 1.0 + 0.0 * tf.reduce_max(tf.random.uniform([elements]))


class Model(object):
    """A loss that fits for slices of up to `room` examples, and notes the size of each slice that
    it saw whole."""

    def __init__(self, room, memory=memory_for):
        self.room, self.memory = room, memory
        self.variable = tf.Variable([1.0, 1.0])
        self.written = tf.Variable(0.0, trainable=False)
        self.traces = []

    def loss(self, x):
        self.traces.append(1)
        examples = tf.shape(x)[0]
        loss = tf.reduce_mean(tf.reduce_sum(x * self.variable, 1))
        with tf.control_dependencies([self.written.assign_add(1.0)]):
            activations = self.memory(examples, self.room)
        return loss * activations, examples, examples

    def run(self, examples):
        x = np.arange(2 * examples, dtype=np.float32).reshape(examples, 2)
        big = ga.microbatch_gradients(self.loss, [self.variable], tf.constant(x), "auto")
        np.testing.assert_allclose(big.gradients[0].numpy(), x.mean(0), rtol=1e-6)
        assert big.weight.numpy() == examples
        return list(big.extras.numpy())


def test_takes_the_whole_batch_where_it_fits():
    model = Model(8)
    assert model.run(8) == [8] and model.written.numpy() == 1


def test_halves_until_it_fits():
    assert Model(2).run(8) == [2, 2, 2, 2]
    assert REFUSED == [8, 4]


def test_a_kernel_that_really_gets_no_memory():
    assert Model(4, really_memory_for).run(8) == [4, 4]


def test_a_failed_try_leaves_no_trace_in_the_state():
    """Two tries fail after they have counted; what is left is one count for each slice of the
    third."""
    model = Model(2)
    model.run(8)
    assert model.written.numpy() == 4


def test_what_fits_is_remembered_for_batches_of_all_sizes():
    model = Model(3)
    assert model.run(10) == [3, 3, 2, 2]
    assert REFUSED == [10, 5]
    assert model.run(10) == [3, 3, 2, 2] and model.run(9) == [3, 3, 3]
    assert model.run(3) == [3] and model.run(5) == [3, 2]
    assert REFUSED == [10, 5]


def test_another_batch_of_the_same_steps_is_no_new_trace():
    model = Model(3)
    model.run(10)
    model.traces.append("next")
    assert model.run(11) == [3, 3, 3, 2]
    assert model.traces[-1] == "next"


def test_a_batch_that_fits_says_nothing_about_a_larger_one():
    model = Model(6)
    assert model.run(2) == [2] and model.run(6) == [6]


def test_is_remembered_for_a_lambda_that_is_made_anew():
    model = Model(2)

    def run(factor):
        def loss_fn(x):
            return model.loss(x)[0] * factor

        return ga.microbatch_gradients(loss_fn, [model.variable], tf.ones([8, 2]), "auto")

    assert list(run(1.0).gradients[0].numpy()) == [1.0, 1.0]
    assert REFUSED == [8, 4]
    assert list(run(3.0).gradients[0].numpy()) == [3.0, 3.0]
    assert REFUSED == [8, 4]


def test_one_example_that_does_not_fit_is_said():
    model = Model(0)
    with pytest.raises(tf.errors.ResourceExhaustedError):
        model.run(4)
    assert model.written.numpy() == 0


def test_another_failure_is_no_reason_to_try_again():
    variable, traces = tf.Variable([1.0]), []

    def loss_fn(x):
        traces.append(1)
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(x < 0), ["no"])]):
            return tf.reduce_mean(x * variable)

    with pytest.raises(tf.errors.InvalidArgumentError):
        ga.microbatch_gradients(loss_fn, [variable], tf.ones([8, 1]), "auto")
    assert len(traces) <= 2


def test_none_and_rows():
    table, unused = tf.Variable(tf.ones([5, 2])), tf.Variable([1.0])

    def loss_fn(batch):
        return tf.reduce_mean(tf.gather(table, batch["ids"]))

    big = ga.microbatch_gradients(
        loss_fn, [table, unused], {"ids": tf.constant([3, 3, 1]), "none": None}, "auto"
    )
    assert sorted(big.gradients[0].indices.numpy()) == [1, 3]
    assert big.gradients[1] is None and big.extras is None


def test_control_flow_of_the_user_is_converted():
    variable = tf.Variable([2.0])

    def loss_fn(x):
        if tf.reduce_sum(x) > 0:
            loss = tf.reduce_mean(x * variable)
        else:
            loss = tf.reduce_mean(x * variable * variable)
        return loss

    for value, want in ((1.0, 1.0), (-1.0, -4.0)):
        big = ga.microbatch_gradients(loss_fn, [variable], tf.constant([[value]]), "auto")
        assert list(big.gradients[0].numpy()) == [want]


def test_variables_that_are_made_on_the_first_call():
    made = []

    def loss_fn(x):
        if not made:
            made.append(tf.Variable([1.0]))
        return tf.reduce_mean(x * made[0])

    big = ga.microbatch_gradients(loss_fn, lambda: made, tf.constant([[1.0], [3.0]]), "auto")
    np.testing.assert_array_equal(big.gradients[0].numpy(), [2.0])


# Replicas


def test_replicas_agree():
    """One replica has 8 examples and runs out, the other has 3 and would not: both take 4
    slices."""
    with replicas.strategy().scope():
        variable = tf.Variable([1.0])

    def loss_fn(x):
        examples = tf.shape(x)[0]
        memory = memory_for(examples, tf.where(x[0, 0] > 5.0, 2, 100))
        return tf.reduce_mean(x * variable) * memory, examples, examples

    def on_replica():
        first = replicas.replica() == 0
        x = tf.fill([8, 1], 7.0) if first else tf.constant([[1.0], [2.0], [3.0]])
        big = ga.microbatch_gradients(loss_fn, [variable], x, "auto")
        return big.gradients[0], big.extras

    for _ in range(2):
        gradients, sizes = [replicas.local(each)[:2] for each in replicas.run(on_replica)]
        assert [list(each.numpy()) for each in gradients] == [[7.0], [2.0]]
        assert [list(each.numpy()) for each in sizes] == [[2, 2, 2, 2], [1, 1, 1]]


# Errors


def test_needs_eager_code():
    variable = tf.Variable([1.0])

    def compute():
        return ga.microbatch_gradients(
            lambda x: tf.reduce_mean(x * variable), [variable], tf.ones([2, 1]), "auto"
        )

    with pytest.raises(errors.EagerRequiredError) as caught:
        tf.function(compute, autograph=False)()
    assert "eager" in str(caught.value) and "number of slices" in caught.value.remedy
    with tf.Graph().as_default(), pytest.raises(errors.EagerRequiredError):
        compute()


@pytest.mark.parametrize(
    "variables, batch, kind",
    [
        ([], (1.0,), errors.VariablesError),
        (None, (), errors.OptionError),
        (None, (tf.ones,), errors.OptionError),
    ],
)
def test_bad_input(variables, batch, kind):
    with pytest.raises(kind):
        ga.microbatch_gradients(
            tf.reduce_mean, [tf.Variable([1.0])] if variables is None else variables, batch, "auto"
        )


def test_nothing_of_the_user_s_is_kept_alive():
    """The sizes are numbers, and the traces go with their loss_fn."""
    model = Model(2)
    model.run(4)
    alive = [weakref.ref(model), weakref.ref(model.variable)]
    del model
    gc.collect()
    assert [each() for each in alive] == [None, None]


def test_the_size_is_not_another_variable_s():
    """A size found for variables that are gone is not taken for new ones of the same id."""

    def size_of(model):
        return size._size(model.loss, [model.variable], Batch(tf.ones([4, 2])))

    first, second = Model(2), Model(2)
    size_of(first).room = 3
    assert size_of(first).room == 3 and size_of(second).room is None
    assert not size_of(first).are([second.variable])
