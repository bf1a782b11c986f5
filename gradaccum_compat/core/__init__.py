"""What the Accumulator stands on, one idea in each module."""

from __future__ import absolute_import, division, print_function
