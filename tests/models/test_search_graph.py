"""The graph that a search walks: needs and gifts by type and name, and likely edges."""

import math

import pytest

from models.search_graph import EDGE, NAME_SHARE, likely_edges, read_signatures, search_graph
from models.toolset import Resource
from models.types import Example
from tests.models.typed_tools import frame, names, tool, typed


def needs(graph, name):
    """Parameter to (names of nodes, skip)."""
    at = graph.index[f"t/{name}"]
    return {n.parameter: ({graph.nodes[i] for i in n.nodes}, n.skip) for n in graph.needs[at]}


def test_a_type_of_the_catalogue_has_to_be_filled():
    graph = typed("cut: image mask -> image")
    assert needs(graph, "cut") == {
        "p0": ({"t/image"}, math.inf),
        "p1": ({"t/mask"}, math.inf),
    }


def test_a_type_and_its_subtype_join_by_the_last_part_of_their_names():
    graph = search_graph(frame(tool("a", ["i:image.mask"], ["image.mask"])))
    assert needs(graph, "a")["i"][0] >= {"t/mask"}
    assert graph.of_type("mask") == graph.of_type("image.mask") == graph.of_type("IMAGE.Mask")
    assert graph.of_type("sound") == frozenset()
    assert graph.of_resources([Resource("x", "mask"), Resource("y", "")]) == [
        graph.of_type("mask"),
        frozenset(),
    ]


def test_what_is_optional_is_no_need():
    graph = search_graph(frame(tool("a", ["i:image", "m:mask?"], ["image"])))
    assert list(needs(graph, "a")) == ["i"]


def test_plain_json_values_that_no_result_fills_stay_open_for_nothing():
    graph = search_graph(frame(tool("a", ["width:integer"], ["image"])))
    assert needs(graph, "a")["width"][1] == 0.0


def test_a_name_that_a_result_has_may_stay_open_and_a_reference_costs():
    graph = search_graph(
        frame(
            tool("find", ["city:string"], ["hotel_id:string", "stars:integer"]),
            tool("book", ["hotel_id:string"]),
            tool("rate", ["stars:integer"]),
        )
    )
    assert needs(graph, "book")["hotel_id"][1] == 0.5
    assert needs(graph, "rate")["stars"][1] == 0.0
    (need,) = graph.needs[graph.index["t/book"]]
    shared = need.nodes & graph.given(graph.index["t/find"])
    assert graph.share(shared) == NAME_SHARE


def test_a_tool_pays_all_for_a_type_and_nothing_for_having_run():
    graph = typed("a: x -> y")
    assert graph.share(graph.of_type("y")) == 1.0
    assert graph.share(graph.done([0])) == 0.0
    assert graph.share(()) == 0.0


def test_tools_that_are_not_active_are_not_there():
    graph = search_graph(frame(tool("a", [], ["x"]), tool("b", [], ["x"], status="deprecated")))
    assert graph.keys == ("t/a",)
    assert list(read_signatures(frame(tool("b", status="deprecated")))) == []


def test_types_of_two_catalogues_are_two_nodes_of_one_name():
    graph = search_graph(frame(tool("a", [], ["image"]), tool("b", ["i:image"], [], namespace="u")))
    assert len(graph.of_type("image")) == 2
    assert not graph.needs[graph.index["u/b"]][0].nodes & graph.given(graph.index["t/a"])


def test_domains_are_kept_by_tool():
    assert typed("a: x -> y", "b: x -> y", domains={"t/b": "sound"}).domains == ("", "sound")


def test_givers_and_takers_are_told_by_node():
    graph = typed("a: x -> y", "b: y -> z", "c: y x -> y")
    (y,) = graph.of_type("y")
    assert names(graph, graph.givers[y]) == ["a", "c"]
    assert names(graph, graph.takers[y]) == ["b", "c"]


def test_a_likely_edge_is_a_need_that_costs_its_log_odds_to_leave_out():
    graph = typed("a: x -> y", "b: x -> z", edges={("t/a", "t/b"): 0.8, ("t/b", "t/gone"): 0.9})
    assert needs(graph, "b")[EDGE] == ({"t/a()"}, pytest.approx(math.log(4)))
    assert graph.needs[graph.index["t/b"]][-1].is_edge
    sure = typed("a: x -> y", "b: x -> z", edges={("t/a", "t/b"): 1.0})
    assert needs(sure, "b")[EDGE][1] == pytest.approx(math.log(99))


def test_a_graph_without_tools_has_no_nodes():
    graph = search_graph(frame())
    assert (graph.keys, graph.nodes, graph.of_type("image")) == ((), (), frozenset())


def example(*tools, links=None):
    return Example(
        "e", "r", tuple(f"t/{t}" for t in tools), tuple(links or ()), has_links=links is not None
    )


def test_an_edge_is_as_likely_as_the_share_of_plans_that_have_it():
    found = likely_edges([example("a", "b")] * 6 + [example("c", "b")] * 2)
    assert found == {("t/a", "t/b"): 6 / 10}


def test_two_plans_are_too_few_to_make_an_edge_sure():
    assert likely_edges([example("a", "b")] * 2) == {("t/a", "t/b"): 0.5}
    assert likely_edges([example("a", "b")]) == {}


def test_links_say_more_than_the_order():
    linked = [example("a", "b", "c", links=[(0, 2)])] * 8
    assert list(likely_edges(linked)) == [("t/a", "t/c")]
    assert list(likely_edges([example("a", "b", links=[])] * 8)) == []


def test_a_tool_does_not_need_itself():
    assert likely_edges([example("a", "a")] * 8, [("t/a", "t/a")]) == {}


def test_what_is_declared_is_likely_until_plans_say_otherwise():
    declared = [("t/a", "t/b")]
    assert likely_edges([], declared) == {("t/a", "t/b"): pytest.approx(0.6)}
    assert likely_edges([example("b")] * 8, declared) == {}
    between = likely_edges([example("a", "c", "b")] * 8, declared)  # any place before will do
    assert between["t/a", "t/b"] == pytest.approx(9.2 / 10)
