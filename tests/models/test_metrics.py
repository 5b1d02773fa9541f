import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import GraphMismatch, MissingMetric, NotEnoughData
from models.metrics import METRICS, normalised_edit_distance, score_plans
from models.types import Example, Plan

KNOWN = ["s/a", "s/b", "s/c", "s/d_e"]


def example(tools, links=None, id="1"):
    keys = tuple(f"s/{tool}" for tool in tools)
    return Example(id, "a request", keys, tuple(links or ()), has_links=links is not None)


def plan(tools, links=()):
    return Plan(tuple(f"s/{tool}" for tool in tools), tuple(links), 1.0, "test")


def means(gold, plans, convention="strict"):
    return score_plans(gold, plans, convention, KNOWN).means


# Worked by hand.


@pytest.mark.parametrize("convention", ["strict", "gtool", "gnn4plan", "taskbench"])
def test_a_perfect_plan_is_perfect_in_every_convention(convention):
    perfect = means([example("abc", [(0, 1), (1, 2)])], [plan("abc", [(0, 1), (1, 2)])], convention)
    assert perfect == pytest.approx(
        {"n_f1": 1, "l_f1": 1, "l_f1_adjacent": 1, "ned": 0, "exact": 1}, abs=1e-6
    )


@pytest.mark.parametrize(
    ("convention", "n_f1"),
    [("strict", 2 / 3), ("gtool", 1.0), ("gnn4plan", 2 / 3), ("taskbench", 1)],
)
def test_repeated_tools_count_as_each_convention_says(convention, n_f1):
    # gnn4plan: precision 2/4, recall 2/2
    assert means([example("ab")], [plan("aaab")], convention)["n_f1"] == pytest.approx(n_f1)


@pytest.mark.parametrize(
    ("convention", "n_f1"), [("strict", 2 / 7), ("gtool", 2 / 3), ("taskbench", 2 / 5)]
)
def test_repeating_one_right_tool_of_four(convention, n_f1):
    gold = [example(["a", "b", "c", "d_e"])]
    assert means(gold, [plan("aaa")], convention)["n_f1"] == pytest.approx(n_f1)


def test_a_repeated_gold_tool_makes_a_perfect_plan_imperfect_in_gnn4plan():
    scored = means([example("aba")], [plan("aba")], "gnn4plan")
    assert scored["n_f1"] == pytest.approx(0.667, abs=5e-4)
    assert scored["exact"] == 0


def test_gnn4plan_accuracy_is_blind_to_the_order():
    assert means([example("abc")], [plan("cba")], "gnn4plan")["exact"] == 1
    assert means([example("abc")], [plan("cba")])["exact"] == 0


@pytest.mark.parametrize(
    ("gold", "predicted", "ratio"),
    [("abc", "axc", 0.667), ("ab", "ba", 0.5), ("ab", "", 0), ("", "", 1)],
)
def test_a_substitution_costs_two(gold, predicted, ratio):
    assert 1 - normalised_edit_distance(gold, predicted) == pytest.approx(ratio, abs=5e-4)


@pytest.mark.parametrize(
    ("convention", "l_f1"), [("strict", 1), ("gtool", 0), ("gnn4plan", 0), ("taskbench", 1)]
)
def test_no_links_on_both_sides(convention, l_f1):
    # taskbench: the plain mean, as no request of this suite carries weight
    assert means([example("a")], [plan("a")], convention)["l_f1"] == l_f1


def test_gold_links_beat_the_order_and_neighbours_are_given_beside():
    scored = means([example("abc", [(0, 2), (1, 2)])], [plan("bac", [(0, 2), (1, 2)])])
    assert scored["l_f1"] == 1
    assert scored["l_f1_adjacent"] == 0


def test_stated_independence_is_not_the_same_as_no_statement():
    linked = plan("ab", [(0, 1)])
    assert means([example("ab", links=[])], [linked])["l_f1"] == 0
    assert means([example("ab", links=[])], [plan("ab")])["l_f1"] == 1
    assert means([example("ab", links=None)], [plan("ab")])["l_f1"] == 1


def test_gtool_never_reads_gold_links():
    assert means([example("ab", [])], [plan("ab")], "gtool")["l_f1"] == 1


def test_failures_score_nothing_and_are_counted():
    scores = score_plans([example("a"), example("ab"), example("a")], [None, plan(""), plan("a")])
    assert scores.failures == 2
    assert scores.n_f1.tolist() == [0, 0, 1]
    assert scores.l_f1.tolist() == [0, 0, 1]
    assert scores.ned.tolist() == [1, 1, 0]
    assert scores.exact.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("convention", "n_f1"), [("strict", 1 / 2), ("gtool", 1 / 2), ("gnn4plan", 1), ("taskbench", 1)]
)
def test_two_conventions_drop_missing_plans(convention, n_f1):
    scores = score_plans([example("a"), example("a")], [None, plan("a")], convention, KNOWN)
    assert scores.means["n_f1"] == pytest.approx(n_f1)
    assert scores.failures == 1


@pytest.mark.parametrize("convention", ["strict", "gtool", "gnn4plan", "taskbench"])
def test_a_suite_of_failures_is_the_worst_and_not_undefined(convention):
    assert means([example("ab")], [None], convention) == {
        "n_f1": 0, "l_f1": 0, "l_f1_adjacent": 0, "ned": 1, "exact": 0
    }  # fmt: skip


def test_taskbench_pools_ignores_unknown_nodes_and_counts_unknown_links():
    gold = [example("ab"), example("abc")]
    plans = [plan("ax"), plan("abc")]
    scored = means(gold, plans, "taskbench")
    assert scored["n_f1"] == pytest.approx(2 * 4 / (3 + 6))  # {a,b} {a}; {a,b,c} twice
    assert scored["l_f1"] == pytest.approx(2 * 2 / (2 + 4))  # a>b, a>x; a>b b>c twice
    assert scored["ned"] == pytest.approx((0.5 + 0) / 2)


def test_unknown_tools_are_all_one_to_the_edit_distance_of_taskbench_but_not_exact():
    scored = means([example("ay")], [plan("ax")], "taskbench")
    assert scored["ned"] == 0
    assert scored["exact"] == 0


def test_case_and_underscores_are_folded_in_taskbench_only():
    gold, plans = [example(["D_e"])], [plan(["d e"])]
    assert means(gold, plans, "taskbench")["n_f1"] == 1
    assert means(gold, plans)["n_f1"] == 0
    assert means([Example("1", "", ("S_x/a",))], [plan("a")], "taskbench")["exact"] == 0


def test_taking_some_requests_keeps_their_scores():
    scores = score_plans([example("a", id="1"), example("ab", id="2")], [None, plan("ab")])
    part = scores.take([1])
    assert (part.ids, part.failures, len(part), part.means["n_f1"]) == (("2",), 0, 1, 1)


def test_thousands_of_requests_score_like_one():
    gold = [example("abcab", [(0, 1)])] * 5000
    plans = [plan("abcba", [(0, 1), (1, 2)])] * 5000
    assert score_plans(gold, plans).means["ned"] == pytest.approx(0.2)


# Refusals.


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(NotEnoughData, match="at least one example to score, got none"):
        score_plans([], [])
    with pytest.raises(MissingMetric, match=r"expected 1 plans.* got 2"):
        score_plans([example("a")], [None, None])
    with pytest.raises(NotEnoughData, match="at least one tool in example '7', got none"):
        score_plans([example("", id="7")], [None])
    with pytest.raises(MissingMetric, match="known_tools for the taskbench convention"):
        score_plans([example("a")], [None], "taskbench")
    with pytest.raises(MissingMetric, match="got 'f1'"):
        score_plans([example("a")], [None]).values("f1")


def test_links_outside_their_plan_are_refused():
    with pytest.raises(GraphMismatch, match=r"example '1', got \(0, 2\)"):
        score_plans([example("ab", [(0, 2)])], [plan("ab")])
    with pytest.raises(GraphMismatch, match=r"the plan for example '1', got \(-1, 0\)"):
        score_plans([example("ab", [(0, 1)])], [plan("ab", [(-1, 0)])])


# Against slow versions that share no code with the module.


def slow_indel(a, b):
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) + 1):
        for j in range(len(b) + 1):
            if i == 0 or j == 0:
                table[i][j] = i + j
            elif a[i - 1] == b[j - 1]:
                table[i][j] = table[i - 1][j - 1]
            else:
                table[i][j] = 1 + min(table[i - 1][j], table[i][j - 1])
    return table[-1][-1]


def slow_ned(a, b):
    return slow_indel(a, b) / (len(a) + len(b))


def harmonic(precision, recall, tiny=0.0):
    return 2 * precision * recall / (precision + recall + tiny) if precision + recall else 0.0


def slow_strict(gold, pred):
    if not gold and not pred:
        return 1.0
    left, found = list(gold), 0
    for item in pred:
        if item in left:
            left.remove(item)
            found += 1
    return harmonic(found / len(pred), found / len(gold)) if gold and pred else 0.0


def slow_gtool(gold, pred):
    true_positive = len([p for p in pred if p in gold])
    false_positive = len([p for p in pred if p not in gold])
    false_negative = len([g for g in gold if g not in pred])
    if not true_positive:
        return 0.0
    return harmonic(
        true_positive / (true_positive + false_positive),
        true_positive / (true_positive + false_negative),
    )


def slow_gnn4plan(gold, pred):
    if not gold or not pred:
        return 0.0
    both = [x for x in dict.fromkeys(pred) if x in gold]
    return harmonic(len(both) / len(pred), len(both) / len(gold), 1e-9)


def pairs_of(tools):
    return [(tools[i], tools[i + 1]) for i in range(len(tools) - 1)]


def links_of(item, stated):
    return (
        [(item.tools[s], item.tools[t]) for s, t in item.links] if stated else pairs_of(item.tools)
    )


def slow_means(gold, plans, convention):
    """Means of the three conventions that average over requests."""
    f1 = {"strict": slow_strict, "gtool": slow_gtool, "gnn4plan": slow_gnn4plan}[convention]
    rows = []
    for g, p in zip(gold, plans, strict=True):
        if p is None and convention == "gnn4plan":
            continue
        if p is None or not p.tools:
            rows.append((0, 0, 0, 1, 0))
            continue
        stated = g.has_links and convention != "gtool"
        n_f1 = f1(g.tools, p.tools)
        exact = n_f1 >= 0.99 if convention == "gnn4plan" else g.tools == p.tools
        rows.append(
            (
                n_f1,
                f1(links_of(g, stated), links_of(p, stated)),
                f1(pairs_of(g.tools), pairs_of(p.tools)),
                slow_ned(g.tools, p.tools),
                exact,
            )
        )
    rows = rows or [(0, 0, 0, 1, 0)]
    return dict(zip(METRICS, np.mean(np.array(rows, dtype=float), axis=0), strict=True))


def fold(key):
    namespace, name = key.split("/")
    return (namespace, name.replace("_", " ").lower())


def slow_taskbench(gold, plans, known):
    """Pooled counts, one tool class after the other, as a classification report would."""
    asked = [(g, p) for g, p in zip(gold, plans, strict=True) if p is not None]
    names = [fold(tool) for tool in known]
    nodes = [
        (name in map(fold, g.tools), name in map(fold, p.tools)) for g, p in asked for name in names
    ]

    def pooled(marks):
        both = sum(a and b for a, b in marks)
        size = sum(a for a, _ in marks) + sum(b for _, b in marks)
        return 2 * both / size if size else None

    def links(stated_only):
        marks = []
        for g, p in asked:
            stated = g.has_links and stated_only
            left = {(fold(s), fold(t)) for s, t in links_of(g, stated)}
            right = {(fold(s), fold(t)) for s, t in links_of(p, stated)}
            marks += [(link in left, link in right) for link in left | right]
        return pooled(marks)

    def number(tool):
        return names.index(fold(tool)) + 1 if fold(tool) in names else 0

    distances = [
        slow_ned([number(t) for t in g.tools], [number(t) for t in p.tools]) for g, p in asked
    ]
    return {
        "n_f1": pooled(nodes),
        "l_f1": links(True),
        "l_f1_adjacent": links(False),
        "ned": np.mean(distances) if asked else 1,
    }


names = st.sampled_from(["a", "b", "c", "d_e", "D e", "x", "y"])


@st.composite
def sides(draw):
    def side(least):
        tools = draw(st.lists(names, min_size=least, max_size=6))
        places = st.integers(0, max(0, len(tools) - 1))
        links = draw(st.lists(st.tuples(places, places), max_size=5)) if tools else []
        return tools, links

    gold_tools, gold_links = side(1)
    gold = example(gold_tools, gold_links if draw(st.booleans()) else None)
    return gold, None if draw(st.integers(0, 7)) == 0 else plan(*side(0))


@given(st.lists(sides(), min_size=1, max_size=5), st.sampled_from(["strict", "gtool", "gnn4plan"]))
@settings(max_examples=300, deadline=None)
def test_means_over_requests_equal_a_slow_version(rows, convention):
    gold, plans = zip(*rows, strict=True)
    assert means(gold, plans, convention) == pytest.approx(slow_means(gold, plans, convention))


@given(st.lists(sides(), min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_pooled_means_equal_a_slow_version(rows):
    gold, plans = zip(*rows, strict=True)
    scored = means(gold, plans, "taskbench")
    for metric, value in slow_taskbench(gold, plans, KNOWN).items():
        if value is not None:  # nothing to pool
            assert scored[metric] == pytest.approx(value), metric


@given(st.lists(sides(), min_size=1, max_size=5))
@settings(max_examples=100, deadline=None)
def test_scores_are_between_0_and_1_and_the_order_of_requests_does_not_matter(rows):
    gold, plans = zip(*rows, strict=True)
    for convention in ("strict", "gtool", "gnn4plan", "taskbench"):
        scores = score_plans(gold, plans, convention, KNOWN)
        turned = score_plans(gold[::-1], plans[::-1], convention, KNOWN)
        for metric in METRICS:
            assert np.array_equal(scores.values(metric), turned.values(metric)[::-1])
            assert ((scores.values(metric) >= 0) & (scores.values(metric) <= 1)).all()
            assert math.isfinite(scores.mean(metric))


@given(st.text("abcd", max_size=90), st.text("abcd", min_size=1, max_size=90))
@settings(max_examples=60, deadline=None)
def test_long_edit_distances_equal_the_table(a, b):
    assert normalised_edit_distance(a, b) == pytest.approx(slow_ned(a, b))
