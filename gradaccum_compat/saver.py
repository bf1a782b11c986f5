"""Saver: a tf.compat.v1.train.Saver that knows which variables of a graph are accumulators.

A plain Saver saves them with everything else and restores them in mid-cycle. What it cannot do is restore a
checkpoint that was written before there were any: MonitoredTrainingSession and Estimator restore all or nothing.
"""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

v1 = tf.compat.v1

#: The graph collection with the names of all accumulators' variables; strings, so that a MetaGraph can hold it.
_COLLECTION = "gradaccum_compat/state"
#: What a Saver for a part of the variables has in common with the one for all.
_SHARED_OPTIONS = ("reshape", "sharded", "restore_sequentially", "filename")


def note_state(variables):
    """Has the graph remember an accumulator's variables; eager code has no Saver."""
    if not tf.executing_eagerly():
        for variable in variables:
            v1.add_to_collection(_COLLECTION, _name(variable))


class Saver(v1.train.Saver):
    """A tf.compat.v1.train.Saver that also restores checkpoints in which accumulators are missing, or are others.

    Everything else is restored from such a checkpoint, and a fresh cycle begins. Use it in a
    tf.compat.v1.train.Scaffold, which MonitoredTrainingSession and EstimatorSpec take, or wherever a Saver is used.

    Example:
        >>> scaffold = tf.compat.v1.train.Scaffold(saver=ga.Saver())   # doctest: +SKIP

    Args:
        var_list: as for tf.compat.v1.train.Saver.
        **options: the other ones of tf.compat.v1.train.Saver, as keywords.
    """

    def __init__(self, var_list=None, **options):
        self._var_list_given = var_list
        if var_list is None and not tf.distribute.in_cross_replica_context() and tf.distribute.has_strategy():
            # In a replica, as model functions are, what is on all replicas cannot be saved: Scaffold builds it outside.
            options["defer_build"] = True
        self._shared_options = {name: options[name] for name in _SHARED_OPTIONS if name in options}
        super(Saver, self).__init__(var_list, **options)

    def build(self):
        if not getattr(self, "_is_built", False):
            self._build_for_others()
        super(Saver, self).build()

    def _build_for_others(self):
        """Makes what restores a checkpoint without the accumulators."""
        given, state = self._var_list_given, set(v1.get_collection(_COLLECTION))
        if not isinstance(given, dict):
            everything = _all_saved() if given is None else list(given)
            self._state = {_name(each): each for each in everything if _name(each) in state}
            # A list, as it came: names of partitions are the Saver's business.
            others = [each for each in everything if _name(each) not in state]
        else:
            self._state = {name: each for name, each in given.items() if _name(each) in state}
            others = {name: each for name, each in given.items() if name not in self._state}
        self._others = v1.train.Saver(others, allow_empty=True, **self._shared_options) if self._state else None
        self._begin = v1.variables_initializer(list(self._state.values()))

    def restore(self, sess, save_path):
        if self._others is None or self._has_all(save_path):
            return super(Saver, self).restore(sess, save_path)
        v1.logging.warning("%s does not have these accumulators: everything else is restored from it, and a fresh "
                           "cycle begins.", save_path)
        self._others.restore(sess, save_path)
        return sess.run(self._begin)

    def _has_all(self, save_path):
        if not v1.train.checkpoint_exists(save_path):
            return True  # for the error that a plain Saver raises
        shapes = v1.train.NewCheckpointReader(save_path).get_variable_to_shape_map()
        return all(shapes.get(name) == each.shape.as_list() for name, each in self._state.items())


def _all_saved():
    return v1.global_variables() + v1.get_collection(v1.GraphKeys.SAVEABLE_OBJECTS)


def _name(variable):
    return variable.name.split(":")[0]
