"""Reference variables, which graphs of TF 1 have unless they ask for resource variables."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.core import _arguments

v1 = tf.compat.v1


def refuse_where_conditionals_copy(variables):
    """Raises for a reference variable where a branch of tf.cond could not update it."""
    for variable in variables:
        if not can_be_updated_in_a_branch(_arguments.raw_variable(variable)):
            raise errors.VariablesError(
                "With control flow v2, which is on by default in TensorFlow 2, a reference variable"
                " cannot be updated in a conditional.",
                _arguments.describe(variable),
                "Make resource variables (use_resource=True, or"
                " tf.compat.v1.enable_resource_variables() where the program starts), which have"
                " the same names in a checkpoint; or call tf.compat.v1.disable_control_flow_v2()"
                " where the program starts.",
            )


def can_be_updated_in_a_branch(variable):
    """Whether a branch of tf.cond can write the variable: with control flow v2, a branch gets only
    the value of a reference variable."""
    return not getattr(variable.dtype, "_is_ref_dtype", False) or _conditionals_take_references()


def _conditionals_take_references():
    """Whether conditionals are of the older kind, which end in a Merge. TF 1.14 has no public
    function that says so."""
    with tf.Graph().as_default():
        one = tf.constant(1.0)
        return (
            tf.cond(v1.placeholder(tf.bool, []), lambda: one + one, lambda: one).op.type == "Merge"
        )
