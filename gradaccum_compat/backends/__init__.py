"""What differs between the eras of TensorFlow, one thin file for each, on one shared base."""

from __future__ import absolute_import, division, print_function

from gradaccum_compat import _detect

BACKEND = _detect.load_backend()
