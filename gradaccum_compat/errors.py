"""The exceptions that a user may catch, with what they know.

Each says the rule, what came in and what to do, and carries the three as attributes. Each is also
one of Python's own exceptions, so that ``except ValueError`` keeps working. No TensorFlow here.

Inside a graph or a ``tf.function`` the value of a tensor is known on the device alone: what is
wrong with it there is reported by ``tf.errors.InvalidArgumentError``, in the same words.
"""

from __future__ import absolute_import, division, print_function


class GradAccumError(Exception):
    """Base of all errors of this package.

    Args:
        rule: what must hold.
        received: what came in instead.
        remedy: what to do about it.
    """

    #: AutoGraph rebuilds an exception from its message, unless it has this attribute.
    ag_pass_through = True

    def __init__(self, rule, received="", remedy=""):
        super(GradAccumError, self).__init__(rule, received, remedy)

    @property
    def rule(self):
        """What must hold."""
        return self.args[0]

    @property
    def received(self):
        """What came in instead."""
        return self.args[1]

    @property
    def remedy(self):
        """What to do about it."""
        return self.args[2]

    def __str__(self):
        if not self.received:
            return self.rule
        return "{} Received: {}. {}".format(self.rule, self.received, self.remedy)


class TensorFlowError(GradAccumError, ImportError):
    """No TensorFlow that this package can serve."""


class TensorFlowMissingError(TensorFlowError):
    """TensorFlow is not installed."""


class TensorFlowUnsupportedError(TensorFlowError):
    """TensorFlow is older than 1.14, or of a major version that did not exist yet."""


class TensorFlowBrokenError(TensorFlowError):
    """TensorFlow is installed and does not import."""


class HorovodError(GradAccumError, ImportError):
    """Horovod is asked for and not installed, does not import, or is too old."""


class OptionError(GradAccumError, ValueError):
    """An argument of the constructor, or a combination of them, that has no meaning."""


class OptimizerError(GradAccumError, TypeError):
    """The optimizer cannot be used."""


class VariablesError(GradAccumError, ValueError):
    """The variables cannot be accumulated for."""


class GradientsError(GradAccumError, ValueError):
    """The gradients do not fit the variables."""


class GradientTypeError(GradientsError, TypeError):
    """Something that is no gradient was handed in as one."""


class WeightError(GradAccumError, ValueError):
    """The weight of a micro-batch is not a finite number of at least zero."""


class ContextError(GradAccumError, RuntimeError):
    """A call in another graph or under another strategy than the accumulator was made in."""


class EagerRequiredError(ContextError):
    """Eager execution is needed and off, as it is by default on TF 1."""


class NonFiniteGradientsError(GradAccumError, ArithmeticError):
    """The accumulated gradients hold NaN or infinity, and ``nonfinite="raise"`` was asked for."""


class IncompleteCycleError(GradAccumError, RuntimeError):
    """A micro-batch of the cycle failed while it was being added, so that a part of it is in the
    sums; or an update failed while it was being made."""


class RecordError(GradAccumError, ValueError):
    """A record that cannot be made, followed or read."""
