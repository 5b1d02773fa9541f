"""How well tools suit subtasks: by texts, by a planner, and mixed."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.scorers import PlannerScorer, TextScorer, mixed, spread
from models.solving import Suits
from models.subtasks import Subtask
from models.types import Plan
from tests.models.worlds import embed

KEYS = ("t/count_rows", "t/draw_chart", "t/send_mail")
TEXTS = ("count the rows of a table", "draw a chart of a table", "send a mail to somebody")


def asked(*descriptions):
    return [Subtask(i, text, (), ()) for i, text in enumerate(descriptions)]


def test_the_likest_tool_gets_five():
    scorer = TextScorer(KEYS, TEXTS, embed)
    found = scorer(asked("draw a chart of x.csv", "send a mail to Ann"))
    assert [int(one.tools.argmax()) for one in found] == [1, 2]
    assert all(one.tools.max() == pytest.approx(5) for one in found)
    assert all(one.pieces.shape == (1, 3) for one in found)


def test_each_clause_is_a_piece_of_its_own():
    scorer = TextScorer(KEYS, TEXTS, embed)
    (found,) = scorer(asked("count the rows of the table; send a mail to somebody"))
    assert found.pieces.shape == (2, 3)
    assert found.pieces.argmax(axis=1).tolist() == [0, 2]
    assert found.tools[[0, 2]].min() > found.tools[1]


def test_no_subtask_gets_no_score():
    assert TextScorer(KEYS, TEXTS, embed)([]) == []


def test_a_description_without_words_suits_no_tool_better_than_another():
    scorer = TextScorer(KEYS, TEXTS, lambda texts: torch.zeros(len(texts), 4))
    (found,) = scorer(asked("?"))
    assert found.tools.tolist() == [3, 3, 3]


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_spread_gives_the_best_five_and_keeps_the_order(likeness):
    values = np.array(likeness)
    scores = spread(values)
    assert scores.shape == values.shape
    assert scores.min() >= 1
    assert scores.max() <= 5
    if values.max() - values.mean() < 1e-9:
        assert (scores == 3).all()
    else:
        assert scores.max() == pytest.approx(5)
        order = np.argsort(values, kind="stable")
        assert (np.diff(scores[order]) >= -1e-9).all()
        assert (scores[values > values.mean()] >= 2).all()


def test_one_of_average_likeness_gets_two():
    assert spread(np.array([0.0, 0.5, 1.0])).tolist() == [1, 2, 5]


class Known:
    """A planner that gives these plans."""

    name = "known"

    def __init__(self, *plans):
        self._plans = list(plans)
        self.asked = None

    def plan(self, requests, top=1):
        self.asked = top
        return [self._plans[:top] for _ in requests]


def a_plan(score, *tools):
    return Plan(tuple(f"t/{tool}" for tool in tools), (), score, "known")


def test_a_tool_in_every_plan_gets_five_and_one_in_none_gets_one():
    scorer = PlannerScorer(Known(a_plan(-1.0, "a", "b"), a_plan(-1.0, "a")), ["t/a", "t/b", "t/c"])
    (found,) = scorer(asked("x"))
    assert found.tools == pytest.approx([5, 3, 1])
    assert found.pieces.tolist() == [found.tools.tolist()]


def test_plans_count_by_their_probability():
    likely, unlikely = a_plan(np.log(0.9), "a"), a_plan(np.log(0.1), "b")
    (found,) = PlannerScorer(Known(likely, unlikely), ["t/a", "t/b"])(asked("x"))
    assert found.tools == pytest.approx([1 + 4 * 0.9, 1 + 4 * 0.1])


def test_a_tool_twice_in_a_plan_and_one_unknown_count_once_and_not_at_all():
    (found,) = PlannerScorer(Known(a_plan(0.0, "a", "a", "gone")), ["t/a"])(asked("x"))
    assert found.tools.tolist() == [5]


def test_without_plans_every_tool_gets_one():
    planner = Known()
    (found,) = PlannerScorer(planner, KEYS, top=4)(asked("x"))
    assert found.tools.tolist() == [1, 1, 1]
    assert planner.asked == 4


def suits(*values):
    return Suits(np.array(values), np.array([values]))


def test_answers_are_mixed_by_weight():
    (found,) = mixed([[suits(1.0, 5.0)], [suits(5.0, 5.0)]], [1.0, 3.0])
    assert found.tools.tolist() == [4, 5]
    assert found.pieces.tolist() == [[4, 5]]


def test_pieces_that_differ_in_number_are_mixed_with_the_whole():
    """A planner does not look at clauses: its one row stands for each of them."""
    text = Suits(np.array([1.0, 5.0]), np.array([[1.0, 5.0], [5.0, 1.0]]))
    (found,) = mixed([[text], [suits(3.0, 3.0)]], [1.0, 1.0])
    assert found.pieces.tolist() == [[2, 4], [4, 2]]


@pytest.mark.parametrize("weights", [[1.0], [0.0, 0.0], [1.0, 1.0, 1.0], [-1.0, 2.0]])
def test_weights_that_fit_no_scorers_are_refused(weights):
    with pytest.raises(ValueError, match="a weight of at least 0 for each of 2 scorers"):
        mixed([[suits(1.0)], [suits(1.0)]], weights)
