"""Sketches: 64 numbers that stand for an array, so that two arrays can be compared without keeping
them.

A sketch is linear. The length of the difference of two sketches is the length of the difference of
the two arrays, to about 10 % (its square is right on average, with a relative standard deviation of
sqrt(2 / 64)).

An element has a sign and a place. Each is random, and known from the element's position alone:
1. The array is cut into rows of 1021 elements, a prime number, so that a column of a matrix does
   not meet itself in each row. The rows are multiplied by random signs and added up.
2. The 1021 sums are multiplied by random signs and added up in 64 places. The first 64 sums have a
   place of their own: the sketch of a short array holds the array itself.
"""

from __future__ import absolute_import, division, print_function

import base64
import collections
import threading

import numpy as np

#: Numbers in a sketch.
SIZE = 64
#: Seed of the signs. A record names it, and one with another seed cannot be compared with this one.
SEED = 0

_ROW = 1021
_ROWS = 128
_BLOCK = _ROW * _ROWS
_INFINITE, _BOOL = float("inf"), np.dtype(bool)
#: Where the signs of a block may begin in the table of signs.
_BEGINNINGS = 2**16

#: The numbers that a record keeps of an array: the Euclidean norm and the largest absolute value
#: of its finite elements, how many elements are not finite, how many are exactly zero, and the
#: sketch of the finite elements.
Summary = collections.namedtuple("Summary", ["norm", "max", "nonfinite", "zeros", "sketch"])


_of_thread = threading.local()


def sketcher():
    """This thread's Sketcher."""
    if not hasattr(_of_thread, "sketcher"):
        _of_thread.sketcher = Sketcher()
    return _of_thread.sketcher


class Sketcher(object):
    """Summarises arrays. Serves one thread at a time: its buffers are used again."""

    def __init__(self):
        # RandomState.bytes has the same stream in each NumPy since 1.16 on Python 2.7.
        random = np.random.RandomState(SEED)
        signs = np.unpackbits(
            np.frombuffer(random.bytes((_BLOCK + _BEGINNINGS) // 8 + 1), np.uint8)
        )
        self._signs = {np.dtype(np.float32): _as_signs(signs, np.float32)}
        places = np.frombuffer(random.bytes(_ROW), np.uint8) % SIZE
        self._places = np.where(np.arange(_ROW) < SIZE, np.arange(_ROW), places)
        self._last_signs = _as_signs(
            np.unpackbits(np.frombuffer(random.bytes(_ROW // 8 + 1), np.uint8)), np.float64
        )
        self._random, self._blocks = random, np.zeros([0], np.uint32)
        self._buffers = {}

    def summary(self, array, minus=None):
        """The Summary of an array, or of `array - minus`, without a copy of the whole.

        Args:
            array: an array of float32 or float64; other floats are cast.
            minus: an array of the same shape and dtype, or None.
        """
        array = _flat(array)
        minus = None if minus is None else _flat(minus).astype(array.dtype, copy=False)
        # Infinite weights have no difference, and large gradients no square; both are looked after.
        # Once for all blocks: this takes as long as going through thousands of elements.
        with np.errstate(invalid="ignore", over="ignore"):
            return self._summary(array.size, self._pieces(array, minus))

    def sketch(self, array):
        """The sketch alone."""
        return self.summary(array).sketch

    def summary_of_rows(self, values, rows, shape):
        """The Summary of an array that is zero but for some rows, each of which comes once.

        Args:
            values: the rows' values.
            rows: their positions.
            shape: of the whole array.
        """
        values = _flat(values)
        size = int(np.prod(shape, dtype=np.int64))
        width = size // shape[0] if shape[0] else 0
        positions = (
            np.asarray(rows, np.int64)[:, None] * width + np.arange(width, dtype=np.int64)
        ).reshape(-1)
        values, nonfinite = _finite(values)
        folded = values.astype(np.float64)
        if size > _ROW:
            block, place = np.divmod(positions, _BLOCK)
            beginnings = self._beginnings(int(block.max()) + 1 if len(block) else 0)
            signs = self._signs[np.dtype(np.float32)][
                (beginnings[block] >> 1) % _BEGINNINGS + place
            ]
            folded = folded * signs * np.where(beginnings[block] & 1, -1.0, 1.0)
        folded = np.bincount(positions % _ROW, folded, _ROW)[: min(size, _ROW)]
        largest = float(np.max(np.abs(values))) if values.size else 0.0
        zeros = size - nonfinite - int(np.count_nonzero(values))
        return Summary(
            float(np.sqrt(_square(values.astype(np.float64)))),
            largest,
            nonfinite,
            zeros,
            self._placed(folded),
        )

    def _summary(self, size, pieces):
        square, largest, nonfinite, zeros = 0.0, 0.0, 0, 0
        folded = np.zeros([min(size, _ROW)], np.float64)
        for number, piece in enumerate(pieces):
            part = float(np.dot(piece, piece))
            if not part < _INFINITE:
                piece, bad = _finite(piece)
                nonfinite += bad
                part = _square(piece.astype(np.float64))
            square += part
            largest = max(
                largest, float(np.maximum.reduce(piece)), -float(np.minimum.reduce(piece))
            )
            equal = np.equal(piece, 0, out=self._buffer("zeros", _BOOL)[: piece.size])
            zeros += int(np.count_nonzero(equal))
            if size > _ROW:
                self._fold(piece, number, folded)
            else:
                folded += piece
        zeros -= nonfinite  # they were made zero
        return Summary(float(np.sqrt(square)), largest, nonfinite, zeros, self._placed(folded))

    def _pieces(self, array, minus):
        """Blocks of the array, small enough for the processor's cache."""
        for begin in range(0, array.size, _BLOCK):
            piece = array[begin : begin + _BLOCK]
            if minus is not None:
                difference = self._buffer("difference", array.dtype)[: piece.size]
                piece = np.subtract(piece, minus[begin : begin + _BLOCK], out=difference)
            yield piece

    def _fold(self, piece, number, folded):
        """Adds a block's rows, each element with its sign."""
        if number >= len(self._blocks):
            self._beginnings(number + 1)
        beginning = int(self._blocks[number])
        first = (beginning >> 1) % _BEGINNINGS
        signs = self._signs_of(piece.dtype)[first : first + piece.size]
        add = np.subtract if beginning & 1 else np.add
        whole = piece.size // _ROW * _ROW
        if whole:
            # Half as long as a product and a sum, and the same bits.
            rows, signs_of_rows = [each[:whole].reshape(-1, _ROW) for each in (piece, signs)]
            add(folded, np.einsum("ij,ij->j", rows, signs_of_rows), out=folded)
        if whole < piece.size:
            rest = folded[: piece.size - whole]
            add(rest, piece[whole:] * signs[whole:], out=rest)

    def _placed(self, folded):
        return np.bincount(
            self._places[: folded.size], folded * self._last_signs[: folded.size], SIZE
        )

    def _beginnings(self, count):
        """A random number for each block: where its signs begin, and the sign of all of them."""
        while len(self._blocks) < count:
            more = np.frombuffer(self._random.bytes(4 * 1024), "<u4")
            self._blocks = np.concatenate([self._blocks, more])
        return self._blocks

    def _signs_of(self, dtype):
        if dtype not in self._signs:
            self._signs[dtype] = self._signs[np.dtype(np.float32)].astype(dtype)
        return self._signs[dtype]

    def _buffer(self, name, dtype):
        if (name, dtype) not in self._buffers:
            self._buffers[name, dtype] = np.empty([_BLOCK], dtype)
        return self._buffers[name, dtype]


def encode(sketch):
    """A sketch as text: base64 of its 64 numbers, as little-endian float32."""
    return base64.b64encode(sketch.astype("<f4").tobytes()).decode("ascii")


def decode(text):
    """The 64 numbers of a text, as float64.

    Raises:
        ValueError: if it is none, or holds what is not finite.
    """
    try:
        data = base64.b64decode(text.encode("ascii"))
    except Exception:  # binascii.Error, or TypeError on Python 2
        raise ValueError("a sketch is base64")
    if len(data) != 4 * SIZE:
        raise ValueError("a sketch has {} numbers".format(SIZE))
    sketch = np.frombuffer(data, "<f4").astype(np.float64)
    if not np.all(np.isfinite(sketch)):
        raise ValueError("a sketch is finite")
    return sketch


def _as_signs(bits, dtype):
    return bits.astype(dtype) * 2 - 1


def _flat(array):
    array = np.asarray(array)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32)
    return np.ascontiguousarray(array).reshape(-1)


def _finite(values):
    """The values, zero where they are not finite, and how many are not."""
    finite = np.isfinite(values)
    bad = int(values.size - np.count_nonzero(finite))
    return (np.where(finite, values, np.zeros([], values.dtype)) if bad else values), bad


def _square(values):
    return float(np.dot(values, values)) if values.size else 0.0
