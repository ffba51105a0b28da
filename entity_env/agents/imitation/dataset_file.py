"""Columns of a `Dataset`, and its files: npz, and parquet by pyarrow."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from entity_env.core.files import parse_json, read_file, write_file
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    ContinuousActionSpace,
    SelectEntityActionSpace,
    Spaces,
    entity_widths,
    spaces_from_json,
    spaces_to_json,
)
from entity_env.errors import EntityEnvError, MissingExtraError, SchemaError, UsageError, shown

T = TypeVar("T")

Column: TypeAlias = NDArray[Any] | RaggedArray[Any]
Content: TypeAlias = tuple[Spaces, dict[str, Column], Sequence[Mapping[str, object]]]
"""Arguments of `Dataset.from_columns`."""

FLAT: Final = {
    "episode": np.int64,
    "agent_id": np.int64,
    "step": np.int64,
    "reward": np.float32,
    "terminated": np.bool_,
    "truncated": np.bool_,
}
FLAT_OPTIONAL: Final = {"seed": np.uint64}
FINAL: Final = "final/"
"""Prefix of the columns of final observations."""
NPZ: Final = ".npz"
PARQUET: Final = ".parquet"
_FORMAT: Final = "entity_env.dataset"
_VERSION: Final = 1
_HEADER: Final = "header"
_KEY: Final = b"entity_env.dataset"
"""Metadata key of the header in a parquet file."""
_MAX_FILE_BYTES: Final = 1 << 32
_MAX_BYTES: Final = 1 << 34
"""Limit for all arrays together; a compressed file can be a thousand times smaller."""
_MAX_ROWS: Final = _MAX_BYTES // 8
"""Limit for one array: each gets an int64 index when the dataset is used."""
_MAX_HEADER_BYTES: Final = 1 << 24
_MAX_ARRAYS: Final = 1 << 16
_MAX_NAME_BYTES: Final = (1 << 16) - 1
"""Limit for the name of a member of a zip file."""
_DIALECT: Final = (1, 0), (2, 0)
"""Versions of the npy format that numpy writes for numeric arrays."""


class ColumnKind(NamedTuple):
    """Kind of a ragged column: dtype; numbers per row, None = a flat array; whether optional."""

    dtype: type[np.generic]
    width: int | None
    is_optional: bool = False


def ragged_columns(spaces: Spaces) -> dict[str, ColumnKind]:
    """The ragged columns that a dataset with these spaces may have."""
    found = shown_columns(spaces)
    final = {
        f"{FINAL}{name}": kind._replace(is_optional=True)
        for name, kind in found.items()
        if not name.startswith("chosen/")
    }
    return found | final


def shown_columns(spaces: Spaces) -> dict[str, ColumnKind]:
    """Ragged columns of a decision's observation and choice."""
    found: dict[str, ColumnKind] = {}
    for name, width in entity_widths(*spaces).items():
        found[f"features/{name}"] = ColumnKind(np.float32, width)
        found[f"visible/{name}"] = ColumnKind(np.bool_, None, True)
    for name, space in spaces[1].items():
        found[f"actors/{name}"] = ColumnKind(np.int64, None)
        if isinstance(space, ContinuousActionSpace):
            found[f"chosen/{name}"] = ColumnKind(np.float32, len(space))
            continue
        found[f"chosen/{name}"] = ColumnKind(np.int64, None)
        if isinstance(space, SelectEntityActionSpace):
            found[f"actees/{name}"] = ColumnKind(np.int64, None)
            found[f"mask/{name}"] = ColumnKind(np.bool_, None, True)
        else:
            found[f"mask/{name}"] = ColumnKind(np.bool_, len(space), True)
        if space.given and not isinstance(spaces[1][space.given[-1]], ContinuousActionSpace):
            found[f"per_actor/{name}"] = ColumnKind(np.int64, None, True)
    return found


def flat_columns(present: Container[str]) -> Iterator[tuple[str, type[np.generic]]]:
    """Name and dtype of all required flat columns, and optional ones that are present."""
    yield from FLAT.items()
    yield from (each for each in FLAT_OPTIONAL.items() if each[0] in present)


def is_dataset_file(path: Path) -> bool:
    """True if a path has a dataset's suffix."""
    return path.suffix in (NPZ, PARQUET)


def write_dataset(path: Path, content: Content, make: Callable[..., T]) -> None:
    """See `Dataset.save`; `make`, that is `Dataset.from_columns`, must accept the file."""
    _require_ending(path)
    if path.exists():  # only a dataset is replaced
        try:
            _header_of(path)
        except UsageError as error:
            raise UsageError(f"{path} exists and is not a dataset: choose another name") from error
    try:
        written = (_npz_bytes if path.suffix == NPZ else _parquet_bytes)(*content)
        # Refuse to write a file that cannot be read again.
        if len(written) > _MAX_FILE_BYTES:
            raise SchemaError(f"{len(written)} bytes are too many to be read again")
        make(*_parsed(written, path.suffix))
        write_file(path, written)
    except (MissingExtraError, MemoryError):
        raise
    except (EntityEnvError, OSError, ValueError) as error:
        raise UsageError(f"cannot write {path}: {error}") from error


def read_dataset(path: Path, make: Callable[..., T]) -> T:
    """See `Dataset.load`; `make` is `Dataset.from_columns`."""
    _require_ending(path)
    with _naming(path):
        return make(*_parsed(read_file(path, _MAX_FILE_BYTES), path.suffix))


def _parsed(content: bytes, suffix: str) -> Content:
    return (_read_npz if suffix == NPZ else _read_rows)(content)


def _header_of(path: Path) -> _Header:
    with _naming(path):
        content = read_file(path, _MAX_FILE_BYTES)
        if path.suffix == PARQUET:
            with _opened(content) as file:
                return _rows_header(file)
        with _Archive(content) as archive:
            return archive.header()


def _require_ending(path: Path) -> None:
    if not is_dataset_file(path):
        raise UsageError(f"a dataset must be called NAME{NPZ} or NAME{PARQUET}, got {path}")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Converts errors to a `UsageError` about the file, except missing extras or lack of memory."""
    try:
        yield
    except (MissingExtraError, UsageError, MemoryError):
        raise
    except OSError as error:
        if type(error).__module__ == "pyarrow.lib":
            raise UsageError(f"{path} is not a dataset: {_first_line(error)}") from error
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except EntityEnvError as error:
        raise UsageError(f"{path} is a damaged dataset: {error}") from error
    except Exception as error:  # from zipfile, numpy and pyarrow: too many to list
        what = f"{type(error).__name__}: {_first_line(error)}"
        raise UsageError(f"{path} is not a dataset: {what}") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


# ------------------------------------------------------------------ the header


class _Header(NamedTuple):
    spaces: Spaces
    recordings: Sequence[Mapping[str, object]]


def _header_text(
    spaces: Spaces, columns: Mapping[str, Column], recordings: Sequence[Mapping[str, object]]
) -> str:
    known = ragged_columns(spaces)
    for name, column in columns.items():
        if isinstance(column, RaggedArray) and name not in known:
            raise SchemaError(f"column {name!r} does not belong to the spaces")
    data = {
        "format": _FORMAT,
        "version": _VERSION,
        "entity_env": version("entity-env"),
        "spaces": spaces_to_json(*spaces),
        "recordings": list(recordings),
    }
    header = json.dumps(data, default=str)
    _parsed_header(header.encode())  # refuses names that arrays cannot have
    return header


def _parsed_header(header: bytes) -> _Header:
    data = parse_json(header)
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise SchemaError(f"its header has no format {_FORMAT!r}")
    number = data.get("version")
    if type(number) is not int or number < 1:
        raise SchemaError(f"its version must be an integer, got {shown(number)}")
    if number > _VERSION:
        raise SchemaError(
            f"it has version {number}, but this package reads up to {_VERSION}: install a later "
            "release"
        )
    recordings = data.get("recordings", [])
    if not isinstance(recordings, list) or not all(isinstance(each, dict) for each in recordings):
        raise SchemaError(f"its recordings must be a list of objects, got {shown(recordings)}")
    return _Header(spaces_from_json(data.get("spaces")), recordings)


# ------------------------------------------------------------------ npz


def _npz_bytes(
    spaces: Spaces, columns: Mapping[str, Column], recordings: Sequence[Mapping[str, object]]
) -> bytes:
    header = _header_text(spaces, columns, recordings)
    arrays: dict[str, NDArray[Any]] = {_HEADER: np.array(header)}
    for name, column in columns.items():
        if isinstance(column, RaggedArray):
            arrays[f"{name}.values"] = column.values
            arrays[f"{name}.lengths"] = column.lengths
        else:
            arrays[name] = column
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            if len(f"{name}.npy".encode()) > _MAX_NAME_BYTES:
                raise SchemaError(
                    f"the name {shown(name)} of an array is too long for {NPZ}: write {PARQUET}, "
                    "or shorten the name of the entity or action"
                )
            # Not `np.savez_compressed`: names are its keywords, so none could be `file`.
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, np.asarray(array, order="C"), allow_pickle=False)
    return content.getvalue()


def _read_npz(content: bytes) -> Content:
    with _Archive(content) as archive:
        header = archive.header()
        columns: dict[str, Column] = {
            name: archive.array(name, dtype) for name, dtype in flat_columns(archive)
        }
        for name, kind in ragged_columns(header.spaces).items():
            if kind.is_optional and f"{name}.values" not in archive:
                continue
            values = archive.array(f"{name}.values", kind.dtype)
            columns[name] = RaggedArray(values, archive.array(f"{name}.lengths", np.int64))
    return header.spaces, columns, header.recordings


class _Archive:
    """The arrays of an npz file; reads no more of each than its declared size."""

    def __init__(self, content: bytes) -> None:
        self._file = zipfile.ZipFile(io.BytesIO(content))
        members = self._file.infolist()
        size = sum(member.file_size for member in members)
        if size > _MAX_BYTES or len(members) > _MAX_ARRAYS:
            raise SchemaError(f"{len(members)} arrays of {size} bytes are too many")
        self._sizes = {member.filename: member.file_size for member in members}

    def __enter__(self) -> _Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __contains__(self, name: object) -> bool:
        return f"{name}.npy" in self._sizes

    def header(self) -> _Header:
        if self._sizes.get(f"{_HEADER}.npy", 0) > _MAX_HEADER_BYTES:
            raise SchemaError("its header is too large")
        header, shape, dtype = self._read(_HEADER)
        if dtype.kind != "U" or shape:
            raise SchemaError("its header is not text")
        text = str(np.frombuffer(header, dtype)[0] if dtype.itemsize else "")
        return _parsed_header(text.encode())

    def array(self, name: str, expected: type[np.generic]) -> NDArray[Any]:
        """An array with this dtype, and any shape."""
        content, shape, dtype = self._read(name)
        if dtype != np.dtype(expected):
            raise SchemaError(f"array {name!r} needs {np.dtype(expected)}, got {dtype}")
        if dtype == np.bool_:  # its bytes may be neither 0 nor 1
            return np.not_equal(np.frombuffer(content, np.uint8), 0).reshape(shape)
        return np.frombuffer(content, dtype).reshape(shape).copy()

    def _read(self, name: str) -> tuple[bytes, tuple[int, ...], np.dtype[Any]]:
        if name not in self:
            raise SchemaError(f"it has no array {name!r}")
        with self._file.open(f"{name}.npy") as member:
            dialect = npy.read_magic(member)
            if dialect not in _DIALECT:
                raise SchemaError(f"array {name!r} needs npy version 1.0 or 2.0, got {dialect}")
            read = npy.read_array_header_1_0 if dialect == (1, 0) else npy.read_array_header_2_0
            shape, is_fortran, dtype = read(member)
            content = member.read()
        is_plain = not is_fortran and not dtype.hasobject and all(size >= 0 for size in shape)
        if not is_plain or prod(shape) * dtype.itemsize != len(content):
            raise SchemaError(
                f"array {name!r} has {len(content)} bytes, which do not fit {shape} {dtype}"
            )
        if shape and shape[0] > _MAX_ROWS:  # rows without features take no bytes
            raise SchemaError(f"array {name!r} has {shape[0]} rows, at most {_MAX_ROWS} are read")
        return content, shape, dtype


# ------------------------------------------------------------------ parquet


def _arrow(module: str = "pyarrow") -> Any:  # noqa: ANN401 - it has no types, and may be missing
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyarrow", "parquet", "a parquet file") from error
    except ImportError as error:  # as for a release that does not fit this numpy
        words = f"a parquet file needs pyarrow, which cannot be imported: {error}"
        raise UsageError(words) from error


def _parquet_bytes(
    spaces: Spaces, columns: Mapping[str, Column], recordings: Sequence[Mapping[str, object]]
) -> bytes:
    arrow, header = _arrow(), _header_text(spaces, columns, recordings).encode()
    kinds = ragged_columns(spaces)
    written = {
        name: arrow.array(column)
        if isinstance(column, np.ndarray)
        else _lists(column, kinds[name], arrow)
        for name, column in columns.items()
    }
    table = arrow.table(written).replace_schema_metadata({_KEY: header})
    content = io.BytesIO()
    _arrow("pyarrow.parquet").write_table(table, content)
    return content.getvalue()


def _lists(column: RaggedArray[Any], kind: ColumnKind, arrow: Any) -> Any:  # noqa: ANN401 - pyarrow's
    values = arrow.array(column.values.reshape(-1))
    if kind.width is not None:
        inner = np.arange(len(column.values) + 1, dtype=np.int64) * kind.width
        values = arrow.LargeListArray.from_arrays(inner, values)
    return arrow.LargeListArray.from_arrays(column.offsets, values)


def _opened(content: bytes) -> Any:  # noqa: ANN401 - a pyarrow.parquet.ParquetFile
    return _arrow("pyarrow.parquet").ParquetFile(_arrow().BufferReader(content))


def _rows_header(file: Any) -> _Header:  # noqa: ANN401 - a pyarrow.parquet.ParquetFile
    header = (file.schema_arrow.metadata or {}).get(_KEY)
    if header is None or len(header) > _MAX_HEADER_BYTES:
        raise SchemaError("it has no metadata of a dataset")
    return _parsed_header(header)


def _read_rows(content: bytes) -> Content:
    arrow = _arrow()
    with _opened(content) as file:
        header = _rows_header(file)
        _require_size(file.metadata)
        present = set(file.schema_arrow.names)
        kinds = {
            name: kind
            for name, kind in ragged_columns(header.spaces).items()
            if name in present or not kind.is_optional
        }
        flat = dict(flat_columns(present))
        missing = [name for name in (*flat, *kinds) if name not in present]
        if missing:
            raise SchemaError(f"it has no column {missing[0]!r}")
        table = file.read(columns=[*flat, *kinds])
    columns: dict[str, Column] = {}
    for name, dtype in flat.items():
        values = _whole(table, name, _type_of(dtype, arrow))
        columns[name] = values.to_numpy(zero_copy_only=False).copy()
    for name, kind in kinds.items():
        columns[name] = _ragged(_whole(table, name, _list_of(kind, arrow)), name, kind)
    return header.spaces, columns, header.recordings


def _require_size(metadata: Any) -> None:  # noqa: ANN401 - pyarrow's
    """Refuses files that need too much memory, since equal values compress to almost nothing."""
    total = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            total += max(column.total_uncompressed_size, 8 * column.num_values)
    if total > _MAX_BYTES or metadata.num_columns > _MAX_ARRAYS:
        raise SchemaError(f"{metadata.num_columns} columns of {total} bytes are too many")


def _whole(table: Any, name: str, kind: Any) -> Any:  # noqa: ANN401 - pyarrow's
    """A column in one piece; raises `SchemaError` if it has nulls."""
    column = table.column(name).cast(kind).combine_chunks()
    if column.null_count:
        raise SchemaError(f"column {name!r} has {column.null_count} empty values")
    return column


def _ragged(lists: Any, name: str, kind: ColumnKind) -> RaggedArray[Any]:  # noqa: ANN401 - pyarrow's
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
    values = lists.flatten()
    shape: tuple[int, ...] = (len(values),)
    if kind.width is not None:
        widths = values.value_lengths().to_numpy(zero_copy_only=False)
        if values.null_count or (widths != kind.width).any():
            raise SchemaError(f"column {name!r} needs rows of {kind.width}")
        shape, values = (len(values), kind.width), values.flatten()
    if values.null_count:
        raise SchemaError(f"column {name!r} has {values.null_count} empty values")
    return RaggedArray(values.to_numpy(zero_copy_only=False).reshape(shape).copy(), lengths)


def _type_of(dtype: type[np.generic], arrow: Any) -> Any:  # noqa: ANN401 - pyarrow's
    return arrow.from_numpy_dtype(np.dtype(dtype))


def _list_of(kind: ColumnKind, arrow: Any) -> Any:  # noqa: ANN401 - pyarrow's
    each = _type_of(kind.dtype, arrow)
    return arrow.large_list(each if kind.width is None else arrow.large_list(each))
