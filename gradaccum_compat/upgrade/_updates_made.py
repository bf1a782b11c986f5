"""How many updates a TF 1 program has made, by what its checkpoint holds: powers of beta, a global
step, a count."""

from __future__ import absolute_import, division, print_function

import math

import numpy as np

from gradaccum_compat import errors
from gradaccum_compat.upgrade._saver_checkpoint import some

ITERATIONS, POWERS = "iterations", ("beta1_power", "beta2_power")


def find(checkpoint, optimizer, named, accumulator, report):
    """How many updates there were, or None where the checkpoint does not say.

    Args:
        checkpoint: the Checkpoint.
        optimizer: whose rule and settings are asked.
        named: names in the checkpoint that the user has given, from ITERATIONS and POWERS.
        accumulator: the name of the accumulator in the checkpoint, or None.
        report: the CarriedOver, which learns what was used.
    """
    counts = _counts(checkpoint, named, accumulator)
    if optimizer.rule == "adam":
        names = [named.get(each) or _one(checkpoint, each) for each in POWERS]
        if None not in names:
            return _by_powers(checkpoint, optimizer, names, counts, report)
        report.notes.append(
            "The checkpoint has no powers of beta: its optimizer has corrected no bias, as BERT's"
            " has not. Keras's Adam does, which changes nothing after some thousand updates."
        )
    return _by_counts(counts, report)


def _counts(checkpoint, named, accumulator):
    """The tensors that may say how many updates there were, by their names in the checkpoint."""
    names = [named[ITERATIONS]] if ITERATIONS in named else [_one(checkpoint, "global_step")]
    if ITERATIONS not in named and accumulator is not None:
        names.append(accumulator + "/update_count")
    return {name: int(checkpoint.value(name)) for name in names if name is not None}


def _one(checkpoint, name):
    found = checkpoint.with_suffix(name)
    if len(found) > 1:
        raise errors.OptimizerError(
            "One optimizer is carried over.",
            "{} in the checkpoint".format(some(found)),
            "Say which with names={{{!r}: {!r}}}.".format(
                found[0], ITERATIONS if name == "global_step" else name
            ),
        )
    return found[0] if found else None


def _by_counts(counts, report):
    if len(set(counts.values())) > 1:
        raise errors.OptimizerError(
            "One number says how many updates there were.",
            " and ".join("{}={}".format(name, value) for name, value in sorted(counts.items())),
            'Say which one with names={{{!r}: "iterations"}}, say.'.format(sorted(counts)[0]),
        )
    if not counts:
        report.notes.append(
            "The checkpoint does not say how many updates there were: the optimizer's iterations"
            " stay as they are, and a schedule goes on from there."
        )
        return None
    for name in counts:
        report.add(name, ITERATIONS)
    return list(counts.values())[0]


def _by_powers(checkpoint, optimizer, names, counts, report):
    """By the powers of Adam's betas, of which the second lasts longer and says it less exactly."""
    betas = [optimizer.setting(each) for each in ("beta_1", "beta_2")]
    powers = [float(checkpoint.value(each)) for each in names]
    estimates = [_updates(power, beta) for power, beta in zip(powers, betas)]
    known = [each for each in estimates if each is not None]
    if not known:
        report.notes.append(
            "Adam's powers of beta have become zero in the checkpoint: it corrects no bias any"
            " more."
        )
        return _by_counts(counts, report)
    if not all(_near(each, known[0]) and _near(each, round(each)) for each in known):
        raise errors.OptimizerError(
            "Adam goes on with the betas that it had.",
            "beta_1={} and beta_2={}, by which {} say {} updates".format(
                betas[0],
                betas[1],
                " and ".join("{}={:.6g}".format(*pair) for pair in zip(names, powers)),
                " and ".join("{:.2f}".format(each) for each in known),
            ),
            "Pass the old program's beta_1 and beta_2.",
        )
    updates = int(round(known[0]))
    if estimates[0] is None:
        # The second power alone may be one off, and a count near it is exact.
        updates = next((each for each in counts.values() if _near(each, known[0])), updates)
    for name, power in zip(names, powers):
        report.add(
            name,
            ITERATIONS,
            "{:.6g} is its beta to the power of {}, so that {} updates were made".format(
                power, updates + 1, updates
            ),
        )
    for name, value in sorted(counts.items()):
        if value == updates:
            report.add(name, ITERATIONS)
        else:
            report.notes.append(
                "{} is {}, and Adam made {} updates: iterations are the latter, and a schedule goes"
                " by them.".format(name, value, updates)
            )
    return updates


def _near(one, other):
    return abs(one - other) <= 0.1 + 1e-4 * abs(other)


def _updates(power, beta):
    """How many updates leave this power of beta, a float; None where float32 does not tell."""
    # Below this float32 has fewer digits. The powers are products of what float32 makes of beta.
    beta = float(np.float32(beta))
    return math.log(power) / math.log(beta) - 1 if 1e-37 < power <= 1 and 0 < beta < 1 else None
