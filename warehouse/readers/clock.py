"""Times as traces write them, to UTC nanoseconds since 1970 or to a UTC time without a zone."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

_EPOCH = datetime(1970, 1, 1)
_FRACTION = re.compile(r"^(.*?:\d\d)[.,](\d+)(.*)$")
_LEAST, _MOST = -(2**63) + 2, 2**63 - 1
_UNITS = ((10**11, 10**9), (10**14, 10**6), (10**17, 10**3), (2**63, 1))
"""Below which size a number is seconds, milliseconds, microseconds, nanoseconds."""
_DIGITS = re.compile(r"-?\d{1,30}\Z")


def nanoseconds(value: Any) -> int | None:
    """Nanoseconds from an integer or its decimal text; None for nothing, 0 and what is no number.

    Zero is what open spans carry where an end should be.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and _DIGITS.match(value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and value != 0 and _LEAST <= value <= _MOST:
        return value
    return None


def any_nanoseconds(value: Any) -> int | None:
    """Nanoseconds from ISO text or a number of seconds, milli-, micro- or nanoseconds, exactly."""
    if isinstance(value, str):
        return iso_nanoseconds(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        exact = Decimal(repr(value))
        for most, unit in _UNITS:
            if exact < most:
                return int(exact * unit)
    return None


def iso_nanoseconds(value: Any) -> int | None:
    """Nanoseconds from ISO text (without a zone: UTC); every digit of the fraction counts."""
    if not isinstance(value, str):
        return None
    text, extra = value.strip(), 0
    found = _FRACTION.match(text)
    if found:
        digits = (found[2] + "000000000")[:9]
        text, extra = found[1] + found[3], int(digits)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    whole = (moment - _EPOCH) // timedelta(seconds=1) * 1_000_000_000 + extra
    return whole if _LEAST <= whole <= _MOST else None


def moment_of(ns: int | None) -> datetime | None:
    """A UTC time without a zone, cut to microseconds; None where there is none."""
    if ns is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=ns // 1000)
    except OverflowError:
        return None
