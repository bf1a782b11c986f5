"""Sets TensorFlow up for the tests: eager execution, several logical CPUs, no chatter."""

from __future__ import absolute_import, division, print_function

import gc

LOGICAL_CPUS = 4


def set_up(tf):
    """Sets this process up, once, before TensorFlow has been used."""
    # Going over the many objects of TensorFlow and of graphs takes a sixth of the time. conftest
    # collects from time to time.
    gc.disable()
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    if not tf.executing_eagerly():
        config = tf.compat.v1.ConfigProto(device_count={"CPU": LOGICAL_CPUS})
        tf.compat.v1.enable_eager_execution(config=config)
        return
    experimental = tf.config.experimental
    cpu = experimental.list_physical_devices("CPU")[0]
    experimental.set_virtual_device_configuration(
        cpu, [experimental.VirtualDeviceConfiguration() for _ in range(LOGICAL_CPUS)]
    )
