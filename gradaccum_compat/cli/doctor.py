"""gradaccum-compat doctor: what is found here, and which of it is usable.

Nothing is judged by a version: each part is tried, in a process of its own, so that a TensorFlow
that dies on import is reported like any other finding. Only functions named _try_* use TensorFlow.
"""

from __future__ import absolute_import, division, print_function

import importlib
import json
import os
import platform
import re
import signal
import sys

from gradaccum_compat import __version__ as own_version
from gradaccum_compat import _detect, errors
from gradaccum_compat.cli import parsing, process, terminal

KERAS_3 = "Keras 3"
KERAS_BUILDING = "Keras 2 with the optimizer base class of 2.11 to 2.15"
KERAS_SLOTS = "Keras 2 with OptimizerV2"
DETAIL_WIDTH = 80
DESCRIPTION = (
    "Says which TensorFlow, Keras and devices are found here, which backend serves them, and what"
    " else is usable."
)
#: How what is found is shown on a terminal.
COLOURS = (("NOT USABLE", "red"), ("not usable", "yellow"), ("usable", "green"))


def add_to(commands):
    """Adds the command."""
    parser = parsing.add_command(
        commands,
        "doctor",
        "say what is found here and what is usable",
        DESCRIPTION,
        "0 if there is a TensorFlow that can be served, 1 if not",
        lambda arguments: main(arguments.json),
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(as_json):
    """Prints the report and returns the exit code."""
    report = examine()
    print(json.dumps(report, indent=2, sort_keys=True) if as_json else _painted(text(report)))
    return 1 if "error" in report else 0


def examine():
    """Returns the report, a dict; it has an "error" where there is no TensorFlow to serve."""
    report = {"gradaccum_compat": own_version, "python": _python()}
    try:
        report.update(process.call("gradaccum_compat.cli.doctor:try_all", {}))
    except errors.TensorFlowError as error:
        report["error"] = _described(error)
    except process.ProcessDied as death:
        report["error"] = _described(_broken(death))
    return report


def _python():
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "executable": sys.executable,
    }


def _broken(death):
    remedy = "Repair or reinstall it. " + _detect.INSTALL
    if death.status == -signal.SIGILL:
        remedy = "Its build needs CPU instructions that this machine lacks: install another build."
    return errors.TensorFlowBrokenError(
        "The installed TensorFlow must import and run.", str(death), remedy
    )


def _described(error):
    return dict(process.as_dict(error), message=str(error))


# In the process of its own


def try_all(_):
    """Tries everything on the TensorFlow found here.

    Raises:
        TensorFlowError: there is none, or none that can be served.
    """
    detected = _detect.backend()
    tf = _detect.import_tensorflow()
    if not tf.executing_eagerly():
        tf.compat.v1.enable_eager_execution()
    _detect.load_backend()
    return {
        "tensorflow": {
            "version": detected.tensorflow_version,
            "location": os.path.dirname(tf.__file__),
        },
        "backend": {"name": detected.name, "why": detected.why},
        "keras": dict((name, _tried(attempt, tf)) for name, attempt in KERAS),
        "devices": _devices(tf),
        "strategies": dict((name, _tried(attempt, tf)) for name, attempt in STRATEGIES),
        "parts": dict((name, _tried(attempt, tf)) for name, attempt in PARTS),
    }


class _NotHere(Exception):
    """This TensorFlow, or this installation, does not have the part."""


def _tried(attempt, tf):
    """Whether an attempt succeeds, with what it returns or raises in one line."""
    try:
        return {"usable": True, "detail": attempt(tf)}
    except _NotHere as absence:
        return {"usable": False, "detail": str(absence)}
    except Exception as cause:  # what a broken part raises is its own affair
        lines = str(cause).strip().splitlines() or [""]
        return {"usable": False, "detail": "{}: {}".format(type(cause).__name__, lines[0])}


def _devices(tf):
    # tf.config.list_physical_devices came with TF 2.1.
    config = tf.config if hasattr(tf.config, "list_physical_devices") else tf.config.experimental
    return [
        {"name": each.name, "type": each.device_type} for each in config.list_physical_devices()
    ]


def _try_keras(tf):
    return generation(type(tf.keras.optimizers.SGD()))


def _try_legacy(tf):
    # Keras 3 has the names, which only raise.
    if not hasattr(tf.keras.optimizers, "legacy"):
        raise _NotHere("this TensorFlow has none")
    return generation(type(tf.keras.optimizers.legacy.SGD()))


def _try_tf_keras(_):
    return generation(type(_installed("tf_keras").optimizers.SGD()))


def generation(optimizer_class):
    """Names the generation of a Keras optimizer, by what its class can do."""
    if hasattr(optimizer_class, "stateless_apply"):
        return KERAS_3
    return KERAS_SLOTS if hasattr(optimizer_class, "_create_slots") else KERAS_BUILDING


def _installed(name):
    """Imports a package; one that is not there is absent, one that fails is broken."""
    try:
        return importlib.import_module(name)
    except ImportError as cause:
        # Python 2 names the whole path that it looked for, Python 3 the package.
        if str(cause).replace("'", "") in (
            "No module named " + each for each in (name, name.split(".")[0])
        ):
            raise _NotHere("not installed")
        raise


def _try_mirrored(tf):
    return "{} replica(s) here".format(tf.distribute.MirroredStrategy().num_replicas_in_sync)


def _try_multi_worker(tf):
    # Only looked up: making one starts a server, and waits for the workers that TF_CONFIG names.
    # It left `experimental` in TF 2.4.
    for module in (tf.distribute, tf.distribute.experimental):
        if hasattr(module, "MultiWorkerMirroredStrategy"):
            return (
                "TF_CONFIG is set"
                if os.environ.get("TF_CONFIG")
                else "TF_CONFIG is not set: one worker"
            )
    raise _NotHere("this TensorFlow has none")


def _try_estimator(tf):
    if not hasattr(tf, "estimator") or not hasattr(tf.estimator, "Estimator"):
        raise _NotHere("this TensorFlow has none")
    return "tf.estimator.Estimator"


def _try_horovod(_):
    return "{} process(es)".format(_size(_installed("horovod.tensorflow")))


def _size(horovod):
    horovod.init()
    return horovod.size()


def _try_jit_compile(tf):
    # experimental_compile in TF 2.1 to 2.4; TF 1.14 to 2.0 have neither.
    for option in ("jit_compile", "experimental_compile"):
        try:
            compiled = tf.function(lambda value: value + 1.0, **{option: True})
        except TypeError:
            continue
        compiled(tf.constant(1.0))
        return "tf.function(..., {}=True)".format(option)
    raise _NotHere("tf.function of this TensorFlow has no jit_compile")


KERAS = (
    ("tf.keras", _try_keras),
    ("tf.keras.optimizers.legacy", _try_legacy),
    ("tf_keras", _try_tf_keras),
)
STRATEGIES = (
    ("MirroredStrategy", _try_mirrored),
    ("MultiWorkerMirroredStrategy", _try_multi_worker),
)
PARTS = (
    ("estimator", _try_estimator),
    ("horovod", _try_horovod),
    ("jit_compile", _try_jit_compile),
)


# As text


def text(report):
    """The report for a reader."""
    rows = [
        ("gradaccum_compat", report["gradaccum_compat"]),
        ("python", _python_text(report["python"])),
    ]
    if "error" in report:
        rows.append(("tensorflow", "NOT USABLE ({})".format(report["error"]["type"])))
        return "{}\n\n{}".format(_aligned(rows), report["error"]["message"])
    rows.extend(
        [
            ("tensorflow", "{version} in {location}".format(**report["tensorflow"])),
            ("backend", "{name}: {why}".format(**report["backend"])),
            ("devices", ", ".join(each["name"] for each in report["devices"])),
        ]
    )
    for section in ("keras", "strategies", "parts"):
        rows.extend((name, _part_text(part)) for name, part in sorted(report[section].items()))
    return _aligned(rows)


def _painted(lines):
    """The text with its findings in colour, where the output is a terminal."""
    for words, colour in COLOURS:
        found = re.compile(r"^(\S+ +){}\b".format(words), re.MULTILINE)
        shown = terminal.painted(words, colour, sys.stdout)
        lines = found.sub(lambda match: match.group(1) + shown, lines)
    return lines


def _python_text(python):
    return "{version} ({implementation}) on {platform}".format(**python)


def _part_text(part):
    detail = part["detail"]
    if len(detail) > DETAIL_WIDTH:
        detail = detail[:DETAIL_WIDTH].rsplit(" ", 1)[0] + " ..."
    return "{}: {}".format("usable" if part["usable"] else "not usable", detail)


def _aligned(rows):
    width = max(len(name) for name, _ in rows)
    return "\n".join("{}  {}".format(name.ljust(width), value) for name, value in rows)
