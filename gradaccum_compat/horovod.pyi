from collections.abc import Sequence

import tensorflow as tf

def sum_over_workers(tensors: Sequence[tf.Tensor], name: str = "gradaccum") -> list[tf.Tensor]: ...
