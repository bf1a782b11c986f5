"""The stubs say what the sources say: the same public names, with the same arguments.

Both are read, and not imported, so that this runs where there is no TensorFlow.
"""

from __future__ import absolute_import, division, print_function

import ast
import io
import os
import sys

import pytest

import gradaccum_compat as ga
from support.processes import ROOT

pytestmark = pytest.mark.skipif(sys.version_info < (3, 8), reason="stubs are written in Python 3.8")


PACKAGE = os.path.join(ROOT, "gradaccum_compat")
STUBS = sorted(
    os.path.relpath(os.path.join(place, name), PACKAGE)
    for place, _, names in os.walk(PACKAGE)
    for name in names
    if name.endswith(".pyi") and name != "_typing.pyi"
)


def tree(path):
    with io.open(os.path.join(PACKAGE, path), encoding="utf-8") as source:
        return ast.parse(source.read())


def _decorators(node):
    return getattr(node, "decorator_list", [])


def public(body):
    """The public functions and classes of a body, and what it imports under their own names."""
    found = {}
    for node in body:
        setter = any(getattr(each, "attr", "") == "setter" for each in _decorators(node))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not setter:
            found[node.name] = node
        elif isinstance(node, ast.ImportFrom) and node.module and node.module[:4] == "grad":
            found.update((alias.asname or alias.name, node) for alias in node.names)
    return {
        name: node
        for name, node in found.items()
        if name[0] != "_" or name in ("__init__", "__call__")
    }


def arguments(function):
    """The names of a function's arguments, each with its default as it is written, or None."""
    given = function.args
    named = given.args + given.kwonlyargs
    first = [None] * (len(given.args) - len(given.defaults)) + given.defaults
    defaults = first + list(given.kw_defaults)
    return [
        (argument.arg, default and ast.dump(default)) for argument, default in zip(named, defaults)
    ]


def differences(name, stub, source):
    """What a stub of a function says otherwise. One with **options may be more exact than they."""
    promised, there = arguments(stub), arguments(source)
    if source.args.kwarg or source.args.vararg:
        promised = promised[: len(there)]
    elif len(promised) > len(there):
        promised, rest = promised[: len(there)], promised[len(there) :]
        for argument, _ in rest:
            yield "{}({})".format(name, argument)
    for mine, theirs in zip(promised, there):
        if mine[0] != theirs[0]:
            yield "{}: {} for {}".format(name, mine[0], theirs[0])
        elif mine[1] is None and theirs[1] is not None:
            yield "{}({}) has no default".format(name, mine[0])
        elif mine[1] != theirs[1]:
            yield "{}({}) has another default".format(name, mine[0])
    for argument, _ in there[len(promised) :]:
        yield "{} lacks {}".format(name, argument)
    if bool(stub.args.vararg) > bool(source.args.vararg):
        yield "{} takes any number".format(name)


def kind(node):
    decorators = [getattr(each, "id", None) for each in getattr(node, "decorator_list", [])]
    return type(node).__name__, "property" in decorators


def class_differences(name, stub, source):
    promised, there = public(stub.body), public(source.body)
    for method, node in promised.items():
        if method not in there:
            if method not in ("__init__", "build", "restore"):  # inherited
                yield "{}.{}".format(name, method)
        elif kind(node) != kind(there[method]):
            yield "{}.{} is no property, or is one".format(name, method)
        else:
            label = name if method == "__init__" else "{}.{}".format(name, method)
            for each in differences(label, node, there[method]):
                yield each


def home(path, name, node):
    """The definition that an import leads to."""
    while isinstance(node, ast.ImportFrom):
        parts = node.module.split(".")[1:]
        path = os.path.join(*(parts + ["__init__.py"]))
        if not os.path.exists(os.path.join(PACKAGE, path)):
            path = os.path.join(*parts) + ".py"
        node = public(tree(path).body)[name]
    return node


@pytest.mark.parametrize("path", STUBS)
def test_a_stub_says_what_its_source_says(path):
    if not os.path.exists(os.path.join(PACKAGE, path[:-1])):
        pytest.skip("the source is not there yet")
    promised, there = public(tree(path).body), public(tree(path[:-1]).body)
    found = []
    for name, stub in promised.items():
        if isinstance(stub, ast.ImportFrom):
            continue
        if name not in there:
            found.append(name)
            continue
        source = home(path, name, there[name])
        compare = class_differences if isinstance(stub, ast.ClassDef) else differences
        assert type(stub) is type(source), name
        found += compare(name, stub, source)
    assert found == []


def test_each_public_name_has_a_stub():
    assert set(ga.__all__) <= set(public(tree("__init__.pyi").body))


def test_each_error_has_a_stub():
    assert set(public(tree("errors.py").body)) <= set(public(tree("errors.pyi").body))


@pytest.mark.parametrize("name", sorted(ga._HOMES))
def test_what_is_public_in_a_class_is_in_its_stub(name):
    parts = ga._HOMES[name].split(".")[1:]
    path = os.path.join(*parts)
    path = (
        path + ".py"
        if os.path.exists(os.path.join(PACKAGE, path + ".py"))
        else path + "/__init__.py"
    )
    source, stub = public(tree(path).body)[name], public(tree(path + "i").body)[name]
    if isinstance(source, ast.ClassDef):
        assert set(public(source.body)) <= set(public(stub.body))


SAME = "def f(a, b=1, *, c=None, **d): ...", "def f(a, b=1, **d): pass"


@pytest.mark.parametrize(
    "stub, source, difference",
    [
        ("def f(a, b): ...", "def f(a): pass", "f(b)"),
        ("def f(a): ...", "def f(a, b): pass", "f lacks b"),
        ("def f(b, a): ...", "def f(a, b): pass", "f: b for a"),
        ("def f(a): ...", "def f(a=1): pass", "f(a) has no default"),
        ("def f(a=2): ...", "def f(a=1): pass", "f(a) has another default"),
    ],
)
def test_a_difference_is_seen(stub, source, difference):
    first, second = (ast.parse(each).body[0] for each in (stub, source))
    assert difference in list(differences("f", first, second))
    assert list(differences("f", *(ast.parse(each).body[0] for each in SAME))) == []
