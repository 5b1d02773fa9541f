import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from tasks.pictures import data_url, diff_picture, page, render_page
from tasks.pictures.page import asset
from tests.versions import FIRST, changes, node, planted, small, version

SVG = "{http://www.w3.org/2000/svg}"


class Elements(HTMLParser):
    """Start tags with their attributes, and the text of scripts, as a browser splits them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self._inside = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._inside = self._inside and tag != "script"

    def handle_data(self, data):
        if self._inside:
            self.scripts[-1] += data


def render(frames, **arguments):
    return render_page("Tool graph 0943", {"version": "0943"}, *frames, **arguments)


def data_of(text):
    return json.loads(Elements(text).scripts[0])


def edge_of(data, source, target, kind):
    keys, edges = data["nodes"]["key"], data["edges"]
    wanted = (keys.index(source), keys.index(target), data["kinds"].index(kind))
    return list(zip(edges["source"], edges["target"], edges["kind"], strict=True)).index(wanted)


def test_the_page_holds_what_the_version_says():
    data = data_of(render(small()))
    assert data["nodes"]["key"] == ["s/a", "s/b", "s/c", "s/d"]
    assert data["nodes"]["ok"][0] == 9
    adjacent = edge_of(data, "s/a", "s/b", "adjacent")
    edges = data["edges"]
    assert (edges["seen"][adjacent], edges["ok"][adjacent]) == (7, 7)
    assert edges["learning"][adjacent] == 5
    assert (edges["first"][adjacent], edges["last"][adjacent]) == (0, 9)
    standing = {
        kind: data["standings"][edges["standing"][edge_of(data, *pair, kind)]]
        for pair, kind in [
            (("s/b", "s/c"), "adjacent"),
            (("s/a", "s/b"), "dataflow"),
            (("s/c", "s/a"), "declared"),
        ]
    }
    assert standing == {"adjacent": "warning", "dataflow": "dependency", "declared": "stated"}


def test_evidence_by_day_is_kept_as_offsets_and_untimed_apart():
    data = data_of(render(small()))
    assert data["days"] == {"first": (FIRST - FIRST.fromtimestamp(0)).days, "num": 10}
    rows = set(zip(*(data["daily"][name] for name in ("edge", "day", "count")), strict=True))
    adjacent = edge_of(data, "s/a", "s/b", "adjacent")
    dataflow = edge_of(data, "s/a", "s/b", "dataflow")
    assert {(adjacent, 0, 5), (adjacent, 9, 2), (dataflow, -1, 3)} <= rows
    assert sum(data["daily"]["count"]) == sum(data["edges"]["seen"])


def test_the_same_version_gives_the_same_bytes_whatever_the_order_of_rows():
    frames = planted(60, 150, 3)
    first = render(frames)
    assert render([frame.reverse() for frame in frames]) == first


@pytest.mark.parametrize(
    "name",
    [
        "</script><script>alert(1)</script>",
        "<!--<script>",
        "\"'&<b>",
        "\u2028\u2029\x00",
        "{{data}}",
    ],
)
def test_no_name_breaks_out_of_the_page(name):
    frames = small(names=(name, "b", "c", "d"))
    text = render_page(name, {name: name}, *frames)
    plain = Elements(render(small()))
    found = Elements(text)
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in plain.tags]
    assert found.scripts[1:] == plain.scripts[1:]
    assert name in data_of(text)["nodes"]["name"]


def test_only_the_two_scripts_may_run_and_nothing_may_be_loaded():
    found = Elements(render(small()))
    policy = next(a["content"] for tag, a in found.tags if a.get("http-equiv"))
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    digests = [
        "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
        for text in found.scripts[1:]
    ]
    assert rules["script-src"].split() == digests
    assert not [a for _, a in found.tags if a.keys() & {"src", "href", "action", "onclick"}]
    assert not re.search(r"@import|url\(", asset("page.css"))
    assert "innerHTML" not in asset("page.js")


def test_the_library_keeps_its_licence():
    assert "The Cytoscape Consortium" in asset("cytoscape.LICENSE")
    assert "The Cytoscape Consortium" in render(small())


def test_too_many_edges_leave_the_weakest_out_and_the_page_says_so(monkeypatch):
    monkeypatch.setattr(page, "MOST_EDGES", 2)
    nodes, summary, daily = small()
    data = data_of(render((nodes, summary, daily)))
    assert data["left_out"] == len(summary) - 2
    assert sorted(data["edges"]["seen"]) == [4, 7]
    assert set(data["daily"]["edge"]) == {0, 1}


def test_a_diff_draws_what_went_and_names_what_came():
    diff = changes(
        tools={"added": ["s/d"], "removed": ["s/old"], "renamed": [["s/was_b", "s/b"]]},
        edges={
            "added": [["s/a", "s/b", "dataflow"]],
            "removed": [["s/old", "s/a", "adjacent"]],
            "strengthened": [["s/a", "s/b", "adjacent", 2, 7]],
        },
    )
    data = data_of(render(small(), diff=diff))
    nodes, edges = data["nodes"], data["edges"]
    change = dict(zip(nodes["key"], nodes["change"], strict=True))
    assert change == {
        "s/a": None,
        "s/b": "renamed",
        "s/c": None,
        "s/d": "added",
        "s/old": "removed",
    }
    assert data["diff"]["was"][nodes["key"].index("s/b")] == "s/was_b"
    went = edge_of(data, "s/old", "s/a", "adjacent")
    assert (edges["change"][went], edges["seen"][went]) == ("removed", 0)
    stronger = edge_of(data, "s/a", "s/b", "adjacent")
    assert (edges["change"][stronger], data["diff"]["counts"][stronger]) == ("strengthened", [2, 7])
    assert data["diff"]["edges"] == {"added": 1, "removed": 1, "strengthened": 1, "weakened": 0}


def test_types_and_trajectories_are_shown_where_given():
    resources = [("s/a", "image", "output"), ("s/b", "image", "input"), ("s/gone", "x", "input")]
    runs = {("s/a", "s/b", "adjacent"): ["t1", "t2"]}
    data = data_of(render(small(), resources=resources, trajectories=runs))
    assert data["resources"]["name"] == ["image"]
    assert sorted(data["resources"]["links"]) == [[0, 0, 1], [0, 1, 0]]
    assert data["trajectories"][edge_of(data, "s/a", "s/b", "adjacent")] == ["t1", "t2"]
    plain = data_of(render(small()))
    assert plain["resources"] is None
    assert plain["diff"] is None


def test_a_version_without_edges_is_a_page_too():
    data = data_of(render(version([node("s/a"), node("s/b")], [])))
    assert data["days"]["num"] == 0
    assert len(data["nodes"]["x"]) == 2


# --- what changed, as an image --------------------------------------------------------------------


def texts(svg):
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def tools_in(svg):
    return len(ElementTree.fromstring(svg).findall(f"{SVG}g"))


def test_the_image_tells_what_came_and_went():
    diff = changes(
        tools={"added": ["s/new"], "renamed": [["s/old_name", "s/b"]]},
        edges={
            "added": [["s/new", "s/b", "adjacent"]],
            "weakened": [["s/b", "s/c", "adjacent", 9, 2]],
        },
    )
    svg = diff_picture(diff)
    assert {"new", "b", "c", "was old_name"} <= set(texts(svg))
    assert any("1 came" in text and "1 renamed" in text for text in texts(svg))
    assert tools_in(svg) == 3
    assert diff_picture(diff) == svg


def test_an_empty_diff_says_so():
    svg = diff_picture(changes())
    assert "Nothing changed." in texts(svg)
    assert tools_in(svg) == 0


def test_a_great_change_is_cut_to_forty_tools_and_says_so():
    nodes, summary, _ = planted(200, 500, 4)
    added = [list(row) for row in summary.select("source", "target", "kind").iter_rows()]
    svg = diff_picture(changes(tools={"added": nodes["key"].to_list()}, edges={"added": added}))
    assert tools_in(svg) == 40
    assert any("160 more tools" in text for text in texts(svg))


def test_a_tool_that_changed_alone_is_shown_with_its_strongest_neighbour():
    _, summary, _ = small()
    svg = diff_picture(changes(tools={"changed": ["s/b"]}), summary)
    assert {"b", "a"} <= set(texts(svg))
    assert "c" not in texts(svg)


def test_labels_in_the_image_do_not_overlap():
    _, summary, _ = planted(60, 160, 4)
    added = [list(row) for row in summary.select("source", "target", "kind").iter_rows()]
    root = ElementTree.fromstring(diff_picture(changes(edges={"added": added})))
    places = [
        (float(text.get("x")), float(text.get("y")), len(text.text) * 6.5)
        for group in root.findall(f"{SVG}g")
        for text in group.findall(f"{SVG}text")
    ]
    assert len(places) >= 40
    for i, (x, y, wide) in enumerate(places):
        assert x - wide / 2 >= 0
        assert x + wide / 2 <= 900
        for other_x, other_y, other_wide in places[:i]:
            assert abs(y - other_y) > 10 or abs(x - other_x) > (wide + other_wide) / 2 - 2


def test_hostile_names_stay_text_in_the_image():
    name = "</text><script>alert(1)</script>\x00"
    svg = diff_picture(changes(tools={"added": [f"s/{name}"]}))
    root = ElementTree.fromstring(svg)
    assert not list(root.iter(f"{SVG}script"))
    assert "\x00" not in svg
    assert any("alert" in text for text in root.itertext())


def test_the_address_of_an_image_holds_it():
    svg = diff_picture(changes())
    head, _, body = data_url(svg).partition(",")
    assert head == "data:image/svg+xml;base64"
    assert base64.b64decode(body).decode() == svg
