"""A Saver's checkpoint, and how the names in it are matched with those here."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.core import _state

#: The name of what tells which sums an accumulator has in packs.
_PACKED = "/packed_shapes"


class Checkpoint(object):
    """A Saver's checkpoint: names, shapes and values.

    The small sums of an accumulator lie in packs there. Here each has a name of its own, sum_0 and
    so on, like the large ones.
    """

    def __init__(self, path):
        try:
            path = tf.train.latest_checkpoint(path) or path if tf.io.gfile.isdir(path) else path
            self._reader = tf.train.load_checkpoint(path)
        except Exception as error:  # as many types as there are versions and kinds of paths
            raise errors.OptionError(
                "checkpoint is what a Saver has written.",
                "{!r}: {:.200}".format(path, str(error)),
                "Pass what saver.save returned, such as model.ckpt-1000, without .index or .meta.",
            )
        self.shapes = self._reader.get_variable_to_shape_map()
        if "_CHECKPOINTABLE_OBJECT_GRAPH" in self.shapes:
            raise errors.OptionError(
                "carry_over takes checkpoints of tf.train.Saver, which go by names.",
                "one of tf.train.Checkpoint, at {!r}".format(path),
                "Restore it with tf.train.Checkpoint.",
            )
        self._packed = {}
        for name in [each for each in self.shapes if each.endswith(_PACKED)]:
            try:
                self._unpack(name[: -len(_PACKED)])
            except (ValueError, KeyError, tf.errors.OpError) as error:
                raise errors.OptionError(
                    "An accumulator's checkpoint tells what lies in its packed sums.",
                    "{} that does not fit them: {:.200}".format(name, str(error)),
                    "Save the checkpoint again, or train on from another one.",
                )

    def _unpack(self, prefix):
        for pack in _state.from_numbers(self._reader.get_tensor(prefix + _PACKED)):
            name = "{}/packed_{}".format(prefix, pack.dtype.name)
            for index, part in pack.parted(tf.constant(self._reader.get_tensor(name))).items():
                self._packed["{}/sum_{}".format(prefix, index)] = part.numpy()
            del self.shapes[name]
        del self.shapes[prefix + _PACKED]
        self.shapes.update((name, list(part.shape)) for name, part in self._packed.items())

    def value(self, name):
        return self._packed[name] if name in self._packed else self._reader.get_tensor(name)

    def with_suffix(self, name):
        """Names that are this one, or this one in scopes; the exact one alone if there is one."""
        if name in self.shapes:
            return [name]
        return sorted(each for each in self.shapes if each.endswith("/" + name))


def name_of(variable):
    """Keras 3's variables have a path, whose last part is their name."""
    return (getattr(variable, "path", None) or variable.name).split(":")[0]


def matching(name, names):
    """Positions of this name; where it is not among them, of those that it ends with, or that end
    with it."""
    exact = [position for position, each in enumerate(names) if each == name]
    return exact or [
        position
        for position, each in enumerate(names)
        if each.endswith("/" + name) or name.endswith("/" + each)
    ]


def only(found):
    return found[0] if len(found) == 1 else None


def some(names):
    names = list(names)
    return ", ".join(names[:8]) + (" and {} more".format(len(names) - 8) if len(names) > 8 else "")
