from datetime import date

import pytest

from tests.versions import edge_frame
from warehouse.evidence import summarise


def edges(*rows):
    return edge_frame(rows)


JANUARY, MARCH = date(2026, 1, 30), date(2026, 3, 1)


def test_counts_by_outcome_decay_by_day_and_untimed_evidence_stays():
    (row,) = summarise(
        edges(
            ("a", "b", "adjacent", "ok", JANUARY, False, 4),
            ("a", "b", "adjacent", "ok", None, False, 1),
            ("a", "b", "adjacent", "unrecorded", MARCH, True, 2),
            ("a", "b", "adjacent", "failed", MARCH, False, 3),
            ("a", "b", "adjacent", "after_failure", MARCH, False, 5),
        )
    ).to_dicts()
    outcomes = ("ok", "unrecorded", "failed", "after_failure")
    assert [row[f"num_{outcome}"] for outcome in outcomes] == [5, 2, 3, 5]
    assert (row["num_seen"], row["num_learning"]) == (15, 5)
    assert (row["first_seen"], row["last_seen"]) == (JANUARY, MARCH)
    assert row["weight"] == pytest.approx(4 / 2 + 1 + 2)


@pytest.mark.parametrize(
    ("kind", "outcomes", "standing"),
    [
        ("adjacent", {"ok": 2, "failed": 2}, "dependency"),
        ("adjacent", {"ok": 2, "failed": 3}, "warning"),
        ("dataflow", {"unrecorded": 1, "after_failure": 9}, "dependency"),
        ("adjacent", {"after_failure": 1}, "fallback"),
        ("declared", {"unrecorded": 1}, "stated"),
    ],
)
def test_standing(kind, outcomes, standing):
    rows = [("a", "b", kind, outcome, None, False, n) for outcome, n in outcomes.items()]
    assert summarise(edges(*rows))["standing"].to_list() == [standing]


def test_no_edges_have_no_summary():
    assert summarise(edges()).is_empty()
