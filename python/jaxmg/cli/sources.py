"""Files of matrices: which kind each is, and how it is opened."""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxmg.cli.failure import bad_input
from jaxmg.cli.matrix_market import open_matrix_market
from jaxmg.cli.pieces import CHUNK_BYTES, Columns, Piece, Rows, RowSource, Source, StreamSource


@dataclasses.dataclass(frozen=True)
class CompressedArray(StreamSource):
    """A compressed member of an .npz archive, which can only be read from its beginning."""

    path: Path
    member: str
    fortran_order: bool

    def pieces(self) -> Iterator[tuple[Piece, float]]:
        count, length = self._lines()
        at_a_time = max(1, CHUNK_BYTES // max(1, length * self.dtype.itemsize))
        with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as stream:
            read_header(stream)
            for first in range(0, count, at_a_time):
                lines = min(at_a_time, count - first)
                data = stream.read(lines * length * self.dtype.itemsize)
                if len(data) < lines * length * self.dtype.itemsize:
                    raise bad_input(f"{self.name}: the file ends before its last element.")
                block = np.frombuffer(data, self.dtype).reshape(lines, length)
                piece = Columns(first, block.T) if self.fortran_order else Rows(first, block)
                yield piece, (first + lines) / count

    def dense(self) -> np.ndarray:
        with np.load(self.path) as archive:
            return archive[self.member.removesuffix(".npy")]

    def _lines(self) -> tuple[int, int]:
        rows, columns = self.shape
        return (columns, rows) if self.fortran_order else (rows, columns)


def open_source(text: str, default_key: str) -> Source:
    """The source that ``text`` names: FILE.npy, FILE.npz, FILE.npz:KEY, FILE.mtx, FILE.mtx.gz.

    An .npz archive without a key gives its array called ``default_key``, or the only one it has.
    """
    path, key = _split_key(text)
    if not path.exists():
        raise bad_input(f"{path}: there is no such file.")
    if path.is_dir():
        raise bad_input(f"{path} is a directory; a .npy, .npz or .mtx file is needed.")
    suffixes = path.suffixes
    try:
        if path.suffix == ".npy":
            return _open_npy(path)
        if path.suffix == ".npz":
            return _open_npz(path, key, default_key)
        if path.suffix == ".mtx" or suffixes[-2:] == [".mtx", ".gz"]:
            return open_matrix_market(path)
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise bad_input(f"{path} cannot be read: {error}") from error
    raise bad_input(f"{path}: unknown kind of file; .npy, .npz, .mtx and .mtx.gz can be read.")


def read_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type of the .npy data in ``stream``, which is left at the first element."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"version {version} of the .npy format holds no plain numbers")


def _split_key(text: str) -> tuple[Path, str | None]:
    head, mark, tail = text.rpartition(":")
    if mark and head.endswith(".npz"):
        return Path(head), tail
    return Path(text), None


def _open_npy(path: Path) -> Source:
    with path.open("rb") as stream:
        shape, fortran_order, dtype = read_header(stream)
        offset = stream.tell()
    return _map(path, str(path), shape, fortran_order, dtype, offset)


def _map(
    path: Path, name: str, shape: tuple[int, ...], fortran_order: bool, dtype: np.dtype, offset: int
) -> Source:
    if dtype.hasobject:
        raise bad_input(f"{name} holds Python objects, not numbers.")
    size = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if path.stat().st_size < offset + size:
        raise bad_input(f"{name}: the file ends before its last element.")
    array: np.ndarray
    if size == 0 or not shape:  # neither can be mapped
        array = np.fromfile(path, dtype, int(np.prod(shape)), offset=offset).reshape(shape)
    else:
        array = np.memmap(path, dtype, "r", offset, shape, "F" if fortran_order else "C")
    return RowSource(name, shape, dtype, array)


def _open_npz(path: Path, key: str | None, default_key: str) -> Source:
    with zipfile.ZipFile(path) as archive:
        keys = [name.removesuffix(".npy") for name in archive.namelist()]
        if key is None:
            key = default_key if default_key in keys else keys[0] if len(keys) == 1 else None
        if key not in keys:
            raise bad_input(
                f"{path} holds the arrays {', '.join(keys)}; say which one: {path}:{keys[0]}"
                if keys
                else f"{path} holds no array."
            )
        member = archive.getinfo(f"{key}.npy")
        with archive.open(member) as stream:
            shape, fortran_order, dtype = read_header(stream)
            header = stream.tell()
    name = f"{path}:{key}"
    if member.compress_type == zipfile.ZIP_STORED:
        offset = _data_offset(path, member) + header
        return _map(path, name, shape, fortran_order, dtype, offset)
    if dtype.hasobject:
        raise bad_input(f"{name} holds Python objects, not numbers.")
    if len(shape) != 2:
        with np.load(path) as arrays:
            return RowSource(name, shape, dtype, arrays[key])
    return CompressedArray(name, shape, dtype, path, member.filename, fortran_order)


def _data_offset(path: Path, member: zipfile.ZipInfo) -> int:
    """Where the bytes of a stored member begin: behind its local header, whose last two fields of
    fixed place are the lengths of the name and the extra data that follow it.
    """
    with path.open("rb") as stream:
        stream.seek(member.header_offset + 26)
        name = int.from_bytes(stream.read(2), "little")
        extra = int.from_bytes(stream.read(2), "little")
    return member.header_offset + 30 + name + extra
