"""Features that one Keras has and another lacks. Imports Keras, which takes seconds."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

#: fit() runs Model.train_step from TF 2.2 on: before, nothing can follow it.
FIT_HAS_A_STEP = hasattr(tf.keras.Model, "train_step")

#: tf.keras is Keras 3, which has variables of its own, from TF 2.16 on.
IS_KERAS_3 = hasattr(tf.keras, "Variable")
