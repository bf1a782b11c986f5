"""The files of a record: how they are written, and how they are read from people whom one does not
know.

    RECORD/accumulator/manifest.json     what was trained, with what, and where
    RECORD/accumulator/updates.jsonl     a line for each update
    RECORD/accumulator/initial.npz       the weights as the program made them
    RECORD/accumulator/state-N.npz       weights, slots and gradients of update N, at snapshots
    RECORD/accumulator-2/...             the next accumulator of the same program

A file that is there is whole, but for the last line of updates.jsonl: what was killed leaves a part
of it. Reading executes nothing, and allocates no more than the files are long.
"""

from __future__ import absolute_import, division, print_function

import collections
import errno
import io
import json
import os
import re
import zipfile

import numpy as np
import six

from gradaccum_compat import errors
from gradaccum_compat.upgrade import _sketch

SCHEMA = 1
MANIFEST, UPDATES, INITIAL = "manifest.json", "updates.jsonl", "initial.npz"

#: More variables, or longer names or files, are a fault: no program has them.
_MOST_VARIABLES, _LONGEST_NAME, _LONGEST_MANIFEST, _LONGEST_LINE = 100000, 2000, 2**26, 2**26
_LARGEST = 2**48

Variable = collections.namedtuple("Variable", ["name", "shape", "dtype"])


# Writing


def claim(path, name):
    """Makes a folder of its own for an accumulator: NAME, NAME-2, ... Returns its path."""
    safe = re.sub("[^A-Za-z0-9_.-]+", "_", name).strip(".")[:100] or "accumulator"
    if not os.path.isdir(path):
        try:
            os.makedirs(path)
        except OSError:
            if not os.path.isdir(path):  # another process may have made it meanwhile
                raise
    number = 1
    while True:
        folder = os.path.join(path, safe if number == 1 else "{}-{}".format(safe, number))
        try:
            os.mkdir(folder)  # of several processes, one succeeds
            return folder
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise
        number += 1


class Writer(object):
    """Writes one accumulator's record. Each method raises EnvironmentError where the disk does."""

    def __init__(self, folder):
        self.folder = folder
        self._updates = None

    def manifest(self, manifest):
        text = json.dumps(manifest, indent=1, sort_keys=True, allow_nan=False)
        self._whole(MANIFEST, lambda stream: stream.write(text.encode("utf-8")))

    def update(self, line):
        """Appends a line, which is on its way to the disk when this returns."""
        # The number comes first: a reader finds an update without reading what is in it.
        number = '{{"update": {}, '.format(int(line["update"]))
        rest = json.dumps(
            {key: value for key, value in line.items() if key != "update"}, allow_nan=False
        )
        if self._updates is None:
            self._updates = io.open(os.path.join(self.folder, UPDATES), "ab")
        self._updates.write((number + rest[1:] + "\n").encode("ascii"))
        self._updates.flush()

    def initial(self, arrays):
        self._whole(INITIAL, lambda stream: np.savez(stream, **arrays))

    def state(self, number, arrays):
        self._whole(state_name(number), lambda stream: np.savez(stream, **arrays))

    def close(self):
        if self._updates is not None:
            try:
                self._updates.close()
            except EnvironmentError:
                pass
            self._updates = None

    def _whole(self, name, write):
        """Writes a file that is there as a whole or not at all."""
        path = os.path.join(self.folder, name)
        try:
            with io.open(path + ".part", "wb") as stream:
                write(stream)
            os.rename(path + ".part", path)
        except EnvironmentError:
            if os.path.exists(path + ".part"):
                os.remove(path + ".part")
            raise


def state_name(number):
    return "state-{}.npz".format(number)


def as_json(summary):
    """A Summary as a line has it; None stays."""
    if summary is None:
        return None
    return {
        "norm": _short(summary.norm),
        "max": _short(summary.max),
        "nonfinite": summary.nonfinite,
        "zeros": summary.zeros,
        "sketch": _sketch.encode(summary.sketch),
    }


def _short(number):
    return float("%.9g" % number)


# Reading


class Update(object):
    """One line: an update. The entries of each variable are checked when they are read.

    Args:
        line: the JSON object.
        of_variables: returns what the line has under a key for each variable, or raises
            RecordError.

    Attributes:
        update: its number, 0 for the first of the training.
        micro_batches, weight, learning_rate, iterations, loss, applied, followed: as in the line.
        gradient, update_, weights: for each variable a Summary or None; its sketch is decoded when
            asked for.
        micro_sketches: for each micro-batch a list with the sketch of each variable's gradient or
            None; None where they were not recorded.
    """

    def __init__(self, line, of_variables):
        self._of_variables = of_variables
        self.update = line["update"]
        self.micro_batches = _whole_or_none(line, "micro_batches")
        self.weight = _number_or_none(line, "weight")
        self.learning_rate = _number_or_none(line, "learning_rate")
        self.iterations = _whole_or_none(line, "iterations")
        self.loss = _number_or_none(line, "loss")
        self.applied = line.get("applied") is not False
        self.followed = line.get("followed") is True

    def __getattr__(self, name):
        if name not in ("gradient", "update_", "weights", "micro_sketches"):
            raise AttributeError(name)
        value = self._of_variables(name)
        setattr(self, name, value)
        return value


class _Quantity(object):
    """A Summary whose sketch is decoded when it is asked for."""

    __slots__ = ("norm", "max", "nonfinite", "zeros", "_text", "_decoded")

    def __init__(self, given):
        if not isinstance(given, dict):
            raise ValueError("a quantity is an object")
        self.norm, self.max = [_at_least_zero(given, key) for key in ("norm", "max")]
        self.nonfinite, self.zeros = [_whole(given, key) for key in ("nonfinite", "zeros")]
        self._text, self._decoded = given.get("sketch"), None

    def same(self, other):
        """Whether it is the other one to the last bit."""
        return (self.norm, self.max, self.zeros, self._text) == (
            other.norm,
            other.max,
            other.zeros,
            other._text,
        )

    @property
    def sketch(self):
        if self._decoded is None:
            self._decoded = _decoded(self._text)
        return self._decoded


def read(path):
    """Reads a record.

    Args:
        path: what was given to record, or the folder of one accumulator in it.

    Returns:
        A list of Record, one for each accumulator, in the order in which the program made them.

    Raises:
        RecordError: if there is no record, or one that cannot be read.
    """
    if not os.path.isdir(path):
        raise errors.RecordError(
            "A record is a folder that was recorded into.",
            "{!r}, which is no folder".format(path),
            "Record one with gradaccum-compat record DIR -- COMMAND.",
        )
    if os.path.isfile(os.path.join(path, MANIFEST)):
        return [Record(path)]
    try:
        names = sorted(os.listdir(path))
    except EnvironmentError as error:
        raise _unreadable(path, error)
    records = [
        Record(os.path.join(path, name))
        for name in names
        if os.path.isfile(os.path.join(path, name, MANIFEST))
    ]
    if not records:
        raise errors.RecordError(
            "A record has a folder for each accumulator, with manifest.json in it.",
            "{!r}, which has none".format(path),
            "Check that the program got as far as its first update, and that it makes an "
            "Accumulator or wraps its "
            "optimizer; steps=1 will do.",
        )
    return sorted(records, key=lambda each: each.number)


class Record(object):
    """The record of one accumulator.

    Attributes:
        folder: where it is.
        name: the folder's last part, as "accumulator".
        manifest: manifest.json, checked.
        number: 0 for the first accumulator of the program.
        variables: a Variable(name, shape, dtype) for each.
        slots: for each variable the names of its slots.
        updates: the numbers of the recorded updates, in the order of the lines.
        snapshots: the numbers of the updates that have a state, ascending.
        cut_off: whether the last line is cut off, as a program that is killed leaves it.
    """

    def __init__(self, folder):
        self.folder = folder
        self.name = os.path.basename(os.path.normpath(folder))
        self.manifest = _manifest(os.path.join(folder, MANIFEST))
        self.number = _whole_or_none(self.manifest, "number") or 0
        self.variables = [
            Variable(each["name"], tuple(each["shape"]), each["dtype"])
            for each in self.manifest["variables"]
        ]
        self.slots = self.manifest["slots"]
        self.snapshots = sorted(_snapshots(folder))
        self._path = os.path.join(folder, UPDATES)
        self._longest = _LONGEST_LINE + 4096 * len(self.variables)
        self.cut_off, self._lines = False, []
        self._find_lines()
        self.updates = [number for number, _, _ in self._lines]

    def __len__(self):
        return len(self._lines)

    def __iter__(self):
        """The updates, one after another: what has been looked at need not be kept."""
        return iter(self.each(range(len(self._lines))))

    def each(self, positions):
        """The updates at these positions of `updates`, without the others being read."""
        if self._lines:
            with io.open(self._path, "rb") as stream:
                for position in positions:
                    yield self._parsed(stream, position)

    def at(self, position):
        """The update at this position of `updates`."""
        return next(iter(self.each([position])))

    def state(self, number):
        """The State of update `number`, which is one of `snapshots`."""
        return State(os.path.join(self.folder, state_name(number)), self.variables)

    def initial(self):
        """The weights as the program made them, before it followed another record, as a State.

        None if unknown.
        """
        path = os.path.join(self.folder, INITIAL)
        return State(path, self.variables) if os.path.isfile(path) else None

    def _find_lines(self):
        if not os.path.isfile(self._path):
            return
        try:
            with io.open(self._path, "rb") as stream:
                while True:
                    begin = stream.tell()
                    line = stream.readline(self._longest + 1)
                    if not line:
                        return
                    if not line.endswith(b"\n") and len(line) <= self._longest:
                        self.cut_off = True
                        return
                    number = _LINE.match(line)
                    if not number or len(line) > self._longest:
                        raise self._error(
                            len(self._lines),
                            "it does not begin with its update's number, or is too long",
                        )
                    self._lines.append((int(number.group(1)), begin, len(line)))
        except EnvironmentError as error:
            raise _unreadable(self._path, error)

    def _parsed(self, stream, position):
        number, begin, length = self._lines[position]
        stream.seek(begin)
        try:
            line = _json(stream.read(length))
            if not isinstance(line, dict) or line.get("update") != number:
                raise ValueError("a line is an object with its update's number")
            return Update(line, lambda key: self._of_variables(position, line, key))
        except _FAULTS as error:
            raise self._error(position, error)

    def _of_variables(self, position, line, key):
        try:
            if key == "micro_sketches":
                return self._micro_sketches(line.get(key))
            return self._of_each(line.get(key), _Quantity)
        except _FAULTS as error:
            raise self._error(position, error)

    def _of_each(self, given, convert):
        if not isinstance(given, list) or len(given) != len(self.variables):
            raise ValueError("there is one value for each variable")
        return [None if each is None else convert(each) for each in given]

    def _micro_sketches(self, given):
        if given is None:
            return None
        if not isinstance(given, list):
            raise ValueError("micro_sketches is a list")
        return [self._of_each(each, _decoded) for each in given]

    def _error(self, position, reason):
        return errors.RecordError(
            "Each line of updates.jsonl is an update, as it was recorded.",
            "line {} of {!r}: {}".format(position + 1, self._path, reason),
            "Record again, or copy the record again.",
        )


class State(object):
    """Arrays of one update, each read when it is asked for, checked against the manifest."""

    def __init__(self, path, variables):
        self._path, self._variables = path, variables
        try:
            self._size = os.path.getsize(path)
            with zipfile.ZipFile(path) as archive:
                self._members = {each.filename: each for each in archive.infolist()}
        except _FAULTS as error:
            raise _unreadable(path, error)
        for each in self._members.values():
            if each.compress_type != zipfile.ZIP_STORED or not 0 <= each.file_size <= self._size:
                raise self._error("a member that is compressed, or larger than its file")

    def weight(self, index):
        """The variable before the update."""
        return self._of_variable("weight_{}".format(index), index)

    def after(self, index):
        """The variable after the update; None where it was not recorded."""
        return self._of_variable("after_{}".format(index), index)

    def gradient(self, index):
        """The dense gradient that the optimizer got; None where it got none."""
        return self._of_variable("gradient_{}".format(index), index)

    def slots(self, index):
        """The variable's slots before the update, {name: array}."""
        begin = "slot_{}_".format(index)
        names = [
            each[len(begin) : -len(".npy")] for each in self._members if each.startswith(begin)
        ]
        return {name: self._array(begin + name) for name in sorted(names)}

    @property
    def iterations(self):
        """The optimizer's iterations before the update; None if it has none."""
        value = self._scalar("iterations")
        return None if value is None else int(value)

    @property
    def learning_rate(self):
        return self._scalar("learning_rate")

    def _scalar(self, key):
        value = self._array(key)
        if value is None:
            return None
        if value.size != 1 or not np.all(np.isfinite(value)):
            raise self._error("{} is no finite number".format(key))
        return float(value.reshape([]))

    def _of_variable(self, key, index):
        value = self._array(key)
        if value is not None and value.shape != self._variables[index].shape:
            raise self._error(
                "{} has the shape {}, and its variable {}".format(
                    key, value.shape, self._variables[index].shape
                )
            )
        return value

    def _array(self, key):
        member = self._members.get(key + ".npy")
        if member is None:
            return None
        try:
            with zipfile.ZipFile(self._path) as archive, archive.open(member) as stream:
                return _npy(stream, member.file_size)
        except _FAULTS as error:
            raise self._error(error)

    def _error(self, reason):
        return _unreadable(self._path, reason)


#: Errors that reading a hostile file may raise.
_FAULTS = (
    EnvironmentError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    RuntimeError,
    MemoryError,
    NotImplementedError,
    EOFError,
    OverflowError,
    zipfile.BadZipfile,
    zipfile.LargeZipFile,
)

# Encoded, since Python 2 and 3 agree on no prefix that formatters keep for raw bytes.
_LINE = re.compile(r'\{"update": (\d{1,15}), '.encode("ascii"))
_DIGITS = re.compile(r"\d+".encode("ascii"))
_HEADER = re.compile(
    (
        r"^\{'descr': '([<|=]?[fiub]\d)', 'fortran_order': (True|False), "
        r"'shape': \(([0-9L, ]{0,500})\), *\} *\n$"
    ).encode("ascii")
)


def _npy(stream, size):
    """The array of a .npy file, whose header is matched and not evaluated.

    No object, no more than there are bytes.
    """
    begin = stream.read(10)
    if begin[:8] != b"\x93NUMPY\x01\x00" or len(begin) < 10:
        raise ValueError("not an array of version 1.0")
    length = bytearray(begin[8:10])
    length = length[0] + 256 * length[1]
    header = _HEADER.match(stream.read(length))
    if header is None:
        raise ValueError("not an array of plain numbers")
    dtype = np.dtype(header.group(1).decode("ascii"))
    shape = tuple(int(each) for each in _DIGITS.findall(header.group(3)))
    count = _elements(shape)
    if count * dtype.itemsize != size - 10 - length:
        raise ValueError("an array of another size than its header says")
    array = np.frombuffer(stream.read(count * dtype.itemsize), dtype)
    return array.reshape(shape, order="F" if header.group(2) == b"True" else "C")


def _elements(shape):
    count = 1
    for each in shape:
        count *= each
    if count > _LARGEST or len(shape) > 32:
        raise ValueError("a shape that nothing has")
    return count


def _snapshots(folder):
    for name in os.listdir(folder):
        number = re.match(r"^state-(\d{1,15})\.npz$", name)
        if number and os.path.isfile(os.path.join(folder, name)):
            yield int(number.group(1))


def _manifest(path):
    try:
        if os.path.getsize(path) > _LONGEST_MANIFEST:
            raise ValueError("it is too long")
        with io.open(path, "rb") as stream:
            manifest = _json(stream.read(_LONGEST_MANIFEST))
        if not isinstance(manifest, dict):
            raise ValueError("it is no object")
    except _FAULTS as error:
        raise _unreadable(path, error)
    if manifest.get("schema") != SCHEMA:
        raise errors.RecordError(
            "A record of schema {} is read.".format(SCHEMA),
            "{!r} of schema {:.50}".format(path, repr(manifest.get("schema"))),
            "Compare with the release of gradaccum_compat that recorded it, or record again.",
        )
    try:
        _check_manifest(manifest)
    except _FAULTS as error:
        raise _unreadable(path, error)
    return manifest


def _check_manifest(manifest):
    variables, slots = manifest["variables"], manifest["slots"]
    if (
        not isinstance(variables, list)
        or not isinstance(slots, list)
        or len(slots) != len(variables)
    ):
        raise ValueError("variables and slots are lists of one length")
    if not 0 < len(variables) <= _MOST_VARIABLES:
        raise ValueError("{} variables".format(len(variables)))
    for each in variables:
        _check_text(each["name"])
        if each["dtype"] not in ("float16", "bfloat16", "float32", "float64"):
            raise ValueError("a variable is of a floating-point type")
        if not isinstance(each["shape"], list) or not all(
            _is_whole(size) for size in each["shape"]
        ):
            raise ValueError("a shape is a list of whole numbers")
        _elements(each["shape"])
    for names in slots:
        if not isinstance(names, list) or len(names) > 100:
            raise ValueError("slots are lists of names")
        for name in names:
            _check_text(name)
    for key in ("tensorflow", "python", "numpy", "platform", "gradaccum_compat", "context"):
        _check_text(manifest.get(key, ""))
    for key in ("options", "optimizer", "sketch"):
        if not isinstance(manifest.get(key), dict):
            raise ValueError("{} is an object".format(key))
    if not isinstance(manifest["optimizer"].get("settings"), dict):
        raise ValueError("the optimizer's settings are an object")
    for key in ("class", "module", "generation"):
        _check_text(manifest["optimizer"].get(key))
    if manifest["sketch"] != {"seed": _sketch.SEED, "size": _sketch.SIZE}:
        raise ValueError(
            "its sketches are of another kind: {:.100}".format(repr(manifest["sketch"]))
        )


def _check_text(value):
    if not isinstance(value, six.string_types) or len(value) > _LONGEST_NAME:
        raise ValueError("a name is a text of at most {} characters".format(_LONGEST_NAME))


def _json(data):
    return json.loads(data.decode("utf-8"), parse_constant=_no_constant, parse_int=_small_int)


def _no_constant(name):
    raise ValueError("{} is no JSON".format(name))


def _small_int(digits):
    if len(digits) > 20:  # a long one takes the square of its length to read
        raise ValueError("a number of {} digits".format(len(digits)))
    return int(digits)


def _is_whole(value):
    return isinstance(value, six.integer_types) and not isinstance(value, bool) and value >= 0


def _whole(line, key):
    if not _is_whole(line.get(key)):
        raise ValueError("{} is a whole number".format(key))
    return line[key]


def _whole_or_none(line, key):
    return None if line.get(key) is None else _whole(line, key)


def _number_or_none(line, key):
    """A number; those that JSON has no way to write come as text."""
    value = line.get(key)
    if value in ("nan", "inf", "-inf"):
        return float(value)
    if value is None or (
        isinstance(value, six.integer_types + (float,)) and not isinstance(value, bool)
    ):
        return value if value is None else float(value)
    raise ValueError("{} is a number".format(key))


def _at_least_zero(line, key):
    value = _number_or_none(line, key)
    if value is None or not 0 <= value < float("inf"):
        raise ValueError("{} is a finite number of at least zero".format(key))
    return value


def _decoded(text):
    if not isinstance(text, six.string_types):
        raise ValueError("a sketch is a text")
    return _sketch.decode(text)


def _unreadable(path, reason):
    return errors.RecordError(
        "What a record holds is read as it was recorded.",
        "{!r}: {:.300}".format(path, str(reason) or repr(reason)),
        "Record again, or copy the record again.",
    )
