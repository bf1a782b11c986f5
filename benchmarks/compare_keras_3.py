"""Keras 3's gradient_accumulation_steps by version: what it gets wrong in each.

    python benchmarks/compare_keras_3.py FOLDER VERSION...

Installs each Keras into FOLDER, beside the TensorFlow of this Python, and runs the column of
compare_fit.py that is Keras's own. Writes results/compare_keras_3.md.
"""

from __future__ import absolute_import, division, print_function

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "results", "compare_keras_3.md")
COLUMN = """
import json, sys
sys.path.insert(0, {here!r})
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import compare_fit
names = [name for name, _ in compare_fit.contenders() if "Keras 3" in name]
(column,) = compare_fit.run(names).values()
titles = [title for title, _ in compare_fit.ROWS]
shown = [(each, compare_fit.shown(column[each])) for each in titles]
print("RESULT" + json.dumps([tf.__version__, tf.keras.__version__, shown]))
"""


def column(folder, version):
    place = os.path.join(folder, version)
    if not os.path.isdir(place):
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", place]
        subprocess.check_call(pip + ["keras==" + version])
    paths = [place, os.path.dirname(HERE)] + os.environ.get("PYTHONPATH", "").split(os.pathsep)
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(paths))
    program = [sys.executable, "-c", COLUMN.format(here=HERE)]
    said = subprocess.check_output(program, env=environment, universal_newlines=True)
    (line,) = [each for each in said.splitlines() if each.startswith("RESULT")]
    return json.loads(line[len("RESULT") :])


def main(folder, versions):
    columns = []
    for version in versions:
        columns.append(column(folder, version))
        print(columns[-1])
        sys.stdout.flush()
    heads = ["Keras {}, TF {}".format(keras, tf) for tf, keras, _ in columns]
    lines = [
        "| Ends with the big batch's weights | " + " | ".join(heads) + " |",
        "|---" * (len(heads) + 1) + "|",
    ]
    for cells in zip(*[shown for _, _, shown in columns]):
        row = [cells[0][0]] + [cell for _, cell in cells]
        lines.append("| " + " | ".join(row) + " |")
    with open(TABLE, "w") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
