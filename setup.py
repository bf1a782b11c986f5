"""Installs gradaccum_compat.

TensorFlow is never required: its package has many names (tensorflow, tensorflow-cpu,
tensorflow-gpu, tf-nightly, vendors' builds), and the one that you have is the one that you keep.
"""

from __future__ import absolute_import, division, print_function

import io
import os
import re

from setuptools import find_packages, setup

HERE = os.path.dirname(os.path.abspath(__file__))


def read(*parts):
    with io.open(os.path.join(HERE, *parts), encoding="utf-8") as source:
        return source.read()


def version():
    return re.search(r'__version__ = "([^"]+)"', read("gradaccum_compat", "__init__.py")).group(1)


setup(
    name="gradaccum_compat",
    version=version(),
    description="Gradient accumulation with one API and the same numbers on every TensorFlow from 1.14 on",
    long_description=read("README.md"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["gradaccum_compat", "gradaccum_compat.*"]),
    python_requires=">=2.7, !=3.0.*, !=3.1.*, !=3.2.*, !=3.3.*, !=3.4.*, !=3.5.*",
    install_requires=["six>=1.12"],
    extras_require={
        "tensorflow": ["tensorflow>=1.14"],
        "cpu": ["tensorflow-cpu>=2.1"],
    },
    entry_points={"console_scripts": ["gradaccum-compat = gradaccum_compat.cli:main"]},
    classifiers=[
        "Intended Audience :: Developers",
        "License :: OSI Approved :: Apache Software License",
        "Programming Language :: Python :: 2.7",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
