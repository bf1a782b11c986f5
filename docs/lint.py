"""Checks the examples on the pages, by the rules of the row `lint`: black formats them, and ruff
finds no mistake. With --fix it formats them in place.

It needs ruff and black. The tests run the examples; this only reads them.
"""

from __future__ import absolute_import, division, print_function

import glob
import io
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGES = ["README.md", "legacy_examples/README.md", "docs/*.md"]
#: An example: the comment in the line before it, with its name, and its code.
EXAMPLE = re.compile(r"(?ms)^(<!-- snippet: ([\w-]+);[^\n]*-->\n```python\n)(.*?)^```$")


def main(fix=False):
    """Returns 0 if all is well, 1 if not."""
    pages = [page for pattern in PAGES for page in sorted(glob.glob(os.path.join(ROOT, pattern)))]
    folder = tempfile.mkdtemp()
    for page in pages:
        for match in EXAMPLE.finditer(read(page)):
            write(place(folder, page, match), match.group(3))
    config = os.path.join(ROOT, "ruff.toml")
    ruff = ["ruff", "check", "-q", "--no-cache", "--config", config, folder]
    black = ["black", "-q", "-t", "py33", "-l", "100", folder]
    if not fix:
        return int(any([run(ruff), run(black + ["--check", "--diff"])]))
    failed = any([run(ruff + ["--fix"]), run(black)])
    for page in pages:
        turned = EXAMPLE.sub(
            lambda match: match.group(1) + read(place(folder, page, match)) + "```", read(page)
        )
        if turned != read(page):
            write(page, turned)
    return int(failed)


def place(folder, page, match):
    """The file of an example, by its page and its name, which stand in what is said of it."""
    page = os.path.relpath(page, ROOT).replace(os.sep, "-")
    return os.path.join(folder, "{}-{}.py".format(page, match.group(2)))


def run(command):
    return subprocess.call([sys.executable, "-m"] + command) != 0


def read(path):
    with io.open(path, encoding="ascii") as source:
        return source.read()


def write(path, text):
    with io.open(path, "w", encoding="ascii") as target:
        target.write(text)


if __name__ == "__main__":
    sys.exit(main("--fix" in sys.argv[1:]))
