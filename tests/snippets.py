"""The examples that stand in our pages: found, run, and compared with the output that stands below them.

A line before a block says what it is: `<!-- snippet: name; for: tf2 -->`. The block after it is its output.
"""

from __future__ import absolute_import, division, print_function

import collections
import io
import os
import re
import runpy
import subprocess
import sys

import gradaccum_compat as ga

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

#: A fenced block, and the comment in the line before it, "" where there is none.
Block = collections.namedtuple("Block", ["comment", "language", "text"])
#: An example: its name, what it is for, its code, and the block that follows.
Snippet = collections.namedtuple("Snippet", ["name", "purpose", "code", "following"])

#: What an example may be for: each TensorFlow, those of a backend, those with tf.estimator, or Horovod's workers.
SNIPPET = re.compile(r"snippet: ([\w-]+); for: (any|tf1|tf2|estimator|horovod)$")


def read(name):
    with io.open(os.path.join(ROOT, *name.split("/")), encoding="ascii") as source:
        return source.read()


def blocks_of(text):
    fenced = re.compile(r"(?:^<!-- ([^\n]+) -->\n)?^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return [Block(match.group(1) or "", *match.groups()[1:]) for match in fenced.finditer(text)]


def snippets_of(blocks):
    return [Snippet(*(SNIPPET.match(block.comment).groups() + (block.text, following)))
            for block, following in zip(blocks, blocks[1:]) if SNIPPET.match(block.comment)]


def for_here(snippets):
    """Those that the TensorFlow at hand can run alone; tests/with_horovod runs Horovod's, on several workers."""
    here = ["any", ga.backend().name] + ["estimator"] * hasattr(sys.modules["tensorflow"], "estimator")
    return [each for each in snippets if each.purpose in here]


def run(code, folder):
    """Runs an example, in this process unless it has to begin with another state of TensorFlow."""
    path = folder.join("example.py")  # a file: AutoGraph reads sources
    path.write(code)
    if "enable_eager_execution" in code:
        _run_alone(path)  # here it is on already
    else:
        runpy.run_path(str(path))


def _run_alone(path):
    paths = os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    subprocess.check_call([sys.executable, str(path)], env=dict(os.environ, PYTHONPATH=paths))
