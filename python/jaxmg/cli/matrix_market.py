"""Matrix Market files: read in pieces of bounded size, whatever the size of the matrix.

The format (one header line, comments, sizes, then a line an element):

    %%MatrixMarket matrix coordinate|array real|complex|integer general|symmetric|hermitian
    % comment
    rows columns [elements]
    [row column] value [imaginary part]

Indices count from 1. An array file lists its elements by columns; a symmetric or Hermitian file
holds only the lower triangle, and the other one is filled in here.
"""

from __future__ import annotations

import dataclasses
import gzip
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from jaxmg.cli.failure import bad_input
from jaxmg.cli.pieces import Entries, Piece, StreamSource

_TEXT_CHUNK = 8 << 20  # bytes of text parsed at a time


@dataclasses.dataclass(frozen=True)
class MatrixMarket(StreamSource):
    """A Matrix Market file whose header has been read."""

    path: Path
    coordinate: bool
    complex_values: bool
    symmetry: str
    elements: int  # that the file lists
    body: int  # where the elements begin, in bytes of the text

    def pieces(self) -> Iterator[tuple[Piece, float]]:
        seen = 0
        for numbers, fraction in self._numbers():
            piece = self._coordinates(numbers) if self.coordinate else self._array(numbers, seen)
            seen += len(piece.values)
            if seen > self.elements:
                raise bad_input(f"{self.name} holds more than its {self.elements} elements.")
            yield self._with_mirror_image(piece), fraction
        if seen < self.elements:
            raise bad_input(f"{self.name} ends after {seen} of {self.elements} elements.")

    def _numbers(self) -> Iterator[tuple[np.ndarray, float]]:
        """The numbers of the body, a row an element."""
        fields = 2 * self.coordinate + 1 + self.complex_values
        size = max(1, self.path.stat().st_size)
        with self.path.open("rb") as file, _text(file, self.path) as text:
            text.seek(self.body)
            rest = b""
            while chunk := text.read(_TEXT_CHUNK):
                complete, newline, rest = (rest + chunk).rpartition(b"\n")
                if newline:
                    yield self._parse(complete, fields), min(1.0, file.tell() / size)
            yield self._parse(rest, fields), 1.0

    def _parse(self, text: bytes, fields: int) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # how NumPy reports a bad number
            try:
                numbers = np.fromstring(text, np.float64, sep=" ") if text.strip() else np.empty(0)
            except (DeprecationWarning, ValueError):
                raise bad_input(f"{self.name} holds a line that is not {fields} numbers.") from None
        if len(numbers) % fields:
            raise bad_input(f"{self.name} holds a line that is not {fields} numbers.")
        return numbers.reshape(-1, fields)

    def _values(self, numbers: np.ndarray) -> np.ndarray:
        if not self.complex_values:
            return numbers[:, -1]
        return numbers[:, -2] + 1j * numbers[:, -1]

    def _coordinates(self, numbers: np.ndarray) -> Entries:
        rows = numbers[:, 0].astype(np.int64) - 1
        columns = numbers[:, 1].astype(np.int64) - 1
        for index, limit, what in (
            (rows, self.shape[0], "row"),
            (columns, self.shape[1], "column"),
        ):
            wrong = np.flatnonzero((index < 0) | (index >= limit))
            if wrong.size:
                raise bad_input(
                    f"{self.name}: {what} {index[wrong[0]] + 1} is outside 1 to {limit}."
                )
        return Entries(rows, columns, self._values(numbers))

    def _array(self, numbers: np.ndarray, seen: int) -> Entries:
        """Elements ``seen``, ``seen + 1``, ... by columns (of the lower triangle, if symmetric)."""
        n = self.shape[0]
        place = np.arange(seen, seen + len(numbers))
        if self.symmetry == "general":
            return Entries(place % max(1, n), place // max(1, n), self._values(numbers))
        # Column j of the triangle begins at sum_{i<j} (n - i) = j n - j (j - 1) / 2.
        j = np.arange(n)
        begin = j * n - j * (j - 1) // 2
        columns = np.searchsorted(begin, place, side="right") - 1
        return Entries(place - begin[columns] + columns, columns, self._values(numbers))

    def _with_mirror_image(self, piece: Entries) -> Entries:
        if self.symmetry == "general":
            return piece
        off = piece.rows != piece.columns
        mirrored = piece.values[off]
        if self.symmetry == "hermitian":
            mirrored = mirrored.conj()
        return Entries(
            np.concatenate([piece.rows, piece.columns[off]]),
            np.concatenate([piece.columns, piece.rows[off]]),
            np.concatenate([piece.values, mirrored]),
        )


def open_matrix_market(path: Path) -> MatrixMarket:
    """Reads the header of a .mtx or .mtx.gz file."""
    with path.open("rb") as file, _text(file, path) as text:
        words = text.readline().decode("ascii", "replace").lower().split()
        if len(words) != 5 or words[0] != "%%matrixmarket" or words[1] != "matrix":
            raise bad_input(f"{path} does not begin with a %%MatrixMarket matrix line.")
        layout, field, symmetry = words[2:]
        _check_header(path, layout, field, symmetry)
        line = text.readline()
        while line and (line.startswith(b"%") or not line.strip()):
            line = text.readline()
        body = text.tell()
    try:
        sizes = [int(word) for word in line.split()]
    except ValueError:
        sizes = []
    if len(sizes) != (3 if layout == "coordinate" else 2) or min(sizes) < 0:
        raise bad_input(f"{path}: the line of sizes is missing or wrong.")
    rows, columns = sizes[:2]
    if symmetry != "general" and rows != columns:
        raise bad_input(f"{path} is {rows} x {columns} but says that it is {symmetry}.")
    dense = rows * columns if symmetry == "general" else rows * (rows + 1) // 2
    complex_values = field == "complex"
    return MatrixMarket(
        name=str(path),
        shape=(rows, columns),
        dtype=np.dtype(np.complex128 if complex_values else np.float64),
        path=path,
        coordinate=layout == "coordinate",
        complex_values=complex_values,
        symmetry=symmetry,
        elements=sizes[2] if layout == "coordinate" else dense,
        body=body,
    )


def write_matrix_market(path: Path, x: np.ndarray) -> None:
    """Writes a vector or matrix as an array, with every digit that it has."""
    columns = x.reshape(len(x), -1)
    field = "complex" if np.iscomplexobj(x) else "real"
    with path.open("w") as file:
        file.write(f"%%MatrixMarket matrix array {field} general\n")
        file.write(f"{columns.shape[0]} {columns.shape[1]}\n")
        for value in columns.T.ravel():
            # float() prints the shortest text that reads back as the same number.
            numbers = (value.real, value.imag) if field == "complex" else (value,)
            file.write(" ".join(repr(float(v)) for v in numbers) + "\n")


def _check_header(path: Path, layout: str, field: str, symmetry: str) -> None:
    accepted = {
        "layout": (layout, ("coordinate", "array")),
        "type of number": (field, ("real", "complex", "integer", "double")),
        "symmetry": (symmetry, ("general", "symmetric", "hermitian")),
    }
    for what, (word, words) in accepted.items():
        if word not in words:
            raise bad_input(f"{path}: the {what} is {word}; accepted are {', '.join(words)}.")


def _text(file: BinaryIO, path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(file)) if path.suffix == ".gz" else file
