"""Builds the site from one copy of each text: called by MkDocs, see mkdocs.yml.

Some pages stand elsewhere in the repository, where people look for them first. They come into the
site as they are, and their links are turned to the site's pages. The API reference is made from the
public names, so that a new one is in it by itself.
"""

from __future__ import absolute_import, division, print_function

import ast
import importlib
import io
import os
import posixpath
import re
import sys

from mkdocs.structure.files import File

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: The site's pages that stand elsewhere.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/README.md": "examples.md",
    "legacy_examples/README.md": "coming-from.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/distributed.md": "benchmarks-workers.md",
}
#: The folders of the pictures that these show, and where they are in the site.
PICTURES = {"benchmarks/results": "results", "examples": "examples"}
#: The folders of the programs that pages link to: each has a page with its source.
PROGRAMS = ("examples", "legacy_examples")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files, config):
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=_read(source)))
    files.append(File.generated(config, "api.md", content=_reference()))
    for folder in PROGRAMS:
        for name in sorted(os.listdir(os.path.join(ROOT, folder))):
            if name.endswith(".py"):
                page = "# {}\n\n```python\n{}```\n".format(name, _read(folder + "/" + name))
                files.append(File.generated(config, _page_of(folder, name), content=page))
    for folder, place in PICTURES.items():
        for name in sorted(os.listdir(os.path.join(ROOT, folder))):
            if _is_picture(name):
                path = os.path.join(ROOT, folder, name)
                files.append(File.generated(config, place + "/" + name, abs_src_path=path))
    return files


def on_page_markdown(markdown, page, **_):
    sources = {page: source for source, page in PAGES.items()}
    here = sources.get(page.file.src_uri, "docs/" + page.file.src_uri)
    return _LINK.sub(lambda match: _turned(here, *match.groups()), markdown)


def on_page_content(html, **_):
    """Takes out the dash before what a function returns: Google docstrings give it no name."""
    return re.sub(r'(<li class="doc-section-item field-body">)\s*\u2013\s*', r"\1", html)


def _turned(here, mark, text, target):
    """A link of the repository as a link of the site; its text alone where the site has no such
    page."""
    if re.match(r"(?:[a-z]+:|#)", target):
        return "{}[{}]({})".format(mark, text, target)
    path, _, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
    if path in PAGES:
        path = PAGES[path]
    elif _is_picture(path) and posixpath.dirname(path) in PICTURES:
        path = PICTURES[posixpath.dirname(path)] + "/" + posixpath.basename(path)
    elif path.endswith(".py") and posixpath.dirname(path) in PROGRAMS:
        path = _page_of(*posixpath.split(path))
    elif path.startswith("docs/"):
        path = path[len("docs/") :]
    else:
        return text
    return "{}[{}]({}{})".format(mark, text, path, "#" + anchor if anchor else "")


def _page_of(folder, program):
    return "{}/{}.md".format(folder, program[: -len(".py")])


def _is_picture(path):
    return path.endswith((".png", ".svg"))


def _reference():
    sys.path.insert(0, ROOT)
    import gradaccum_compat

    lines = ["# API reference", "", "`import gradaccum_compat as ga`", ""]
    for name, home in sorted(gradaccum_compat._HOMES.items(), key=_classes_first):
        lines += ["::: {}.{}".format(home, name)]
        if name == "microbatch_gradients":  # its signature takes any arguments, to refuse in words
            lines += ["    options: {show_signature: false}"]
        lines += [""]
    lines += ["## ga.keras", ""]
    lines += _entries("gradaccum_compat.keras", _exported("gradaccum_compat/keras/__init__.py"))
    if "upgrade" in gradaccum_compat._SUBMODULES:
        upgrade = importlib.import_module("gradaccum_compat.upgrade")
        lines += ["## ga.upgrade", ""]
        for name in upgrade.__all__:
            lines += _entries(upgrade._HOMES[name], [name])
    lines += ["## ga.horovod", ""] + _entries("gradaccum_compat.horovod", ["sum_over_workers"])
    lines += ["## ga.errors", "", "::: gradaccum_compat.errors", "    options:"]
    lines += ["      show_root_heading: false", "      show_bases: true", ""]
    return "\n".join(lines)


def _classes_first(item):
    return (not item[0][0].isupper(), item[0])


def _entries(module, names):
    return [line for name in names for line in ("::: {}.{}".format(module, name), "")]


def _exported(path):
    """A module's __all__, or its public classes and functions, without importing TensorFlow."""
    tree = ast.parse(_read(path))
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return ast.literal_eval(node.value)
    kinds = (ast.ClassDef, ast.FunctionDef)
    own = [each.name for each in tree.body if isinstance(each, kinds)]
    imported = [
        alias.asname or alias.name
        for each in tree.body
        if isinstance(each, ast.ImportFrom) and "batch_normalization" in (each.module or "")
        for alias in each.names
    ]
    return sorted(name for name in own + imported if not name.startswith("_"))


def _read(name):
    with io.open(os.path.join(ROOT, *name.split("/")), encoding="utf-8") as source:
        return source.read()
