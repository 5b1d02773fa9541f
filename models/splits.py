"""Validation rows where there are so few tool sequences that none was drawn for it."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from models.types import Example

MIN_VALIDATION = 2
"""Fewest validation examples that can choose an epoch."""


def with_validation(examples: Sequence[Example], share: float) -> tuple[list[Example], str]:
    """The examples, with validation rows among them where there are rows to spare.

    Splits are drawn by tool sequence, so a dozen sequences may leave none for validation. Then
    single training rows are drawn by the hash of their id, at least two; the epoch is chosen on
    sequences that were trained on, which is better than not training.

    Args:
        examples: Examples of the splits train and validation.
        share: Of the training rows, out of 1.

    Returns:
        (examples in the same order, how validation was drawn: ``by-sequence`` or ``by-row``).
    """
    if sum(example.split == "validation" for example in examples) >= MIN_VALIDATION:
        return list(examples), "by-sequence"
    train = sorted(
        (hashlib.sha256(example.id.encode()).hexdigest(), row)
        for row, example in enumerate(examples)
        if example.split == "train"
    )
    drawn = {row for _, row in train[: max(MIN_VALIDATION, round(share * len(train)))]}
    return [
        replace(example, split="validation") if row in drawn else example
        for row, example in enumerate(examples)
    ], "by-row"
