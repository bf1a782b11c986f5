"""For the API reference: docstrings have an "Example:", which Griffe calls "Examples:"."""

from __future__ import absolute_import, division, print_function

import re

import griffe


class Examples(griffe.Extension):
    def on_instance(self, *, node, obj, agent, **kwargs):
        if obj.docstring:
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", obj.docstring.value)
