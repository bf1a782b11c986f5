"""Saver: a tf.compat.v1.train.Saver that knows which variables of a graph are accumulators.

A plain Saver saves them with everything else and restores them in mid-cycle. It cannot restore a
checkpoint that was written before there were any: MonitoredTrainingSession and Estimator restore
all or nothing.
"""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

v1 = tf.compat.v1

#: The graph collection with the names of all accumulators' variables; strings, so that a MetaGraph
#: can hold it.
_COLLECTION = "gradaccum_compat/state"
#: The ends of the names of variables that an accumulator may lack in what was saved of it:
#: statistics are an option.
_CAME_LATER = ("_statistics/last_update", "_statistics/squares")
#: The options that a Saver for some of the variables shares with the one for all.
_SHARED_OPTIONS = ("reshape", "sharded", "restore_sequentially", "filename")


def note_state(variables):
    """Has the graph remember an accumulator's variables; eager code has no Saver."""
    if not tf.executing_eagerly():
        for variable in variables:
            v1.add_to_collection(_COLLECTION, _name(variable))


def may_be_missing(variable):
    """Whether what was saved of an accumulator may lack a variable, which begins at zero then."""
    return _name(variable).endswith(_CAME_LATER)


class Saver(v1.train.Saver):
    """A tf.compat.v1.train.Saver that also restores checkpoints in which accumulators are missing,
    or are others.

    Everything else is restored from such a checkpoint, and a fresh cycle begins, as a warning says.
    Use it in a tf.compat.v1.train.Scaffold, which MonitoredTrainingSession and EstimatorSpec take,
    or wherever a Saver is used.

    Example:
        >>> scaffold = tf.compat.v1.train.Scaffold(saver=ga.Saver())

    Args:
        var_list: as for tf.compat.v1.train.Saver.
        **options: the other ones of tf.compat.v1.train.Saver, as keywords.
    """

    def __init__(self, var_list=None, **options):
        self._var_list_given = var_list
        if (
            var_list is None
            and not tf.distribute.in_cross_replica_context()
            and tf.distribute.has_strategy()
        ):
            # A model function runs in a replica, where the variables of all replicas cannot be
            # saved: Scaffold builds the Saver outside.
            options["defer_build"] = True
        self._shared_options = {name: options[name] for name in _SHARED_OPTIONS if name in options}
        super(Saver, self).__init__(var_list, **options)

    def build(self):
        if not getattr(self, "_is_built", False):
            self._build_for_others()
        super(Saver, self).build()

    def _build_for_others(self):
        """Makes what restores a checkpoint without the accumulators, or without a part of them."""
        given, names = self._var_list_given, set(v1.get_collection(_COLLECTION))
        if not isinstance(given, dict):
            everything = _all_saved() if given is None else list(given)
            self._state = {_name(each): each for each in everything if _name(each) in names}
        else:
            everything = given
            self._state = {name: each for name, each in given.items() if _name(each) in names}
        optional = [name for name, each in self._state.items() if may_be_missing(each)]
        self._ways = [self._without(everything, names) for names in (optional, list(self._state))]

    def _without(self, everything, left_out):
        """Returns these names, a Saver for the other variables, and an op that zeroes these."""
        if isinstance(everything, dict):
            others = {name: each for name, each in everything.items() if name not in left_out}
        else:
            # A list, as it came: names of partitions are the Saver's business.
            others = [each for each in everything if _name(each) not in left_out]
        saver = v1.train.Saver(others, allow_empty=True, **self._shared_options)
        begin = v1.variables_initializer([self._state[name] for name in left_out])
        return set(left_out), saver, begin

    def restore(self, sess, save_path):
        lacking = self._lacking(save_path)
        if not lacking:
            return super(Saver, self).restore(sess, save_path)
        left_out, saver, begin = next(way for way in self._ways if lacking <= way[0])
        if left_out == set(self._state):
            v1.logging.warning(
                "%s does not have these accumulators: everything else is restored from it, and a"
                " fresh cycle begins.",
                save_path,
            )
        saver.restore(sess, save_path)
        return sess.run(begin)

    def _lacking(self, save_path):
        """The names of the accumulators' variables that a checkpoint does not have."""
        if not self._state or not v1.train.checkpoint_exists(save_path):
            return set()  # for the error that a plain Saver raises
        shapes = v1.train.NewCheckpointReader(save_path).get_variable_to_shape_map()
        return set(
            name for name, each in self._state.items() if shapes.get(name) != each.shape.as_list()
        )


def _all_saved():
    return v1.global_variables() + v1.get_collection(v1.GraphKeys.SAVEABLE_OBJECTS)


def _name(variable):
    return variable.name.split(":")[0]
