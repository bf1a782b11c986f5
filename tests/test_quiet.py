"""No call of ours makes TensorFlow or Python warn: old TensorFlows tell of what they will drop, once for each place."""

from __future__ import absolute_import, division, print_function

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def test_no_call_makes_tensorflow_warn():
    paths = os.pathsep.join([os.path.dirname(HERE), HERE])
    output = subprocess.check_output([sys.executable, os.path.join(HERE, "quiet_program.py")],
                                     env=dict(os.environ, PYTHONPATH=paths), universal_newlines=True)
    assert json.loads(output.splitlines()[-1]) == []
