"""Installs gradaccum_compat, on Python 2.7 too.

TensorFlow is never required: its package has many names (tensorflow, tensorflow-cpu,
tensorflow-gpu, tf-nightly, vendors' builds), and the one that you have is the one that you keep.
"""

from __future__ import absolute_import, division, print_function

import io
import os
import re

import setuptools
from setuptools import find_packages, setup

HERE = os.path.dirname(os.path.abspath(__file__))
#: Where the package is, once it is uploaded.
PAGE = "https://pypi.org/project/gradaccum-compat/"
#: Where the sources can be browsed, such as "https://github.com/OWNER/gradaccum_compat"; the
#: README's links lead there from the package's page. None: there is no public address yet.
REPOSITORY = None
PYTHONS = ("2.7", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
#: setuptools 77 writes the licence as an expression; earlier ones know a text alone.
HAS_EXPRESSION = int(setuptools.__version__.split(".")[0]) >= 77


def read(*parts):
    with io.open(os.path.join(HERE, *parts), encoding="utf-8") as source:
        return source.read()


def version():
    return re.search(r'__version__ = "([^"]+)"', read("gradaccum_compat", "__init__.py")).group(1)


def long_description(repository):
    """The README for a page where the repository's files are not beside it.

    Args:
        repository: the address that relative links and pictures get; None, and only their words
            are left.
    """

    def turned(match):
        mark, text, target = match.groups()
        if re.match("[a-z]+:|#", target):
            return match.group()
        if repository is None:
            return text
        kind = "raw" if mark else "blob"
        return "{}[{}]({}/{}/HEAD/{})".format(mark, text, repository, kind, target)

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", turned, read("README.md"))


setup(
    name="gradaccum_compat",
    version=version(),
    description=(
        "Gradient accumulation with one API and the same numbers on every TensorFlow from 1.14 on"
    ),
    long_description=long_description(REPOSITORY),
    long_description_content_type="text/markdown",
    url=PAGE,
    project_urls={
        "Documentation": PAGE + "#description",
        "Releases": PAGE + "#history",
        "Source": REPOSITORY or PAGE + "#files",
    },
    keywords="tensorflow keras gradient accumulation micro-batch migration",
    packages=find_packages(include=["gradaccum_compat", "gradaccum_compat.*"]),
    package_data={"gradaccum_compat": ["py.typed", "*.pyi", "*/*.pyi"]},
    zip_safe=False,
    python_requires=">=2.7, !=3.0.*, !=3.1.*, !=3.2.*, !=3.3.*, !=3.4.*, !=3.5.*",
    install_requires=["six>=1.12"],
    extras_require={
        "tensorflow": ["tensorflow>=1.14,<3"],
        "cpu": ["tensorflow-cpu>=2.1,<3"],
        # Later ones make no environment for Python 2.7 and 3.6.
        "matrix": ["virtualenv<20.22"],
    },
    entry_points={"console_scripts": ["gradaccum-compat = gradaccum_compat.cli:main"]},
    # One wheel for Python 2 and 3; the option that is named for it warns of its end.
    options={"bdist_wheel": {"python_tag": "py2.py3"}},
    classifiers=[
        "Development Status :: 5 - Production/Stable",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: OS Independent",
        "Programming Language :: Python",
    ]
    + ["Programming Language :: Python :: " + each for each in PYTHONS]
    + [
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    **{"license_expression" if HAS_EXPRESSION else "license": "Apache-2.0"}
)
