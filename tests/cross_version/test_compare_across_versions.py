"""compare between the oldest TensorFlow and the newest: clean pairs, and what is planted.

GRADACCUM_OLD and GRADACCUM_NEW name the Pythons of the two. Each side trains once for all cases of
a process.
"""

from __future__ import absolute_import, division, print_function

import json
import os
import subprocess

import pytest

pytest.importorskip("numpy")

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(os.path.dirname(HERE), "support", "compared_training.py")

MOMENTUM = {"settings": {"momentum": 0.9}}
EPSILON = {"settings": {"epsilon": 1e-7}}

#: {case: (options of the old side, options of the new side, the causes)}
CASES = {
    "sgd": ({}, {"optimizer": "keras.SGD"}, []),
    "sgd in a function": ({"mode": "function"}, {"optimizer": "keras.SGD", "permute": True}, []),
    "momentum": (
        dict(MOMENTUM, optimizer="v1.Momentum"),
        dict(MOMENTUM, optimizer="keras.SGD"),
        [],
    ),
    "nesterov": (
        {"optimizer": "v1.Momentum", "settings": {"momentum": 0.9, "use_nesterov": True}},
        {"optimizer": "keras.SGD", "settings": {"momentum": 0.9, "nesterov": True}},
        [],
    ),
    "adam": (dict(EPSILON, optimizer="v1.Adam"), dict(EPSILON, optimizer="keras.Adam"), []),
    "keras adam": ({"optimizer": "keras.Adam"}, {"optimizer": "keras.Adam"}, []),
    "amsgrad": (
        {"optimizer": "keras.Adam", "settings": {"amsgrad": True}},
        {"optimizer": "keras.Adam", "settings": {"amsgrad": True}},
        [],
    ),
    "adagrad": ({"optimizer": "v1.Adagrad"}, {"optimizer": "keras.Adagrad"}, []),
    "adadelta": (
        dict(EPSILON, optimizer="v1.Adadelta"),
        dict(EPSILON, optimizer="keras.Adadelta"),
        [],
    ),
    "ftrl": ({"optimizer": "v1.Ftrl"}, {"optimizer": "keras.Ftrl"}, []),
    "deep": (
        {"optimizer": "v1.Adam", "relu": True, "deep": 4, "settings": {"epsilon": 1e-7}},
        {"optimizer": "keras.Adam", "relu": True, "deep": 4},
        [],
    ),
    "defaults of adam": ({"optimizer": "v1.Adam"}, {"optimizer": "keras.Adam"}, ["epsilon"]),
    "placement": (
        {"optimizer": "keras.RMSprop"},
        {"optimizer": "keras.RMSprop"},
        ["epsilon-placement"],
    ),
    "placement and decay": (
        {"optimizer": "keras.RMSprop"},
        {"optimizer": "keras.RMSprop", "settings": {"weight_decay": 0.01}},
        ["epsilon-placement", "weight-decay"],
    ),
    "placement and schedule": (
        {"optimizer": "keras.RMSprop", "rates": [0.05, 0.05, 0.05, 0.05, 0.05]},
        {"optimizer": "keras.RMSprop", "rates": [0.05, 0.04, 0.03, 0.02, 0.01]},
        ["epsilon-placement", "schedule"],
    ),
    "placement and clipping": (
        {"optimizer": "keras.RMSprop"},
        {"optimizer": "keras.RMSprop", "settings": {"clipnorm": 0.1}},
        ["clipping", "epsilon-placement"],
    ),
    "slots of rmsprop": (
        dict(EPSILON, optimizer="v1.RMSProp"),
        dict(EPSILON, optimizer="keras.RMSprop"),
        ["slot-initial-value"],
    ),
    "convention": (
        dict(MOMENTUM, optimizer="v1.Momentum", rates=[0.1, 0.1, 0.01, 0.01, 0.01]),
        dict(MOMENTUM, optimizer="keras.SGD", rates=[0.1, 0.1, 0.01, 0.01, 0.01]),
        ["momentum-convention"],
    ),
    "rows": (
        dict(MOMENTUM, optimizer="v1.Momentum", sparse=True),
        dict(MOMENTUM, optimizer="keras.SGD", sparse=True),
        ["sparse-rule"],
    ),
    "scale": ({}, {"optimizer": "keras.SGD", "scale": 3.0}, ["gradient-scale"]),
    "regularizer": (
        dict(EPSILON, optimizer="v1.Adam"),
        {"optimizer": "keras.Adam", "l2": 1e-4},
        ["regularizer"],
    ),
    "half": ({}, {"optimizer": "keras.SGD", "half": "bfloat16"}, ["half-precision"]),
}


def trained(variable, folder, cases):
    python = os.environ[variable]
    if not os.path.exists(python):
        pytest.skip("the row of {} is not built".format(python))
    root = os.path.dirname(os.path.dirname(HERE))
    environment = dict(os.environ, PYTHONPATH=root, TF_CPP_MIN_LOG_LEVEL="3")
    process = subprocess.Popen(
        [python, "-W", "ignore", PROGRAM, folder, json.dumps(cases)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    said = process.communicate()[0].decode("utf-8", "replace")
    assert process.returncode == 0, said[-3000:]


@pytest.fixture(scope="module")
def records(tmpdir_factory):
    folder = tmpdir_factory.mktemp("records")
    for place, variable in enumerate(("GRADACCUM_OLD", "GRADACCUM_NEW")):
        cases = {}
        for name in CASES:
            cases[name] = dict({"updates": 5}, **CASES[name][place])
            if place:
                cases[name]["follow"] = str(folder.join("old", name))
        trained(variable, str(folder.mkdir(("old", "new")[place])), cases)
    return folder


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_oldest_and_the_newest(records, name):
    from gradaccum_compat.upgrade import comparing

    found = comparing.compare(str(records.join("old", name)), str(records.join("new", name)))
    assert [each.id for each in found.causes] == CASES[name][2], str(found)
    assert found.verdict == ("different" if CASES[name][2] else "same"), str(found)
