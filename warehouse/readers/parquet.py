"""Parquet files, as exports of observability products come: one item a row.

Rows are read by batches out of one row group after another, so that memory follows a row group.
Columns that hold JSON text stay text: the readers that know them decode them.
"""

import datetime
import decimal
import io
from collections.abc import Iterator
from typing import Any

import msgspec

from warehouse.readers.stream import Item

_BATCH = 256
"""Rows that are objects at one time; a trace in a row may be megabytes."""


def recognises(head: bytes) -> bool:
    """Whether the file is Parquet."""
    return head[:4] == b"PAR1"


def items(file: io.BufferedReader) -> Iterator[Item]:
    """The rows in order, each an object without the columns that are null in it."""
    import pyarrow as pa  # takes a tenth of a second, and few deliveries are Parquet
    import pyarrow.parquet as pq

    number = 0
    try:
        source: Any = file if file.seekable() else io.BytesIO(file.read())
        with pq.ParquetFile(source, buffer_size=1 << 20, pre_buffer=False) as table:
            for batch in table.iter_batches(batch_size=_BATCH):
                for row in batch.to_pylist():
                    number += 1
                    value = _plain(row)
                    yield Item(f"row {number}", msgspec.json.encode(value, enc_hook=str), value)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        reason = f"the Parquet file cannot be read: {str(error)[:300]}"
        yield Item(f"row {number + 1}" if number else "start of file", "", error=reason)


def _plain(value: Any) -> Any:
    """The value in JSON's types: times are ISO text with all their digits, maps objects."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        if value and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            return {str(key): _plain(inner) for key, inner in value}
        return [_plain(inner) for inner in value]
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else str(value)
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(microseconds=1) * 1000
    return value
