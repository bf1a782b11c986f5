"""Accumulation in fit(): ours beside Keras 3's gradient_accumulation_steps and the package
gradient-accumulator.

    python benchmarks/compare_fit.py      runs what is here, and adds it to the results
    python benchmarks/compare_fit.py NAME...    runs these alone
    python benchmarks/compare_fit.py --table    prints the table of all results

Each cell trains with micro-batches, and says how far the weights end from those of the big batch:
the largest difference, or the name of the error that came instead. Rows of what is uneven or masked
have ga.keras.ExactCycles() among our callbacks. gradient-accumulator needs a TensorFlow up to 2.12
or so.
"""

from __future__ import absolute_import, division, print_function

import json
import os
import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga

try:
    import gradient_accumulator
except ImportError:
    gradient_accumulator = None

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "results", "compare_fit.json")
TABLE = os.path.join(HERE, "results", "compare_fit.md")
STEPS, MICRO, FEATURES, TARGETS, TOKENS, IDS = 4, 4, 5, 2, 6, 9
BIG = STEPS * MICRO
LIMIT = 1e-6
keras = tf.keras


# What is compared: each makes a model that accumulates from a functional one and a plain optimizer


def ours(model, make):
    return model, ga.wrap_optimizer(make(), steps=STEPS)


def keras_3(model, make):
    return model, make(gradient_accumulation_steps=STEPS)


def model_of_gradient_accumulator(model, make):
    wrapped = gradient_accumulator.GradientAccumulateModel(
        accum_steps=STEPS,
        experimental_distributed_support=tf.distribute.has_strategy(),
        inputs=model.input,
        outputs=model.output,
    )
    return wrapped, make()


def optimizer_of_gradient_accumulator(model, make):
    return model, gradient_accumulator.GradientAccumulateOptimizer(make(), accum_steps=STEPS)


def contenders():
    found = [("gradaccum_compat", ours)]
    if hasattr(keras, "Variable"):
        found.append(("Keras 3's gradient_accumulation_steps", keras_3))
    if gradient_accumulator is not None:
        found.append(("gradient-accumulator, model", model_of_gradient_accumulator))
        found.append(("gradient-accumulator, optimizer", optimizer_of_gradient_accumulator))
    return found


# Training


def network():
    inputs = keras.layers.Input(shape=(FEATURES,))
    hidden = keras.layers.Dense(7, activation="tanh")(inputs)
    return keras.Model(inputs, keras.layers.Dense(TARGETS)(hidden))


def tagger():
    """A model of token ids whose predictions carry the embedding's mask."""
    ids = keras.layers.Input(shape=(TOKENS,))
    vectors = keras.layers.Embedding(IDS, 7, mask_zero=True)(ids)
    return keras.Model(ids, keras.layers.Dense(1)(vectors))


def data(examples):
    random = np.random.RandomState(0)
    return random.randn(examples, FEATURES).astype("f"), random.randn(examples, TARGETS).astype("f")


def sentences(examples):
    """Sentences of one to six tokens, padded with zeros, and a number for each token."""
    random = np.random.RandomState(0)
    lengths = random.randint(1, TOKENS + 1, (examples, 1))
    ids = random.randint(1, IDS, (examples, TOKENS))
    padded = np.where(np.arange(TOKENS) < lengths, ids, 0)
    return padded, random.randn(examples, TOKENS, 1).astype("f")


def weighed(examples):
    """Examples with sample weights."""
    return data(examples) + (np.random.RandomState(1).rand(examples).astype("f") * 3,)


def begin(model):
    random = np.random.RandomState(1)
    model.set_weights([random.randn(*each.shape).astype("f") / 2 for each in model.get_weights()])
    return model


def trained(
    make,
    accumulate=None,
    examples=32,
    strategy=None,
    callbacks=(),
    problem=(network, data),
    loss="mse",
    **options
):
    """The weights that fit() ends with; with a function that accumulates, in micro-batches."""
    build, made = problem
    with (strategy or tf.distribute.get_strategy()).scope():
        weights = begin(build())
        model, moving = accumulate(weights, make) if accumulate else (weights, make())
        model.compile(optimizer=moving, loss=loss, **options)
    size = MICRO if accumulate else BIG
    batches = tf.data.Dataset.from_tensor_slices(made(examples)).batch(size)
    model.fit(batches, epochs=2, verbose=0, callbacks=list(callbacks))
    return weights.get_weights()


def difference(got, want):
    return float(max(np.max(np.abs(each - other)) for each, other in zip(got, want)))


def against_the_big_batch(make, strategy=None, our_callbacks=(), **options):
    """A cell's function: trains both ways, alike."""

    def cell(accumulate):
        callbacks = [each() for each in our_callbacks if accumulate is ours]
        got = trained(
            make, accumulate, strategy=strategy and strategy(), callbacks=callbacks, **options
        )
        return difference(got, trained(make, **options))

    return cell


# The rows


def optimizer(name, *args, **fixed):
    return lambda **options: getattr(keras.optimizers, name)(*args, **dict(fixed, **options))


def decaying(**options):
    return keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.2, 2, 0.5), **options)


_strategies = []


def two_replicas():
    if not _strategies:
        _strategies.append(tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]))
    return _strategies[0]


def none_last(accumulate):
    """One cycle of apply_gradients; one of two variables has no gradient in its last
    micro-batch."""
    make = optimizer("SGD", 0.5)
    kind = getattr(keras, "Variable", tf.Variable)
    variables = [kind(np.ones(2, "f")), kind(np.ones(3, "f"))]
    if accumulate is model_of_gradient_accumulator:
        return "no optimizer"
    moving = accumulate(None, make)[1]
    for number in range(STEPS):
        gradients = [
            tf.fill([2], 1.0 + number),
            None if number == STEPS - 1 else tf.fill([3], 1.0 + number),
        ]
        moving.apply_gradients(zip(gradients, variables))
    return difference(
        [each.numpy() for each in variables],
        [1 - 0.5 * np.full(2, (1 + 2 + 3 + 4) / 4.0), 1 - 0.5 * np.full(3, (1 + 2 + 3) / 4.0)],
    )


def mean_with_sample_weight():
    try:
        return keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    except ValueError:
        return None


def exactly(strategy=None, **options):
    """With ExactCycles for ours; the others have nothing like it."""
    momentum = optimizer("SGD", 0.2, momentum=0.9)
    return against_the_big_batch(momentum, strategy, [ga.keras.ExactCycles], **options)


ROWS = [
    ("SGD", against_the_big_batch(optimizer("SGD", 0.2))),
    ("SGD with momentum", against_the_big_batch(optimizer("SGD", 0.2, momentum=0.9))),
    ("Adam", against_the_big_batch(optimizer("Adam", 0.1))),
    ("a learning rate that decays with every update", against_the_big_batch(decaying)),
    (
        "moving average of the weights (use_ema)",
        against_the_big_batch(optimizer("SGD", 0.2, use_ema=True, ema_momentum=0.5)),
    ),
    ("a last cycle of 2 micro-batches, of 4", exactly(examples=24)),
    ("a last micro-batch of 2 examples, of 4", exactly(examples=30)),
    ("the same, 3 micro-batches in an execution", exactly(examples=30, steps_per_execution=3)),
    ("padded sentences with a mask", exactly(problem=(tagger, sentences))),
    (
        "sample weights that the loss divides by",
        exactly(problem=(network, weighed), loss=mean_with_sample_weight()),
    ),
    ("None as a cycle's last gradient", none_last),
    (
        "compiled by XLA (jit_compile=True)",
        against_the_big_batch(optimizer("Adam", 0.1), jit_compile=True),
    ),
    (
        "two replicas under MirroredStrategy, SGD",
        against_the_big_batch(optimizer("SGD", 0.2), strategy=two_replicas),
    ),
    (
        "two replicas under MirroredStrategy, Adam",
        against_the_big_batch(optimizer("Adam", 0.1), strategy=two_replicas),
    ),
    (
        "two replicas, a last micro-batch of 1 and 2 examples",
        exactly(examples=31, strategy=two_replicas),
    ),
    (
        "two replicas, padded sentences with a mask",
        exactly(problem=(tagger, sentences), strategy=two_replicas),
    ),
]


def measure(cell, accumulate):
    """The cell's number, or the name of what it raised."""
    try:
        value = cell(accumulate)
    except Exception as error:  # whatever a contender raises is its result
        print("   ", type(error).__name__, str(error).strip().splitlines()[-1][:300])
        return type(error).__name__
    return value


def run(wanted):
    columns = {}
    for name, accumulate in contenders():
        if wanted and name not in wanted:
            continue
        columns[name] = {}
        for title, cell in ROWS:
            unknown = (
                title.startswith("moving")
                and not hasattr(keras.optimizers.Optimizer, "update_step")
                or title.startswith("sample weights")
                and mean_with_sample_weight() is None
            )
            columns[name][title] = "not in this Keras" if unknown else measure(cell, accumulate)
            print("%-40s %-60s %s" % (name, title, columns[name][title]))
            sys.stdout.flush()
    return columns


# Results


def saved():
    if not os.path.exists(RESULTS):
        return {}
    with open(RESULTS) as file:
        return json.load(file)


def shown(value):
    if not isinstance(value, float):
        return "{}".format(value)
    return "{} {:.0e}".format("yes," if value <= LIMIT else "**no**,", value)


def table(results):
    columns = [
        (version, name)
        for version in sorted(
            results, key=lambda each: [int(part) for part in each.split(".")[:2]], reverse=True
        )
        for name in sorted(results[version], key=_ours_first)
    ]
    lines = [
        "| Ends with the big batch's weights | "
        + " | ".join("{}, TF {}".format(name, version) for version, name in columns)
        + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for title, _ in ROWS:
        cells = [shown(results[version][name].get(title, "not run")) for version, name in columns]
        lines.append("| {} | {} |".format(title, " | ".join(cells)))
    return "\n".join(lines) + "\n"


def _ours_first(name):
    return name != "gradaccum_compat", name


def main(arguments):
    results = saved()
    if "--table" not in arguments:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )
        if not os.path.isdir(os.path.dirname(RESULTS)):
            os.makedirs(os.path.dirname(RESULTS))
        results.setdefault(tf.__version__, {}).update(run(arguments))
        with open(RESULTS, "w") as file:
            json.dump(results, file, indent=1, sort_keys=True)
        with open(TABLE, "w") as file:
            file.write(table(results))
    print(table(results))


if __name__ == "__main__":
    main(sys.argv[1:])
