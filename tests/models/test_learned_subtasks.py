"""Subtasks that a trained planner's plan shows."""

import pytest

from models.learned_subtasks import LearnedDecomposer, subtasks_of_plan
from models.search_graph import search_graph
from models.toolset import Resource
from models.types import Plan
from tests.models.typed_tools import frame, tool

GRAPH = search_graph(
    frame(
        tool("detect", ["image:image"], ["boxes:bbox"]),
        tool("draw", ["image:image", "boxes:bbox"], ["image:image"]),
        tool("caption", ["image:image"], ["text:text"]),
        tool("speak", ["text:text"], ["audio:audio"]),
        tool("ping", [], []),
    )
)
CAT = Resource("cat.png", "image")


def plan(*tools, links=()):
    return Plan(tuple(f"t/{name}" for name in tools), links, 0.0, "gtool")


def test_linked_tools_are_one_subtask_with_the_type_of_the_last():
    (one,) = subtasks_of_plan(plan("detect", "draw", links=((0, 1),)), GRAPH, "Mark it", [CAT])
    assert one.returns == ("image",)
    assert one.args == (CAT,)
    assert one.dependencies == ()


def test_tools_without_a_link_are_cut_and_feed_each_other_by_type():
    first, second = subtasks_of_plan(plan("caption", "speak"), GRAPH, "Say it", [CAT])
    assert (first.returns, second.returns) == (("text",), ("audio",))
    assert second.dependencies == (0,)
    assert [r.value for r in second.args] == ["<GENERATED>-0"]


def test_tools_that_are_gone_or_state_no_result_are_left_out():
    assert subtasks_of_plan(plan("ping", "vanished"), GRAPH, "?", [CAT]) == ()


@pytest.mark.parametrize("ranked", [[], [plan("caption")]])
def test_the_best_plan_is_read_where_there_is_one(ranked):
    class Planner:
        name = "learnt"

        def plan(self, requests, top=1):
            return [ranked for _ in requests]

    found = LearnedDecomposer(Planner(), GRAPH)("Describe cat.png", [CAT])
    assert [s.returns for s in found] == [("text",) for _ in ranked]
