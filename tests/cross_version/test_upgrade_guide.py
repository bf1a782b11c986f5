"""docs/upgrading.md: its program is written, changed and run as it says, and prints what it shows.

GRADACCUM_OLD and GRADACCUM_NEW name the Pythons of the two machines.
"""

from __future__ import absolute_import, division, print_function

import io
import os
import re
import shutil
import subprocess

import pytest

from support import processes, snippets

BLOCKS = snippets.blocks_of(snippets.read("docs/upgrading.md"))
SAYS = "gradaccum-compat"


@pytest.fixture(scope="module")
def folder(tmpdir_factory):
    """Where the guide is followed; the steps before have been done there."""
    made = tmpdir_factory.mktemp("guide")
    shutil.copytree(
        os.path.join(snippets.ROOT, "legacy_examples"), str(made.join("legacy_examples"))
    )
    return made


def test_each_step_prints_what_the_guide_shows(folder):
    steps = 0
    for block, following in zip(BLOCKS, BLOCKS[1:]):
        if block.language == "python":
            write(folder.join("legacy_examples", "train.py"), block.text)
        if block.language == "sh":
            printed = run(block.text, block.comment.split()[-1], folder)
            assert without_numbers(printed) == without_numbers(following.text), printed
            steps += 1
    assert steps == 4 and folder.join("report.html").check()


def write(program, text):
    """Writes the program; or has the text stand in it for the line that begins as the text does."""
    whole = program.read() if program.check() else None
    if whole is not None:
        begins = re.match(r"[\w. =]+\(", text).group(0)
        changed = re.sub(r"(?m)^" + re.escape(begins) + ".*\n", lambda line: text, whole)
        assert changed != whole
        text = changed
    with io.open(str(program), "w", encoding="ascii") as stream:
        stream.write(text)


def run(commands, machine, folder):
    """What commands print on one of the machines, without what TensorFlow says."""
    python = os.environ["GRADACCUM_" + machine.upper()]
    if not os.path.exists(python) and "CI" not in os.environ:
        pytest.skip("the row of {} is not built".format(python))
    printed = ""
    for line in commands.splitlines():
        words = line.split()
        words[:1] = [python, "-W", "ignore", "-m", "gradaccum_compat"]
        process = subprocess.Popen(
            [python if word == "python" else word for word in words],
            cwd=str(folder),
            env=processes.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        said = [each.decode("utf-8") for each in process.communicate()]
        assert process.returncode in (0, 1), "".join(said)
        printed += said[0]
        printed += "".join(each for each in said[1].splitlines(True) if each.startswith(SAYS))
    return printed


def without_numbers(text):
    """The text with # for each number, since their last digits are the machine's."""
    return re.sub(r"\d+(\.\d+)?(e[+-]\d+)?", "#", text)
