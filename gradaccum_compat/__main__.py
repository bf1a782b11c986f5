"""python -m gradaccum_compat: the command line, also where no script is on the PATH."""

from __future__ import absolute_import, division, print_function

import sys

from gradaccum_compat.cli import main

sys.exit(main())
