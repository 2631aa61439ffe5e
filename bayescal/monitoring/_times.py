"""Time stamps of monitored rows: read from any library, kept as text in files."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable

import numpy as np

#: A time stamp in UTC, a number or a text.
Time = np.datetime64 | float | int | str


def read_times(times: object, probs: object, n: int) -> np.ndarray | None:
    """Read time stamps (n,), by default those of a data frame's index; None if there are none."""
    if times is None:
        index = getattr(probs, "index", None)
        if type(index).__name__ != "DatetimeIndex":
            return None
        times = index
    stamps = np.asarray(times)
    if stamps.shape != (n,):
        raise ValueError(f"times must have shape ({n},) to match probs, got {stamps.shape}")
    return stamps


def plain_time(value: object) -> Time | None:
    """Convert a time stamp to one without a time zone, in UTC; numbers and other text stay.

    Missing ones (None, NaT and numbers that are not finite) become None.
    """
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(value, (datetime.datetime, datetime.date)):
        value = np.datetime64(value.isoformat())
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return None
        seconds = value.astype("datetime64[s]")
        fine = np.datetime_data(value.dtype)[0] in ("ms", "us", "ns")
        return seconds if fine and seconds == value else value
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, (int, float)):
        return value
    text = str(value)
    try:
        return plain_time(datetime.datetime.fromisoformat(text))
    except ValueError:
        return text


def to_text(value: Time | None) -> float | int | str | None:
    """Convert a time stamp to what JSON can hold."""
    return str(value) if isinstance(value, np.datetime64) else value


def known_times(stamps: Iterable[tuple[int, object]]) -> dict[int, Time]:
    """Convert time stamps by row, also those of :func:`to_text`; missing ones are left out."""
    read = ((int(row), plain_time(value)) for row, value in stamps)
    return {row: time for row, time in read if time is not None}
