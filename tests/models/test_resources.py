import json

import polars as pl
import pytest

from models.errors import GraphMismatch, TooManyPairs
from models.resources import LINKS, resource_graph
from models.type_edges import summarise_types, type_edges, type_match


def tool(name, takes=(), returns=(), *, inputs=(), status="active", namespace="shop"):
    """A node; ``takes`` are "name:type" or (name, type, required)."""
    parameters = []
    for entry in takes:
        name_, kind, *required = entry.split(":") if isinstance(entry, str) else entry
        parameters.append({"name": name_, "type": kind, "required": (*required, None)[0]})
    return {
        "key": f"{namespace}/{name}",
        "namespace": namespace,
        "name": name,
        "parameters": json.dumps(parameters),
        "input_types": json.dumps(list(inputs)),
        "output_types": json.dumps(list(returns)),
        "status": status,
    }


def frame(*tools):
    schema = dict.fromkeys(tool("a"), pl.String)
    return pl.DataFrame(list(tools), schema=schema)


def graph(*tools):
    return resource_graph(frame(*tools))


def why(found, source="a", target="b"):
    """(match, output, parameter, origins) of each reason."""
    return [
        (m.match, m.output, m.parameter, m.origins)
        for m in type_match(found, f"shop/{source}", f"shop/{target}")
    ]


def pairs(found, **options):
    rows = type_edges(found, **options).rows()
    return {(s.split("/", 1)[1], t.split("/", 1)[1]): m for s, t, m in rows}


def naive_pairs(found, strict_only=False):
    """All pairs by comparing every tool with every other."""
    out = {}
    for s in found.tools:
        for t in found.tools:
            matches = {m.match for m in type_match(found, s, t)}
            if "strict" in matches or (matches and not strict_only):
                out[s, t] = "strict" if "strict" in matches else "partial"
    return out


def test_the_same_own_type_joins_strictly():
    found = graph(tool("a", returns=["image"]), tool("b", ["picture:image"]), tool("c", ["x:mask"]))
    assert why(found) == [("strict", "", "picture", ("type", "type"))]
    assert pairs(found) == {("a", "b"): "strict"}
    assert found.resources == ("shop/image", "shop/mask")


def test_types_without_parameters_join_too():
    found = graph(tool("a", returns=["text"]), tool("b", inputs=["text", "text"]))
    assert pairs(found) == {("a", "b"): "strict"}
    assert summarise_types(found).takes == 1


def test_a_tool_is_not_its_own_successor():
    found = graph(tool("a", ["i:image"], ["image"]), tool("b", ["i:image"], ["image"]))
    assert pairs(found) == {("a", "b"): "strict", ("b", "a"): "strict"}
    assert type_match(found, "shop/a", "shop/a") == []
    assert found.successors("shop/a") == ["shop/b"]
    assert summarise_types(found).strict_pairs == 2


def test_a_subtype_fits_its_supertype_and_not_the_other_way_round():
    mask, image = tool("a", returns=["image.mask"]), tool("b", ["x:image"])
    assert why(graph(mask, image)) == [("partial", "", "x", ("supertype", "type"))]
    found = graph(tool("a", returns=["image"]), tool("b", ["x:image.mask"]))
    assert pairs(found) == {}
    found = graph(tool("a", returns=["image.mask"]), tool("b", ["x:mask"]))
    assert why(found) == [("strict", "", "x", ("type", "type"))]


@pytest.mark.parametrize(
    ("returned", "taken", "match"),
    [
        ("list[image]", "image", "partial"),
        ("image", "image[]", "partial"),
        ("list[image]", "image[]", "strict"),
        ("Optional[image]", "image | None", "strict"),
        ("Image", "image", "partial"),
        ("string", "string", None),
        ("???", "???", None),
        ("画像", "画像", "strict"),
    ],
)
def test_containers_spellings_and_what_carries_nothing(returned, taken, match):
    found = graph(tool("a", returns=[returned]), tool("b", [("x", taken)]))
    assert pairs(found).get(("a", "b")) == match


@pytest.mark.parametrize(
    ("returned", "taken", "match", "origins"),
    [
        ("geoId:string", "geoId:string", "strict", ("field", "field")),
        ("geoId:integer", "geoId:string", "strict", ("field", "field")),
        ("legs:array", "legs:string", "partial", ("spelling", "spelling")),
        ("geo_ids:string", "geoId:string", "partial", ("spelling", "spelling")),
        ("skyId:string", "originSkyId:string", "partial", ("spelling", "ending")),
        ("googlePlaceId:string", "place_id:string", "partial", ("ending", "spelling")),
        ("user/id:string", "user/id:string", "strict", ("field", "field")),
        ("größe:number", "größe:number", "strict", ("field", "field")),
    ],
)
def test_names_join_where_types_say_nothing(returned, taken, match, origins):
    found = graph(tool("a", returns=[returned]), tool("b", [taken]))
    output, parameter = returned.split(":")[0], taken.split(":")[0]
    assert why(found) == [(match, output, parameter, origins)]


@pytest.mark.parametrize(
    ("returned", "taken"),
    [
        ("pick_up_date:string", "drop_off_date:string"),  # parts on both sides
        ("token:string", "offer_token:string"),  # one word of a longer name
        ("hotel_id:string", "id:string"),
    ],
)
def test_names_that_share_little_do_not_join(returned, taken):
    assert pairs(graph(tool("a", returns=[returned]), tool("b", [taken]))) == {}


def test_a_bare_name_is_read_with_the_words_of_its_tool():
    found = graph(
        tool("find_hotels", returns=["id:string"]),
        tool("find_cars", returns=["id:string"]),
        tool("book", ["hotel_id:string"]),
    )
    assert pairs(found) == {("find_hotels", "book"): "partial"}


def test_a_tool_without_stated_results_returns_what_it_is_called():
    found = graph(
        tool("get_country_code"),
        tool("get_population", ["countryCode:string"], ["people:integer"]),
        tool("set_country_code", ["country_code:string"], ["ok:boolean"]),
    )
    assert pairs(found) == {
        ("get_country_code", "get_population"): "partial",
        ("get_country_code", "set_country_code"): "partial",
    }


def test_an_echo_is_no_result():
    found = graph(
        tool(
            "a", ["page:string", "token:Token"], ["page:string", "token:Token", "order_id:string"]
        ),
        tool("b", ["page:string", "token:Token", "order_id:string"]),
    )
    assert [m.parameter for m in type_match(found, "shop/a", "shop/b")] == ["order_id"]


def test_a_tool_is_not_called_after_a_result_that_it_takes():
    found = graph(tool("check_hotel_id", ["hotel_id:string"]), tool("b", ["hotelId:string"]))
    assert pairs(found) == {}


def test_a_part_of_a_name_joins_while_one_side_is_one_tool():
    one, other = tool("a", returns=["skyId:string"]), tool("c", returns=["skyId:string"])
    takers = tool("b", ["fromSkyId:string"]), tool("d", ["toSkyId:string"])
    found = graph(one, *takers)
    assert pairs(found) == {("a", "b"): "partial", ("a", "d"): "partial"}
    assert "shop/sky id -> …" in found.resources
    assert pairs(graph(one, other, *takers)) == {}


def test_the_strict_reason_stands_for_the_partial_ones():
    found = graph(
        tool("a", returns=["geoId:string"]),
        tool("b", ["geoId:string"]),
        tool("c", ["geo_id:string"]),
    )
    assert why(found) == [("strict", "geoId", "geoId", ("field", "field"))]
    assert why(found, target="c") == [("partial", "geoId", "geo_id", ("spelling", "spelling"))]


def test_a_name_on_many_sides_joins_nothing():
    def shop(num_returners, num_takers):
        returners = [tool(f"r{i}", returns=["location:string"]) for i in range(num_returners)]
        return pairs(
            graph(*returners, *(tool(f"t{i}", ["location:string"]) for i in range(num_takers)))
        )

    assert len(shop(4, 9)) == 36
    assert len(shop(9, 4)) == 36
    assert shop(5, 5) == {}


def test_an_own_type_of_many_names_is_as_good_as_a_string():
    takes = [f"{name}:Text" for name in ("title", "note", "colour", "street")]
    found = graph(tool("a", returns=["reply:Text"]), tool("b", takes))
    assert pairs(found) == {}
    found = graph(tool("a", returns=["note:Text"]), tool("b", takes))
    assert why(found) == [("strict", "note", "note", ("field", "field"))]
    found = graph(tool("a", returns=["Text"]), tool("b", takes))  # the type alone is all there is
    assert [m[2] for m in why(found)] == ["colour", "note", "street", "title"]


def test_strict_ends_at_the_last_dot_and_everything_at_the_namespace():
    first, other = tool("a", returns=["Id"]), tool("b", ["x:Id"], namespace="bank")
    assert type_edges(graph(first, other)).is_empty()
    found = graph(
        tool("orders.find", returns=["Id", "name:string"]),
        tool("orders.cancel", ["x:Id"]),
        tool("users.remove", ["x:Id"]),
    )
    assert pairs(found) == {
        ("orders.find", "orders.cancel"): "strict",
        ("orders.find", "users.remove"): "partial",  # one tool in all returns it
    }


def test_several_results_and_parameters_each_have_their_reason():
    found = graph(
        tool("a", returns=["skyId:string", "entityId:string", "image"]),
        tool("b", [("originSkyId", "string", True), ("entityId", "string", False), ("p", "image")]),
    )
    assert [
        (m.match, m.output, m.parameter, m.is_required)
        for m in type_match(found, "shop/a", "shop/b")
    ] == [
        ("strict", "entityId", "entityId", False),
        ("strict", "", "p", None),
        ("partial", "skyId", "originSkyId", True),
    ]


def test_deprecated_tools_are_left_out():
    found = graph(
        tool("a", returns=["image"]),
        tool("b", ["x:image"], status="deprecated"),
        tool("c", ["x:image"]),
    )
    assert found.tools == ("shop/a", "shop/c")
    with pytest.raises(GraphMismatch, match="shop/b"):
        type_match(found, "shop/a", "shop/b")
    with pytest.raises(GraphMismatch, match="active"):
        found.successors("shop/b")


@pytest.mark.parametrize("nodes", [frame(), frame(tool("a")), frame(tool("a", ["x:string"]))])
def test_graphs_without_pairs_have_the_right_columns(nodes):
    found = resource_graph(nodes)
    assert dict(found.links.schema) == LINKS
    assert dict(type_edges(found).schema) == dict.fromkeys(("source", "target", "match"), pl.String)
    counts = summarise_types(found)
    assert (counts.tools, counts.strict_pairs, counts.partial_pairs) == (len(nodes), 0, 0)


SHOP = (
    tool("find/hotels", ["city:string"], ["id:string", "hotelName:string"]),
    tool("book", [("hotel_id", "string", True), "hotel_name:string"], ["booking:Booking"]),
    tool("cancel", ["booking:Booking", "reason:string"]),
    tool("show", ["item:Booking"], ["image.photo", "list[image]"]),
    tool("crop", ["picture:image"], ["image"]),
    tool("print", ["photo:photo", "pictures:image[]"], ["receipt:string"]),
    tool("get_receipt_number"),
    tool("refund", ["receiptNumber:integer"], ["hotel_name:string"], namespace="bank"),
)  # fmt: skip


def test_the_order_of_rows_does_not_matter():
    once, again = resource_graph(frame(*SHOP)), resource_graph(frame(*SHOP[::-1]))
    assert once.links.equals(again.links)
    assert (once.tools, once.resources) == (again.tools, again.resources)
    assert type_edges(once).equals(type_edges(again))


@pytest.mark.parametrize("strict_only", [False, True])
@pytest.mark.parametrize("block", [3, 512])
def test_edges_neighbours_counts_and_reasons_agree(monkeypatch, strict_only, block):
    monkeypatch.setattr("models.type_edges._BLOCK", block)
    found = resource_graph(frame(*SHOP))
    naive = naive_pairs(found, strict_only)
    edges = type_edges(found, strict_only=strict_only)
    assert {(s, t): m for s, t, m in edges.rows()} == naive
    assert edges.rows() == sorted(edges.rows())
    for key in found.tools:
        ahead = found.successors(key, strict_only=strict_only)
        assert ahead == sorted(t for s, t in naive if s == key)
        back = found.predecessors(key, strict_only=strict_only)
        assert back == sorted(s for s, t in naive if t == key)
    counts = summarise_types(found)
    assert counts.strict_pairs == sum(m == "strict" for m in naive.values()) > 0
    assert strict_only or counts.partial_pairs == len(naive) - counts.strict_pairs > 0


def test_too_many_pairs_are_counted_not_listed():
    found = graph(
        *(tool(f"t{i}", ["x:image"], ["image"]) for i in range(40)), tool("u", ["y:text"])
    )
    with pytest.raises(TooManyPairs, match=r"at most 1,000 .* 1,600.*'shop/image'"):
        type_edges(found, max_pairs=1000)
    assert type_edges(found, max_pairs=1000, max_per_resource=100).is_empty()
    assert len(type_edges(found)) == 40 * 39 == summarise_types(found).strict_pairs


def test_links_grow_with_the_catalogue_not_with_its_square():
    def links(num):
        return len(graph(*(tool(f"t{i}", ["x:image"], ["image"]) for i in range(num))).links)

    assert links(80) == 2 * links(40)


def nodes_of(folder, name):
    """Nodes of one of the shared catalogues."""
    lines = (folder / name / "tools.jsonl").read_text().splitlines()
    return frame(
        *(
            tool(
                t["name"],
                [(p["name"], p["type"], p["required"]) for p in t["parameters"]],
                t.get("output_types") or (),
                inputs=t.get("input_types") or (),
                namespace=name,
            )
            for t in map(json.loads, lines)
        )
    )


def test_controlllm_has_the_published_graph(data):
    counts = summarise_types(resource_graph(nodes_of(data, "controlllm")))
    assert (counts.tools, counts.resources) == (59, 22)
    assert (counts.strict_takes, counts.strict_returns, counts.strict_pairs) == (85, 59, 782)
    domains = {
        json.loads(line)["meta"]["domain"]
        for line in (data / "controlllm" / "tools.jsonl").read_text().splitlines()
    }
    assert len(domains) == 14


@pytest.mark.parametrize("name", ["taskbench_huggingface", "taskbench_multimedia"])
def test_strict_edges_are_the_graph_that_taskbench_declares(data, name):
    declared = {
        (f"{name}/{edge['source']}", f"{name}/{edge['target']}")
        for edge in map(json.loads, (data / name / "graph.jsonl").read_text().splitlines())
    }
    edges = type_edges(resource_graph(nodes_of(data, name)), strict_only=True)
    assert set(edges.select("source", "target").rows()) == declared
