"""Subtasks solved, and their solutions joined into plans with arguments."""

import numpy as np
import pytest

from models.solutions import Solution, Step
from models.solving import SolvingConfig, Suits, join_solutions, judged, solve, solve_all
from models.subtasks import Subtask
from models.thoughts_on_graph import SearchConfig
from models.toolset import Resource
from models.types import Argument
from tests.models.typed_tools import names, typed

GRAPH = typed(
    "blur: image -> image",
    "caption: image -> text",
    "cut: image mask -> image",
    "segment: image -> mask",
    domains={"t/blur": "filters", "t/caption": "general", "t/cut": "masks", "t/segment": "masks"},
)
FILE = Resource("cat.png", "image")


def subtask(number, returns, *args, dependencies=(), domains=(), known=()):
    return Subtask(number, f"task {number}", args, returns, domains, dependencies, known)


def flat(graph=GRAPH, score=3.0):
    scores = np.full(len(graph.keys), score)
    return Suits(scores, scores[None, :])


def made(number, kind="image"):
    return Resource(f"<GENERATED>-{number}", kind)


@pytest.mark.parametrize("strategy", ["best-first", "greedy", "beam", "adaptive", "exhaustive"])
def test_every_strategy_solves_a_step(strategy):
    scores = np.array([1.0, 5.0, 1.0, 1.0])
    one = Suits(scores, scores[None, :])
    found = solve(GRAPH, subtask(0, ("text",), FILE), one, SolvingConfig(strategy))
    assert names(GRAPH, found.solutions[0].tools) == ["caption"]
    assert found.visits > 0


@pytest.mark.parametrize("returns", [(), ("video",)])
def test_a_type_that_is_not_wanted_or_not_known_has_no_solution(returns):
    assert solve(GRAPH, subtask(0, returns, FILE), flat(), SolvingConfig()).solutions == []


def test_domains_limit_the_tools_and_general_ones_are_always_there():
    def found(use_domains):
        config = SolvingConfig(use_domains=use_domains, search=SearchConfig(max_tools=2))
        task = subtask(0, ("text",), FILE, domains=("masks",))
        return [names(GRAPH, s.tools) for s in solve(GRAPH, task, flat(), config).solutions]

    assert found(True) == [["caption"]]
    assert found(False) == [["caption"], ["blur", "caption"]]


def test_domains_that_the_catalogue_does_not_have_limit_nothing():
    plain = typed("caption: image -> text")
    task = subtask(0, ("text",), FILE, domains=("masks",))
    assert solve(plain, task, flat(plain), SolvingConfig()).solutions


def test_pieces_that_no_tool_suits_are_held_against_a_solution():
    solution = Solution((Step(0, (0,)), Step(1, (-1,))), 2.0)
    pieces = np.array([[5.0, 1, 1, 1], [1, 3.0, 5, 5], [1, 1, 5, 5]])
    assert judged(solution, pieces, SolvingConfig(coverage_weight=0.5)).cost == 2 + 0.5 * 1.5
    assert judged(solution, pieces, SolvingConfig(coverage_weight=0.0)).cost == 2


def test_a_tool_that_fails_often_gives_way():
    graph = typed("a: image -> text", "b: image -> text")
    config = SolvingConfig(failure_rates=np.array([0.5, 0.0]))
    found = solve(graph, subtask(0, ("text",), FILE), flat(graph), config)
    assert names(graph, found.solutions[0].tools) == ["b"]


def test_a_plan_says_what_each_argument_is():
    task = subtask(0, ("image",), FILE, known=(Resource("m.png", "mask"),))
    solved = solve_all(GRAPH, [task], [flat()], SolvingConfig(conflicts=[(0, 2)]), top=9)
    segmented = next(p for p in solved.plans if p.tools == ("t/segment", "t/cut"))
    assert segmented.arguments == (
        (Argument("p0", "image", "cat.png"),),
        (Argument("p0", "image", "cat.png"), Argument("p1", "mask", step=0)),
    )
    assert segmented.links == ((0, 1),)
    known = next(p for p in solved.plans if p.tools == ("t/cut",))
    assert known.arguments == (
        (Argument("p0", "image", "cat.png"), Argument("p1", "mask", "m.png")),
    )


def test_the_output_of_a_subtask_feeds_the_next_one():
    tasks = [
        subtask(4, ("mask",), FILE),
        subtask(7, ("text",), made(4, "image"), dependencies=(4,)),
    ]
    (plan,) = solve_all(GRAPH, tasks, [flat()] * 2, SolvingConfig()).plans
    assert plan.tools == ("t/segment", "t/caption")
    assert plan.arguments[1] == (Argument("p0", "image", step=0),)
    assert plan.links == ((0, 1),)


def test_a_result_that_no_subtask_makes_stays_as_it_is_named():
    (plan,) = solve_all(GRAPH, [subtask(0, ("text",), made(9))], [flat()], SolvingConfig()).plans
    assert plan.arguments == ((Argument("p0", "image", "<GENERATED>-9"),),)


def test_a_subtask_without_a_solution_is_named_and_there_is_no_plan():
    tasks = [subtask(0, ("mask",), FILE), subtask(1, ("video",), FILE)]
    solved = solve_all(GRAPH, tasks, [flat()] * 2, SolvingConfig())
    assert (solved.plans, solved.unsolved) == ([], [1])
    assert solved.visits == solved.found[0].visits > 0
    assert solve_all(GRAPH, [], [], SolvingConfig()).plans == []


def choice(tool, cost):
    return Solution((Step(tool, (0,)),), cost)


def test_plans_come_in_the_order_of_their_sum_each_choice_once():
    tasks = [subtask(0, ("image",), FILE), subtask(1, ("text",), FILE)]
    choices = [[choice(0, 1.0), choice(3, 1.5)], [choice(1, 1.0), choice(0, 3.0)]]
    plans = [p for p, _ in join_solutions(GRAPH, tasks, choices, 9, "tog")]
    assert [(p.tools, p.score) for p in plans] == [
        (("t/blur", "t/caption"), -2.0),
        (("t/segment", "t/caption"), -2.5),
        (("t/blur", "t/blur"), -4.0),
        (("t/segment", "t/blur"), -4.5),
    ]
    assert [p for p, _ in join_solutions(GRAPH, tasks, choices, 2, "tog")] == plans[:2]
    assert join_solutions(GRAPH, tasks, choices, 0, "tog") == []


def test_each_step_knows_its_subtask():
    tasks = [subtask(4, ("mask",), FILE), subtask(7, ("text",), FILE)]
    ((_, owners),) = join_solutions(GRAPH, tasks, [[choice(3, 1.0)], [choice(1, 1.0)]], 1, "tog")
    assert owners == [4, 7]


def test_a_step_that_a_likely_edge_asks_for_runs_once_for_all_subtasks():
    graph = typed(
        "login: ->", "read: image -> text", "sign: image -> mask",
        edges={("t/login", "t/read"): 0.9, ("t/login", "t/sign"): 0.9},
    )  # fmt: skip
    tasks = [subtask(0, ("text",), FILE), subtask(1, ("mask",), FILE)]
    (plan,) = solve_all(graph, tasks, [flat(graph)] * 2, SolvingConfig()).plans
    assert plan.tools == ("t/login", "t/read", "t/sign")
    assert plan.links == ((0, 1), (0, 2))
    assert plan.arguments[0] == ()


def test_the_same_tool_for_two_subtasks_runs_twice():
    other = Resource("dog.png", "image")
    tasks = [subtask(0, ("mask",), FILE), subtask(1, ("mask",), other)]
    (plan,) = solve_all(GRAPH, tasks, [flat()] * 2, SolvingConfig()).plans
    assert plan.tools == ("t/segment", "t/segment")
    assert [step[0].value for step in plan.arguments] == ["cat.png", "dog.png"]
