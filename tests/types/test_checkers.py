"""pyright and mypy pass a user's program and catch mistakes in it; jedi completes and explains.

tox's row `types` runs this, with the stubs of TensorFlow and without TensorFlow.
"""

from __future__ import absolute_import, division, print_function

import json
import os
import re
import subprocess
import sys

import jedi
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))

BEGINNING = """\
import tensorflow as tf
import gradaccum_compat as ga
weight = tf.Variable(tf.constant(1.0))
adam = tf.keras.optimizers.Adam()
"""
#: The first line of each mistake is the faulty one.
MISTAKES = {
    "a misspelt option": "ga.Accumulator(adam, [weight], clipnorm=1.0)",
    "a misspelt option of wrap_optimizer": "ga.wrap_optimizer(adam, steps=4, non_finite='skip')",
    "steps in words": 'ga.Accumulator(adam, [weight], steps="four")',
    "steps in words for wrap_optimizer": 'ga.wrap_optimizer(adam, "four")',
    "steps in words for slices": 'ga.microbatch_gradients(abs, [weight], [1.0], steps="four")',
    "no steps": "ga.wrap_optimizer(adam)",
    "a reduction that there is not": 'ga.Accumulator(adam, [weight], loss_reduction="average")',
    "a weight in words": 'ga.Accumulator(adam, [weight]).step([None], weight="8")',
    "a name that there is not": "ga.Acumulator(adam, [weight])",
    "a method that there is not": "ga.Accumulator(adam, [weight]).accumulated([None])",
    "a property that is called": "ga.Accumulator(adam, [weight]).update_count()",
    "one gradient": "ga.Accumulator(adam, [weight]).step(1.0)",
    "a wrong return of step": "text: str = ga.Accumulator(adam, [weight]).step([None])",
    "a wrong return of gradients": "size: float = ga.Accumulator(adam, [weight]).gradients()",
    "a wrong return of backend": "number: int = ga.backend().tensorflow_version",
    "a wrong return of microbatch_gradients": (
        "x: int = ga.microbatch_gradients(abs, [weight], [1.0], 2).loss"
    ),
    "a wrong return of verify": ("fine: str = ga.upgrade.verify(abs, [weight], [1.0], 2).equal"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the program, and a file for each mistake."""
    folder = tmp_path_factory.mktemp("types")
    with open(os.path.join(HERE, "program.py")) as program:
        folder.joinpath("program.py").write_text(program.read())
    for name, line in MISTAKES.items():
        folder.joinpath(name.replace(" ", "_") + ".py").write_text(BEGINNING + line + "\n")
    return folder


def said(*command, **options):
    process = subprocess.Popen(
        [sys.executable, "-m"] + list(command),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        **options
    )
    return "".join(process.communicate())


@pytest.fixture(scope="module", params=["mypy", "pyright"])
def faults(request, folder):
    """The lines at which a checker finds faults, by file."""
    found = {}
    if request.param == "mypy":
        output = said("mypy", "--check-untyped-defs", ".", cwd=str(folder))
        assert re.search(r"(?m)^Found \d+ errors", output), output
        for name, line in re.findall(r"(?m)^(\w+)\.py:(\d+): error", output):
            found.setdefault(name, set()).add(int(line))
        return found
    folder.joinpath("pyrightconfig.json").write_text(json.dumps({"pythonVersion": "3.11"}))
    output = said("pyright", "--pythonpath", sys.executable, "--outputjson", cwd=str(folder))
    for each in json.loads(output[output.index("{\n") :])["generalDiagnostics"]:
        if each["severity"] == "error":
            name = os.path.basename(each["file"])[:-3]
            found.setdefault(name, set()).add(each["range"]["start"]["line"] + 1)
    return found


def test_a_user_s_program_has_no_fault(faults):
    assert faults.get("program") is None


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_a_mistake_is_found(faults, mistake):
    assert faults.get(mistake.replace(" ", "_")) == {BEGINNING.count("\n") + 1}


def script(end):
    return jedi.Script("import gradaccum_compat as ga\n" + end)


def test_jedi_completes_names():
    assert "Accumulator" in [each.name for each in script("ga.Acc").complete(2, 6)]


def test_jedi_completes_methods():
    code = "ga.Accumulator(None, []).acc"
    assert [each.name for each in script(code).complete(2, len(code))] == ["accumulate"]


@pytest.mark.parametrize(
    "call, parameter, words",
    [
        ("ga.Accumulator(", "loss_reduction", "loss_reduction: how the loss was reduced"),
        ("ga.wrap_optimizer(", "steps", "Returns an optimizer"),
        ("ga.microbatch_gradients(", "loss_fn", "Computes the gradients of the mean loss"),
        ("ga.keras.BatchSizes(", "batch_size", "Weighs each micro-batch"),
        ("ga.horovod.sum_over_workers(", "tensors", "Adds up tensors over all"),
    ],
)
def test_jedi_shows_signatures_and_docs(call, parameter, words):
    (signature,) = script(call).get_signatures(2, len(call))
    assert parameter in [each.name for each in signature.params]
    (name,) = script(call[:-1]).help(2, len(call) - 1)
    assert words in name.docstring()
