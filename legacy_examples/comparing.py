"""What the programs share: data from a fixed seed, how far apart weights are, and the one line at
the end."""

from __future__ import absolute_import, division, print_function

import argparse
import json

import numpy as np

#: The largest difference from the big batch that float32 rounding explains.
LIMIT = 1e-6


def regression(examples, features=6, seed=0):
    """Examples and targets, the same on every NumPy."""
    random = np.random.RandomState(seed)
    x = random.randn(examples, features)
    y = np.tanh(x.dot(random.randn(features, 1))) + 0.5 * x[:, :1]
    return x.astype(np.float32), y.astype(np.float32)


def start_values(*shapes):
    """A float32 array for each shape, the same on every NumPy."""
    random = np.random.RandomState(1)
    return [(0.4 * random.randn(*shape)).astype(np.float32) for shape in shapes]


def difference(weights, others):
    """The largest difference between two lists of arrays; NaN where one of them holds it."""
    return float(
        np.max(
            [
                np.max(np.abs(np.float64(one) - np.float64(other)))
                for one, other in zip(weights, others)
            ]
        )
    )


def report(name, big_batch, with_library, by_hand):
    """Prints how far from the big batch's weights the others are, and returns the program's exit
    code.

    Args:
        name: the program's, in words.
        big_batch: the weights that the big batch trains.
        with_library: those that the library trains.
        by_hand: {mistake: the weights that a loop with this mistake trains}.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", metavar="FILE", help="write the result here too")
    out = parser.parse_args().json
    apart = difference(with_library, big_batch)
    mistakes = {mistake: difference(weights, big_batch) for mistake, weights in by_hand.items()}
    told = "".join("; by hand, {}: {:.1e}".format(*each) for each in sorted(mistakes.items()))
    print("{}: {:.1e} from the big batch{}".format(name, apart, told))
    if out:
        with open(out, "w") as result:
            json.dump(
                {
                    "difference": apart,
                    "by_hand": mistakes,
                    "weights": [np.float64(each).tolist() for each in with_library],
                },
                result,
            )
    return 0 if apart <= LIMIT else 1
