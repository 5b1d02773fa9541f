import json
import time

import pytest

from models.errors import MissingMetric, NotEnoughData
from models.evaluation import evaluate, time_planner
from models.types import Example, Plan

SUITE = [
    Example("1", "one", ("s/a", "s/b")),
    Example("2", "two", ("s/a",)),
    Example("3", "three", ("s/b", "s/c", "s/a")),
]


class Recited:
    """Says what it was told for each request, and notes the size of each batch."""

    name = "recited"

    def __init__(self, answers):
        self.answers = answers
        self.batches = []

    def plan(self, requests, top=1):
        self.batches.append(len(requests))
        return [
            [Plan(self.answers[request], (), 1.0, self.name)] if request in self.answers else []
            for request in requests
        ]


PERFECT = {example.request: example.tools for example in SUITE}


def test_a_planner_gets_means_intervals_and_per_request_scores():
    result = evaluate(Recited(PERFECT | {"two": ("s/b",)}), SUITE)
    assert (result.planner, result.n, result.failures) == ("recited", 3, 0)
    assert result.scores.ids == ("1", "2", "3")
    assert result.scores.n_f1.tolist() == [1, 0, 1]
    assert result.metrics["n_f1"] == pytest.approx(2 / 3)
    assert set(result.ci) == {"n_f1", "l_f1", "ned", "exact"}
    assert result.ci["n_f1"].low == 0
    assert result.ci["n_f1"].high == 1


def test_a_request_without_plan_is_a_failure():
    result = evaluate(Recited({"one": ("s/a", "s/b")}), SUITE)
    assert result.failures == 2
    assert result.metrics["n_f1"] == pytest.approx(1 / 3)
    assert result.metrics["ned"] == pytest.approx(2 / 3)


def test_requests_go_out_in_batches():
    planner = Recited(PERFECT)
    evaluate(planner, SUITE, batch_size=2)
    assert planner.batches == [2, 1]


def test_the_json_has_the_agreed_shape_and_is_not_rounded():
    result = evaluate(Recited(PERFECT | {"two": ("s/b",)}), SUITE, time_requests=2)
    table = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert {"n", "n_f1", "l_f1", "l_f1_adjacent", "ned", "exact", "ci", "ms_per_request"} <= set(
        table
    )
    assert table["n_f1"] == 2 / 3
    assert table["ci"]["exact"] == [0, 1]
    assert 0 <= table["ms_per_request"]["p50"] <= table["ms_per_request"]["p95"]
    assert evaluate(Recited(PERFECT), SUITE).to_json()["ms_per_request"] is None


def test_pooled_means_lie_in_their_intervals():
    answers = PERFECT | {"one": ("s/a", "s/x", "s/c")}
    result = evaluate(Recited(answers), SUITE, "taskbench", known_tools=["s/a", "s/b", "s/c"])
    # nodes {a,b} {a,c}; {a} twice; {a,b,c} twice
    assert result.metrics["n_f1"] == pytest.approx(2 * 5 / 12)
    assert result.ci["n_f1"].low == 0.5
    assert result.ci["n_f1"].high == 1


def test_the_same_seed_gives_the_same_result():
    first, second = (evaluate(Recited({"one": ("s/a",)}), SUITE, seed=4) for _ in range(2))
    assert first.ci == second.ci


def test_an_empty_suite_is_refused():
    with pytest.raises(NotEnoughData, match="to evaluate recited, got an empty suite"):
        evaluate(Recited({}), [])


def test_an_exception_of_the_planner_is_not_swallowed():
    class Broken(Recited):
        def plan(self, requests, top=1):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        evaluate(Broken({}), SUITE)


def test_a_planner_that_loses_requests_is_refused():
    class Forgetful(Recited):
        def plan(self, requests, top=1):
            return []

    with pytest.raises(MissingMetric, match="expected 3 lists of plans from recited, got 0"):
        evaluate(Forgetful({}), SUITE)
    with pytest.raises(ValueError, match="batch_size of at least 1, got 0"):
        evaluate(Recited({}), SUITE, batch_size=0)


def test_timing_asks_one_request_at_a_time_and_gives_milliseconds():
    class Slow(Recited):
        def plan(self, requests, top=1):
            time.sleep(0.005)
            return super().plan(requests, top)

    planner = Slow(PERFECT)
    times = time_planner(planner, ["one", "two"], repeats=3, warmup=1)
    assert planner.batches == [1] * 7
    assert 5 <= times["p50"] <= times["p95"] < 500


def test_there_is_nothing_to_time_without_requests():
    with pytest.raises(NotEnoughData, match="got 0 and 1"):
        time_planner(Recited({}), [])
    with pytest.raises(NotEnoughData, match="got 1 and 0"):
        time_planner(Recited({}), ["one"], repeats=0)
