"""Patches of private parts of TensorFlow and Keras: set on one object, for as long as a block runs.

Blocks may be inside one another and on several threads: the first sets the attributes, and the last
takes them away and leaves what was there before.
"""

from __future__ import absolute_import, division, print_function

import contextlib
import threading

_LOCK = threading.Lock()
#: Where an object holds its patch: the attributes that were there before, and who needs it.
_KEY = "_gradaccum_compat_patch"


@contextlib.contextmanager
def attributes(target, make, join=None):
    """Inside, the object has attributes of its own.

    Args:
        target: any object with a __dict__.
        make: function that returns the attributes, a dictionary; called by the first block alone.
        join: function that is called with these attributes, and that every block calls.
    """
    own = target.__dict__
    with _LOCK:
        if _KEY not in own:
            made = make()
            # Into the dictionary: Keras's __setattr__ would track them.
            before = dict((name, own[name]) for name in made if name in own)
            own[_KEY] = {"before": before, "made": made, "users": 0}
            own.update(made)
        own[_KEY]["users"] += 1
        leave = join(own[_KEY]["made"]) if join else None
    try:
        yield
    finally:
        with _LOCK:
            if leave:
                leave()
            own[_KEY]["users"] -= 1
            if not own[_KEY]["users"]:
                patch = own.pop(_KEY)
                for name in patch["made"]:
                    own.pop(name, None)
                own.update(patch["before"])
