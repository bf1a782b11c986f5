"""What the package says that it offers, seen without TensorFlow."""

from __future__ import absolute_import, division, print_function

import ast
import importlib
import io
import os
import types

import pytest

import gradaccum_compat as ga
from gradaccum_compat import errors


def defined_names(path):
    """The names that a file binds at its top level."""
    with io.open(path, "rb") as source:
        body = ast.parse(source.read()).body
    named = [node.name for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    return named + [
        target.id
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]


@pytest.mark.parametrize("name", ["Accumulator", "backend", "errors"])
def test_is_offered(name):
    assert name in ga.__all__


def test_dir_shows_all_that_is_offered():
    assert set(ga.__all__) <= set(dir(ga))


def test_dir_shows_nothing_else():
    assert [name for name in dir(ga) if name not in ga.__all__ and name[:2] != "__"] == []


def test_dir_is_sorted_and_names_nothing_twice():
    assert dir(ga) == sorted(set(dir(ga)))


def test_nothing_is_offered_twice():
    assert len(ga.__all__) == len(set(ga.__all__))


@pytest.mark.parametrize("name", sorted(ga._HOMES))
def test_home_defines_the_name(root, name):
    path = os.path.join(root, *ga._HOMES[name].split("."))
    assert name in defined_names(
        path + ".py" if os.path.exists(path + ".py") else os.path.join(path, "__init__.py")
    )


@pytest.mark.parametrize("name", ["accumulate", "Backend", "_private", "__wrapped__"])
def test_unknown_attribute_is_an_attribute_error_that_names_it(name):
    with pytest.raises(AttributeError) as caught:
        getattr(ga, name)
    assert name in str(caught.value) and "gradaccum_compat" in str(caught.value)


def test_unknown_name_cannot_be_imported(sandbox):
    outcome = sandbox.outcome("from gradaccum_compat import accumulate as value")
    assert (outcome["error"], outcome["typed"]) == ("ImportError", False)


def test_errors_is_the_module():
    assert ga.errors is errors is importlib.import_module("gradaccum_compat.errors")


def test_a_name_is_looked_up_once():
    assert ga.backend is vars(ga)["backend"]


def test_is_an_ordinary_package():
    assert isinstance(ga, types.ModuleType)
    assert os.path.basename(os.path.dirname(ga.__file__)) == ga.__name__ == "gradaccum_compat"
    assert ga.__doc__.startswith("Gradient accumulation")


def test_says_its_version(root):
    with io.open(os.path.join(root, "CHANGELOG.md"), encoding="utf-8") as changes:
        assert "## " + ga.__version__ in changes.read()
