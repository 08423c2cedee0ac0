"""Matrices outside of memory, known by shape and type before any of their elements is read.

A `RowSource` gives any rows at once (a memory-mapped file); a `StreamSource` gives its elements in
the order of the file. Neither ever holds the whole matrix.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator

import numpy as np

CHUNK_BYTES = 32 << 20  # read and checked at a time


@dataclasses.dataclass(frozen=True)
class Rows:
    """Whole rows, the first of them of index ``first``."""

    first: int
    block: np.ndarray


@dataclasses.dataclass(frozen=True)
class Columns:
    """Whole columns, the first of them of index ``first``."""

    first: int
    block: np.ndarray


@dataclasses.dataclass(frozen=True)
class Entries:
    """Single elements ``(rows[k], columns[k]) += values[k]``."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray


Piece = Rows | Columns | Entries


@dataclasses.dataclass(frozen=True)
class Source(abc.ABC):
    """A matrix or vector in a file."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @abc.abstractmethod
    def dense(self) -> np.ndarray:
        """All of it: for right-hand sides."""


@dataclasses.dataclass(frozen=True)
class RowSource(Source):
    """An array that the operating system reads when it is looked at."""

    array: np.ndarray

    def rows(self, start: int, stop: int) -> np.ndarray:
        """The rows from ``start`` up to ``stop``."""
        return self.array[start:stop]

    def dense(self) -> np.ndarray:
        return np.asarray(self.array)


class StreamSource(Source):
    """Elements in the order in which the file holds them."""

    @abc.abstractmethod
    def pieces(self) -> Iterator[tuple[Piece, float]]:
        """The elements, each piece with the fraction of the file that has been read after it."""

    def dense(self) -> np.ndarray:
        result = np.zeros(self.shape, self.dtype)
        for piece, _ in self.pieces():
            match piece:
                case Rows(first, block):
                    result[first : first + len(block)] = block
                case Columns(first, block):
                    result[:, first : first + block.shape[1]] = block
                case Entries(rows, columns, values):
                    np.add.at(result, (rows, columns), values.astype(self.dtype))
        return result
