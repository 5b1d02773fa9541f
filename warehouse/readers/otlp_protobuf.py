"""OTLP protobuf files to the objects that OTLP/JSON has, one batch of a resource at a time.

A file holds one message (``TracesData`` or ``ExportTraceServiceRequest``: the same bytes), or many,
each behind its length: a varint, or four bytes as the collector's file exporter writes.
"""

import base64
import io
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from warehouse.readers.stream import Item

_RESOURCE_SPANS = 0x0A
"""Tag of field 1, length-delimited: in both messages the spans of one resource."""
_INNER = (0x0A, 0x12, 0x1A)
"""Tags of the fields of these: resource, scope spans, schema address."""
_MOST = 1 << 31


def recognises(head: bytes) -> bool:
    """Whether a file with these first bytes is OTLP protobuf, in any of its framings."""
    return _framing(head) is not None


def _framing(head: bytes) -> str | None:
    if _begins_message(head, 0, len(head) + _MOST):
        return "none"
    if len(head) > 4:
        length = int.from_bytes(head[:4], "big")
        if 0 < length < _MOST and _begins_message(head, 4, 4 + length):
            return "bytes"
    length_at = _varint(head, 0)
    if length_at is not None:
        length, at = length_at
        if 0 < length < _MOST and _begins_message(head, at, at + length):
            return "varint"
    return None


def _begins_message(head: bytes, at: int, end: int) -> bool:
    """Whether spans of a resource begin here and end before ``end``, as far as can be seen."""
    if head[at : at + 1] != b"\n":
        return False
    told = _varint(head, at + 1)
    if told is None or not 0 < told[0] < _MOST or told[1] + told[0] > end:
        return False
    stop = told[0] + told[1]
    at = told[1]
    if head[at : at + 1] == b"" or head[at] not in _INNER:
        return False
    told = _varint(head, at + 1)
    if told is None or told[0] + told[1] > stop:
        return False
    # Text may begin so too, but has no control characters.
    return any(byte < 9 or 13 < byte < 32 for byte in head[:64])


def _varint(data: bytes, at: int) -> tuple[int, int] | None:
    """(value, where it ends), or None where it is cut or too long."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            return None
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return None


class _CutError(Exception):
    """The file ends inside a record."""


def items(file: io.BufferedReader) -> Iterator[Item]:
    """Each batch as an item with an OTLP/JSON object; what is cut or broken, with ``error``."""
    framing = _framing(file.peek(4096)[:4096])
    number = 0
    data = b""
    try:
        while True:
            place = f"record {number + 1}"
            data = b""
            if framing == "none":
                tag = _read_varint(file, start=True)
                if tag is None:
                    return
                data = _read(file, _length(file, tag))
                if tag != _RESOURCE_SPANS:
                    continue
                number += 1
                yield _item(place, b"\n" + _as_varint(len(data)) + data)
                continue
            if framing == "bytes":
                head = file.read(4)
                if not head:
                    return
                if len(head) < 4:
                    raise _CutError("4 bytes that say how long the next record is")
                length = int.from_bytes(head, "big")
            else:
                told = _read_varint(file, start=True)
                if told is None:
                    return
                length = told
            data = _read(file, length)
            number += 1
            yield _item(place, data)
    except _CutError as error:
        reason = f"the file ends inside a record: expected {error}"
        yield Item(f"record {number + 1}", "", error=reason)
    except (EOFError, OSError, zlib.error) as error:
        yield Item("end of file", "", error=f"the file cannot be read to its end: {error}")


def _length(file: io.BufferedReader, tag: int) -> int:
    """Bytes of a field's value; fields of other messages to come are passed over."""
    match tag & 7:
        case 0:
            _read_varint(file)
            return 0
        case 1:
            return 8
        case 2:
            return _read_varint(file) or 0
        case 5:
            return 4
    raise _CutError(f"a field of spans, got tag {tag}")


def _read_varint(file: io.BufferedReader, *, start: bool = False) -> int | None:
    """A varint; None at the end of the file where a record may begin."""
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            if start and not shift:
                return None
            raise _CutError("the length of the next record")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise _CutError("a length of at most 10 bytes")


def _read(file: io.BufferedReader, length: int) -> bytes:
    if length >= _MOST:
        raise _CutError(f"a record of less than {_MOST} bytes, got {length}")
    data = file.read(length)
    if len(data) < length:
        raise _CutError(f"{length} bytes, got {len(data)}")
    return data


def _as_varint(value: int) -> bytes:
    told = bytearray()
    while value >= 0x80:
        told.append(value & 0x7F | 0x80)
        value >>= 7
    told.append(value)
    return bytes(told)


def _item(place: str, data: bytes) -> Item:
    # Imported here because only these files need it, and it takes a while.
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    try:
        value = {
            "resourceSpans": [_batch(one) for one in TracesData.FromString(data).resource_spans]
        }
    except (DecodeError, RecursionError, ValueError) as error:
        text = base64.b64encode(data).decode()
        return Item(place, text, error=f"not OTLP protobuf: {type(error).__name__}: {error}")
    return Item(place, msgspec.json.encode(value), value)


def _batch(batch: Any) -> dict[str, Any]:
    return {
        "resource": {"attributes": _attributes(batch.resource.attributes)},
        "scopeSpans": [{"spans": [_span(span) for span in one.spans]} for one in batch.scope_spans],
    }


def _span(span: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        "parentSpanId": span.parent_span_id.hex(),
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": span.start_time_unix_nano,
        "endTimeUnixNano": span.end_time_unix_nano,
        "attributes": _attributes(span.attributes),
        "status": {"code": span.status.code, "message": span.status.message},
    }
    if span.events:
        told["events"] = [
            {
                "name": event.name,
                "timeUnixNano": event.time_unix_nano,
                "attributes": _attributes(event.attributes),
            }
            for event in span.events
        ]
    return told


def _attributes(attributes: Any) -> list[dict[str, Any]]:
    return [{"key": one.key, "value": _value(one.value)} for one in attributes]


def _value(value: Any) -> dict[str, Any]:
    match value.WhichOneof("value"):
        case "string_value":
            return {"stringValue": value.string_value}
        case "int_value":
            return {"intValue": value.int_value}
        case "double_value":
            return {"doubleValue": value.double_value}
        case "bool_value":
            return {"boolValue": value.bool_value}
        case "array_value":
            return {"arrayValue": {"values": [_value(one) for one in value.array_value.values]}}
        case "kvlist_value":
            return {"kvlistValue": {"values": _attributes(value.kvlist_value.values)}}
        case "bytes_value":
            return {"bytesValue": base64.b64encode(value.bytes_value).decode()}
    return {}
