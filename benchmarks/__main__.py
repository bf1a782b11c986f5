"""`python -m benchmarks` is `python benchmarks/run.py`."""

from __future__ import absolute_import, division, print_function

import sys

from benchmarks.run import main

sys.exit(main())
