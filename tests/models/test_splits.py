from models.splits import with_validation
from models.types import Example


def rows(n, split="train"):
    return [Example(f"{split}{i}", "r", ("s/a",), split=split) for i in range(n)]


def test_validation_drawn_by_sequence_stays():
    examples = rows(20) + rows(3, "validation")
    assert with_validation(examples, 0.1) == (examples, "by-sequence")


def test_without_any_a_share_of_the_training_rows_is_drawn_once_and_for_all():
    drawn, how = with_validation(rows(40), 0.1)
    assert how == "by-row"
    chosen = {e.id for e in drawn if e.split == "validation"}
    assert len(chosen) == 4
    assert [e.id for e in drawn] == [e.id for e in rows(40)]
    again, _ = with_validation(list(reversed(rows(40))), 0.1)
    assert {e.id for e in again if e.split == "validation"} == chosen


def test_at_least_two_are_drawn_where_there_are_two():
    assert sum(e.split == "validation" for e in with_validation(rows(10), 0.1)[0]) == 2
    assert sum(e.split == "validation" for e in with_validation(rows(1), 0.1)[0]) == 1
    assert with_validation([], 0.1) == ([], "by-row")
