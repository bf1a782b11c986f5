"""What the package asks of TensorFlow and Keras, and what it replaces in them, read in its source.

A new question or a new patch is seen here: it is written where the others are, or gets its line
below, with the reason.
"""

from __future__ import absolute_import, division, print_function

import ast

import pytest
from test_source import ONLY_READER, PACKAGE, python_files, read, strings

#: Where TensorFlow is asked for a feature.
ASKING = ("backends", "optimizers", "wrap")
#: What else may ask: it tells the user what there is, and changes nothing by it.
TELLING = {PACKAGE + "/cli/doctor.py"}
TENSORFLOW = {"tf", "v1", "tensorflow"}

#: Attributes of TensorFlow's and Keras's objects that are set, by file and as they are written
#: there. optimizers/patches.py sets and takes away those of `attributes`. Where one of them
#: vanishes the test beside it fails.
PATCHES = {
    # The numbers of replicas that restore a sum: TF up to 2.3. tests/distributed/test_elastic.py
    "backends/base.py": {
        "saveable.restore",
        "variable._gather_saveables_for_checkpoint",
        "setattr(each)",  # AutoGraph's mark, TF 1.14. tests/costs/test_eager_calls.py
        "op._set_attr",  # A conditional that is one op, every version. tests/costs/test_costs.py
    },
    # Sums over replicas, every version. tests/distributed/test_replicas.py
    "optimizers/patches.py": {"attributes(context)"},
    # Updates of one variable, every version. tests/contract/test_updates_in_turn.py
    "optimizers/updates.py": {"attributes(optimizer)"},
    # Objects of Keras that are copied past their __init__. tests/wrap/test_mixed_precision.py
    "wrap/loss_scale.py": {
        "object.__setattr__(twin)",
        "object.__setattr__(view)",
        "self._accumulation.hand_over.plain.iterations",
    },
    # A wrapped optimizer sets what the user sets on the plain one. tests/wrap/test_optimizer.py
    "wrap/wrapped.py": {
        "delattr(self.__dict__[].hand_over.plain)",
        "setattr(self.__dict__[].hand_over.plain)",
        "wrapped.__dict__[]",
    },
    # What a loss is a mean over, TF 2.2 on. tests/keras/test_exact_cycles.py
    "keras/loss_divisor.py": {
        "self._loss.__call__",
        "loss.__dict__[]",
        "loss.__dict__.pop(str)",
        "loss._allow_sum_over_batch_size",
        "tensor._keras_mask",
    },
    "keras/loss_weight.py": {
        "self._model.__dict__[]",
        "self._model.__dict__.pop(name)",
        "self._model.train_function",
    },
    # A followed record begins with its own weights. tests/upgrade/test_record_follow.py
    "upgrade/_recorder.py": {"variable._initializer_op"},
}
#: Objects of ours, by the name that they have where an attribute of theirs is set.
OURS = {
    "accumulation",
    "accumulation.hand_over",
    "cell",
    "copied",
    "cycle",
    "found",
    "hand_over",
    "made",
    "package",
    "part",
    "self",
    "self._accumulation",
    "self._accumulation.hand_over",
    "self._calls",
    "self._cycle",
    "self._report",
    "self.hand_over",
    "size",
    "slices",
    "updates",
    # Of functions and threads, and not of TensorFlow's.
    "_here",
    "_of_thread",
    "microbatch_gradients",
    "sum_over_workers",
    "thread",
    "unconverted",
}


def named(node):
    """A target as it is written, with what is in brackets left out."""
    if isinstance(node, ast.Attribute):
        return "{}.{}".format(named(node.value), node.attr)
    if isinstance(node, ast.Subscript):
        return named(node.value) + "[]"
    if isinstance(node, ast.Call):
        return named(node.func) + "()"
    return getattr(node, "id", "str" if strings(node) else "?")


def assigned(node):
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    return [
        each for target in targets for each in (getattr(target, "elts", None) or [target]) if each
    ]


def patched(source):
    """The attributes of objects that are not ours, as they are set in a source."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.Delete)):
            for target in assigned(node):
                name = named(target)
                if isinstance(target, ast.Attribute) and named(target.value) not in OURS:
                    found.add(name)
                if isinstance(target, ast.Subscript) and name.endswith(".__dict__[]"):
                    found.add(name)
        elif isinstance(node, ast.Call):
            name = named(node.func)
            first = named(node.args[0]) if node.args else ""
            if name in ("setattr", "delattr", "object.__setattr__") and first not in OURS:
                found.add("{}({})".format(name, first))
            if name.endswith((".__dict__.pop", ".__dict__.update")):
                found.add("{}({})".format(name, first))
            if name.endswith("._set_attr"):
                found.add(name)
            if name in ("attributes", "patches.attributes"):
                found.add("attributes({})".format(first))
    return {each for each in found if not each.startswith(("self.__dict__[]", "package."))}


def asked(source):
    """The lines that ask a module of TensorFlow's whether it has something."""
    return sorted(
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and (named(node.func) == "hasattr" or named(node.func) == "getattr" and node.args[2:])
        and named(node.args[0]).split(".")[0] in TENSORFLOW
    )


@pytest.mark.parametrize(
    "line, found",
    [
        ("tf.function = faster", {"tf.function"}),
        ("optimizer.apply_gradients = mine", {"optimizer.apply_gradients"}),
        ("optimizer.__dict__['x'] = 1", {"optimizer.__dict__[]"}),
        ("a, model.step = 1, 2", {"model.step"}),
        ("setattr(variable, 'handle', None)", {"setattr(variable)"}),
        ("del layer.call", {"layer.call"}),
        ("patches.attributes(context, make)", {"attributes(context)"}),
        ("tensor.op._set_attr('T', other)", {"tensor.op._set_attr"}),
        ("self.x = tf.ones([])", set()),
        ("x = optimizer.apply_gradients", set()),
    ],
)
def test_scan_sees_a_patch(line, found):
    assert patched(line + "\n") == found


@pytest.mark.parametrize("path", python_files(PACKAGE))
def test_replaces_nothing_that_is_not_listed(path):
    inside = path.replace("\\", "/")[len(PACKAGE) + 1 :]
    assert patched(read(path)) == PATCHES.get(inside, set())


@pytest.mark.parametrize(
    "line, found",
    [
        ("hasattr(tf.distribute.Strategy, 'run')", [1]),
        ("getattr(v1.keras, 'backend', None)", [1]),
        ("getattr(tf.keras, 'backend')", []),
        ("hasattr(variable, 'handle')", []),
    ],
)
def test_scan_sees_a_question(line, found):
    assert asked(line + "\n") == found


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in python_files(PACKAGE)
        if path.replace("\\", "/").split("/")[1] not in ASKING
        and path.replace("\\", "/") not in TELLING
        and path != ONLY_READER
    ],
)
def test_asks_tensorflow_for_no_feature(path):
    assert asked(read(path)) == []
