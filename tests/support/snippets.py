"""The examples on our pages: found, run, and compared with the output that stands below them.

The line before a block says what it is, `<!-- snippet: name; for: tf2 -->`, and may say what it
needs of TensorFlow, `<!-- snippet: name; for: tf2; needs: tf.keras.Model.train_step -->`. The block
after it is its output.
"""

from __future__ import absolute_import, division, print_function

import collections
import io
import os
import re
import runpy
import sys

import gradaccum_compat as ga
from support import processes
from support.processes import ROOT

#: A fenced block, and the comment in the line before it, "" where there is none.
Block = collections.namedtuple("Block", ["comment", "language", "text"])
#: An example: its name, what it is for, the names that it needs, its code, and the block that
#: follows.
Snippet = collections.namedtuple("Snippet", ["name", "purpose", "needs", "code", "following"])

#: What an example may be for: each TensorFlow, those of a backend, those with tf.estimator, or
#:     Horovod's workers.
SNIPPET = re.compile(
    r"snippet: ([\w-]+); for: (any|tf1|tf2|estimator|horovod)(?:; needs: ([\w. ]+))?$"
)


def read(name):
    with io.open(os.path.join(ROOT, *name.split("/")), encoding="ascii") as source:
        return source.read()


def blocks_of(text):
    fenced = re.compile(r"(?:^<!-- ([^\n]+) -->\n)?^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return [Block(match.group(1) or "", *match.groups()[1:]) for match in fenced.finditer(text)]


def snippets_of(blocks):
    return [
        Snippet(*(SNIPPET.match(block.comment).groups() + (block.text, following)))
        for block, following in zip(blocks, blocks[1:])
        if SNIPPET.match(block.comment)
    ]


def for_here(snippets):
    """Those that the TensorFlow at hand can run alone; tests/with_horovod runs Horovod's, on
    several workers."""
    here = ["any", ga.backend().name] + ["estimator"] * hasattr(
        sys.modules["tensorflow"], "estimator"
    )
    return [
        each
        for each in snippets
        if each.purpose in here and all(is_there(name) for name in (each.needs or "").split())
    ]


def is_there(name):
    """Whether TensorFlow has the name, which begins with `tf.`."""
    found = sys.modules["tensorflow"]
    for part in name.split(".")[1:]:
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def run(code, folder):
    """Runs an example, in this process unless it has to begin with another state of TensorFlow."""
    path = folder.join("example.py")  # a file: AutoGraph reads sources
    path.write(code)
    # Here eager execution is on already, and the collectives of a second MirroredStrategy in one
    # process clash with the first one's.
    if "enable_eager_execution" in code or "MirroredStrategy(" in code:
        printed, code = processes.output_of(
            [path], folder.join("printed"), errors=folder.join("errors")
        )
        sys.stdout.write(printed)
        assert code == 0, folder.join("errors").read()
    else:
        runpy.run_path(str(path))
