"""Sentences of all lengths, padded, with a loss that is a mean over tokens: weighted by the tokens
that are no padding.

The hand-written loop averages over batches, in which a word of a short sentence counts for more.
"""

from __future__ import absolute_import, division, print_function

import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from comparing import report, start_values

tf.compat.v1.enable_eager_execution()  # changes nothing on TF 2

WORDS, MICRO, STEPS, EPOCHS = 12, 4, 4, 5


def sentences():
    """Sentences in which each word says a lot about the next; 0 is the padding, so words begin with
    1."""
    random = np.random.RandomState(3)
    for _ in range(MICRO * STEPS * 2):
        word, sentence = random.randint(1, WORDS), []
        for _ in range(random.randint(2, 20)):
            sentence.append(word)
            word = 1 + (3 * word + random.randint(2)) % (WORDS - 1)
        yield np.array(sentence, np.int32)


def new_variables():
    embedding, kernel, bias = start_values((WORDS, 5), (5, WORDS), (WORDS,))
    return [tf.Variable(embedding), tf.Variable(kernel), tf.Variable(bias)]


def new_optimizer():
    return tf.compat.v1.train.AdamOptimizer(0.02)


def loss_and_tokens(variables, batch):
    """The mean loss over the batch's tokens, each of which has to tell the next; and how many they
    are."""
    embedding, kernel, bias = variables
    now, following = batch[:, :-1], batch[:, 1:]
    logits = tf.tensordot(tf.nn.embedding_lookup(embedding, now), kernel, 1) + bias
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=following, logits=logits)
    mask = tf.cast(following > 0, tf.float32)
    tokens = tf.reduce_sum(mask)
    return tf.reduce_sum(losses * mask) / tokens, tokens


def gradients_and_tokens(variables, batch):
    with tf.GradientTape() as tape:
        loss, tokens = loss_and_tokens(variables, batch)
    return tape.gradient(loss, variables), tokens


def batches(size):
    dataset = tf.data.Dataset.from_generator(sentences, tf.int32, tf.TensorShape([None]))
    for _ in range(EPOCHS):
        for batch in dataset.padded_batch(size, padded_shapes=[None]):
            yield batch


def values(variables):
    return [each.numpy() for each in variables]


def big_batch():
    variables, optimizer = new_variables(), new_optimizer()
    for batch in batches(MICRO * STEPS):
        gradients, _ = gradients_and_tokens(variables, batch)
        optimizer.apply_gradients(zip(gradients, variables))
    return values(variables)


def by_hand():
    variables, optimizer = new_variables(), new_optimizer()
    sums = [tf.Variable(tf.zeros_like(each), trainable=False) for each in variables]
    for number, batch in enumerate(batches(MICRO), start=1):
        gradients, _ = gradients_and_tokens(variables, batch)
        for total, gradient in zip(sums, gradients):
            total.assign_add(tf.convert_to_tensor(gradient) / STEPS)
        if number % STEPS == 0:
            optimizer.apply_gradients(zip([tf.identity(total) for total in sums], variables))
            for total in sums:
                total.assign(tf.zeros_like(total))
    return values(variables)


def with_library():
    variables, optimizer = new_variables(), new_optimizer()
    accumulator = ga.Accumulator(optimizer, variables, steps=STEPS)
    for batch in batches(MICRO):
        gradients, tokens = gradients_and_tokens(variables, batch)
        accumulator.step(gradients, weight=tokens)
    return values(variables)


if __name__ == "__main__":
    sys.exit(report("padded tokens", big_batch(), with_library(), {"mean of means": by_hand()}))
