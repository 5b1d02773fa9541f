"""Broken deliveries out of sound ones: of bytes, of JSON structure, of values, of whole files."""

import copy
import gzip
import json
import random
from typing import Any

_MARK = "\ue000odd:"
"""Begins a text that stands for JSON which Python would not write."""
_RAW = {
    "huge": "9" * 400,
    "huge exponent": "1e400",
    "tiny": "-1e-400",
    "long number": "18446744073709551617",
    "nan": "NaN",
    "infinity": "-Infinity",
    "deep list": "[" * 400 + "]" * 400,
    "deeper list": "[" * 3000 + "]" * 3000,
    "deep object": '{"arguments":' * 300 + "1" + "}" * 300,
    "deeper object": '{"a":' * 2000 + "1" + "}" * 2000,
    "surrogate": '"\\ud800"',
    "surrogate inside": '"a\\udfff{\\"a\\": 1}"',
    "null character": '"\\u0000"',
    "twice a key": '{"id":"1","id":"2","type":"x","type":null}',
}
_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    2**53 + 1,
    -(2**63),
    "",
    " ",
    "0",
    "null",
    "[DONE]",
    "{}",
    '"{}"',
    '{"a": "b"',
    '{"isError": true}',
    "x" * 70_000,
    "\u202e\ufffd\U0001f600",
    "2026-13-45T99:99:99Z",
    "0000-00-00",
    [],
    {},
    [[]],
    [None],
    [{}],
    {"": ""},
    {"type": "text", "text": None},
    {"name": None, "arguments": None},
    {"content": [1, None, {"type": 1}]},
)
_KEYS = (
    "",
    "id",
    "type",
    "name",
    "role",
    "content",
    "error",
    "result",
    "tool_calls",
    "\x00",
    "a.b",
)


def mutated(seed: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """One to three changes of a file; ``others`` are what it may be mixed with."""
    data = seed
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice((_structure,) * 6 + (_bytes,) * 2 + (_file,))
        try:
            data = change(data, rng, others)
        except RecursionError:  # nested too deep to be changed by its structure
            data = _bytes(data, rng, others)
    return data


# --- structure ------------------------------------------------------------------------------------


def _structure(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    values, is_lines = _parsed(data)
    if not values:
        return _bytes(data, rng, others)
    chosen = rng.randrange(len(values))
    value = values[chosen] = copy.deepcopy(values[chosen])
    for _ in range(rng.choice((1, 1, 2, 4))):
        value = values[chosen] = _changed(value, rng, others)
    if is_lines and rng.random() < 0.2:
        values.insert(rng.randrange(len(values) + 1), rng.choice(values))
    if is_lines and rng.random() < 0.1:
        rng.shuffle(values)
    texts = [_dumped(value) for value in values]
    return ("\n".join(texts) + "\n").encode() if is_lines else texts[0].encode()


def _parsed(data: bytes) -> tuple[list[Any], bool]:
    """The JSON values of a file, and whether they are lines; none where it is no JSON."""
    try:
        return [json.loads(data)], False
    except (RecursionError, ValueError):
        pass
    try:
        return [json.loads(line) for line in data.splitlines() if line.strip()], True
    except (RecursionError, ValueError):
        return [], False


def _dumped(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    for name, raw in _RAW.items():
        text = text.replace(json.dumps(_MARK + name), raw)
    return text


def _odd(rng: random.Random) -> Any:
    if rng.random() < 0.4:
        return _MARK + rng.choice(list(_RAW))
    return copy.deepcopy(rng.choice(_VALUES))


def _places(value: Any, limit: int = 4000) -> list[tuple[Any, Any]]:
    """(container, key) of everything in a value."""
    found: list[tuple[Any, Any]] = []
    stack = [value]
    while stack and len(found) < limit:
        node = stack.pop()
        pairs = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
        for key, inner in pairs:
            found.append((node, key))
            if isinstance(inner, (dict, list)):
                stack.append(inner)
    return found


def _changed(value: Any, rng: random.Random, others: list[bytes]) -> Any:
    places = _places(value) if isinstance(value, (dict, list)) else []
    if not places or rng.random() < 0.02:
        return _odd(rng)
    node, key = rng.choice(places)
    kind = rng.randrange(12)
    if kind in (0, 1):
        node[key] = _odd(rng)
    elif kind in (2, 3):
        del node[key]
    elif kind == 4 and isinstance(node, list):
        node.insert(rng.randrange(len(node) + 1), copy.deepcopy(node[key]))
    elif kind == 4:
        node[rng.choice(_KEYS)] = copy.deepcopy(node[key])
    elif kind == 5:
        other, place = rng.choice(places)
        node[key], other[place] = other[place], node[key]
        if _is_circle(value):
            return None
    elif kind == 6 and isinstance(node, dict):
        node[rng.choice(_KEYS)] = node.pop(key)
    elif kind == 7:
        node[key] = _other_type(node[key])
    elif kind == 8 and isinstance(node[key], list):
        node[key] = node[key] * rng.choice((2, 3)) if rng.random() < 0.5 else node[key][::-1]
    elif kind == 9 and isinstance(node[key], str) and node[key]:
        text = node[key]
        at = rng.randrange(len(text))
        node[key] = rng.choice((text[:at], text[at:], text + text, text[:at] + "\x00" + text[at:]))
    elif kind == 10:
        _wrong_id(places, rng)
    else:
        values, _ = _parsed(rng.choice(others))
        if values:
            inner = [n[k] for n, k in _places([rng.choice(values)], 400)]
            if inner:
                node[key] = copy.deepcopy(rng.choice(inner))
    return value


def _is_circle(value: Any) -> bool:
    try:
        json.dumps(value)
    except (RecursionError, ValueError):
        return True
    return False


def _other_type(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (RecursionError, ValueError):
            return [value]
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return str(value)


def _wrong_id(places: list[tuple[Any, Any]], rng: random.Random) -> None:
    """One id of the record put where another one was."""
    ids = [
        (node, key)
        for node, key in places
        if isinstance(key, str)
        and key.lower().endswith(("id", "ids", "uuid", "parent"))
        and isinstance(node[key], (str, int))
    ]
    if ids:
        (node, key), (other, place) = rng.choice(ids), rng.choice(ids)
        node[key] = other[place]


# --- bytes and files ------------------------------------------------------------------------------


def _bytes(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    if not data:
        return rng.choice((b"", b"\n", b"\x00", b"[", b"{}", b"[]", b"null", b"\xef\xbb\xbf"))
    at = rng.randrange(len(data))
    to = min(len(data), at + rng.choice((1, 1, 2, 8, 64, 1024)))
    kind = rng.randrange(8)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == 2:
        return data[:at] + data[to:]
    if kind == 3:
        return data[:to] + data[at:]
    odd = rng.choice(
        (b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"\n", b'"', b"}", b"]", b",")
    )
    if kind == 4:
        return data[:at] + odd + data[at:]
    if kind == 5:
        return data[:at] + odd + data[to:]
    if kind == 6:
        return data[at:]
    return bytes(rng.randrange(256) for _ in range(to - at)) + data[to:]


def _file(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    other = rng.choice(others)
    kind = rng.randrange(9)
    if kind == 0:
        return data + other
    if kind == 1:
        return data.rstrip(b"\n") + b"\n" + other
    if kind == 2:
        packed = gzip.compress(data, compresslevel=1)
        return packed if rng.random() < 0.5 else packed[: rng.randrange(len(packed))]
    if kind == 3:
        return b"\xef\xbb\xbf" + data
    if kind == 4:
        return data.replace(b"\n", b"\r\n")
    if kind == 5:
        return data.decode(errors="replace").encode(rng.choice(("utf-16", "utf-8-sig", "utf-32")))
    values, is_lines = _parsed(data)
    if not values:
        return data + data
    if kind == 6:
        return json.dumps(values if is_lines else values * 2).encode()
    if kind == 7:
        return json.dumps(values, indent=1).encode()
    return "\n".join(json.dumps(value) for value in values * 2).encode()
