"""Payloads that are kept shorter than they came: what stays of them, and how they still compare.

Long results of stored events are cut, and with ``--drop-payloads`` neither arguments nor results
are kept at all. Either way a mapping stands for the payload, with what the rest of the warehouse
needs: size, hash, and salted hashes of the values inside, by which dataflow is still found.
"""

import hashlib
from typing import Any, TypeGuard

from warehouse.values import is_telling, values_in

MARK = "toolatlas:payload"
"""Key of the mapping that stands for a payload; its value is ``cut`` or ``dropped``."""


def is_payload(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a value stands for a payload that was cut or dropped."""
    return isinstance(value, dict) and MARK in value


def value_id(value: str, salt: bytes) -> int:
    """A salted hash of one value, below 2^63."""
    return (
        int.from_bytes(
            hashlib.blake2b(value.encode(errors="replace"), key=salt, digest_size=8).digest()
        )
        >> 1
    )


def _value_ids(text: str, salt: bytes) -> list[int]:
    return sorted({value_id(value, salt) for value in values_in(text) if is_telling(value)})


def cut(text: str, limit: int, salt: bytes) -> dict[str, Any]:
    """A long text by its beginning, with hash, size and the hashes of its values."""
    return {
        MARK: "cut",
        "head": text[:limit],
        "hash": hash_of(text),
        "size": len(text),
        "values": _value_ids(text, salt),
    }


def dropped(text: str, state: str, salt: bytes) -> dict[str, Any]:
    """A payload by nothing but its size, what kind it was, and salted hashes.

    ``hash`` is salted too: short payloads could be guessed from a plain one.
    """
    return {
        MARK: "dropped",
        "hash": hashlib.blake2b(
            text.encode(errors="replace"), key=salt, digest_size=16
        ).hexdigest(),
        "size": len(text),
        "state": state,
        "values": _value_ids(text, salt),
    }


def hash_of(text: str) -> str:
    """32 hex digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]
