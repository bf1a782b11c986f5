"""No call of ours makes TensorFlow or Python warn: old TensorFlows tell of what they will drop,
once for each place."""

from __future__ import absolute_import, division, print_function

import json
import subprocess

from support import processes


def test_no_call_makes_tensorflow_warn():
    output = subprocess.check_output(
        processes.command("quiet_program"),
        env=processes.environment(),
        universal_newlines=True,
    )
    assert json.loads(output.splitlines()[-1]) == []
