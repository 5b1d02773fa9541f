"""What the pages of a run say, and that no name in the data breaks them."""

import math
import re

import pytest

from tasks import artifacts
from tasks.markdown import count, escape, link, some, table

NAMES = ("retrieval", "nearest")


def scores(value):
    return {"n_f1": value, "l_f1": value, "ned": 1 - value, "exact": value}


def ingested(**totals):
    counts = {"read": 3, "new": 2, "updated": 0, "duplicate": 1, "quarantined": 0} | totals
    nothing = dict.fromkeys(counts, 0)
    return {
        "files": [
            {
                "path": "/traces/a.jsonl", "source": "shop", "format": "normalised", "losses": [],
                "trajectories": counts, "calls": counts, "tools": nothing, "quarantined": 0,
                "known": False,
            }
        ],
        "totals": {"trajectories": counts, "calls": counts, "tools": nothing},
        "refused": [],
    }  # fmt: skip


def made(new=True):
    return {"version": "b" * 64, "parent": "a" * 64, "nodes": 3, "edges": 2, "new": new}


def diff(**changes):
    none = {"added": [], "removed": []}
    return {
        "from": "a" * 64,
        "to": "b" * 64,
        "tools": {**none, "changed": [], "renamed": [], **changes.get("tools", {})},
        "edges": {**none, "strengthened": [], "weakened": [], **changes.get("edges", {})},
    }


def report(champion="1", challenger="2", decision="promote", new=True, **gtool):
    by_planner = {"gtool": scores(0.8) | gtool} | {name: scores(0.5) for name in NAMES}
    if champion and challenger:
        by_planner["gtool-champion"] = scores(0.7)
    return {
        "id": "abc", "decision": decision, "reasons": ["It plans better."], "suite": "shop/test",
        "suites": {"other/test": by_planner, "shop/test": by_planner},
        "intervals": {"shop/test": {"gtool": {"n_f1": [0.75, 0.85]}}},
        "requests": {"shop/test": 1200}, "champion": champion, "challenger": challenger,
        "graph_version": "b" * 64, "policy": {"confidence": 0.9}, "new": new,
    }  # fmt: skip


def night(**changes):
    return {
        "trained": True, "train_reason": "the graph changed", "version": "2",
        "train_seconds": 12.3, "graph": made(), "diff": diff(), "ingested": ingested(),
        "suites": [], "report": report(),
        "promotion": {"promoted": True, "champion": "2", "previous": "1"}, "decision": "promote",
    } | changes  # fmt: skip


PAGES = {
    "model": "gtool-planner", "version": "2", "run_id": "r1", "run_url": "http://ml/#/run",
    "version_url": "http://ml/#/version",
}  # fmt: skip


# --- escaping ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a|b", r"a\|b"),
        ("`rm`", r"\`rm\`"),
        ("<script>", "&lt;script&gt;"),
        ("[x](http://y)", r"\[x\](http://y)"),
        ("find_flight", "find_flight"),
        ("_private_", r"\_private\_"),
        ("two\nlines\t\x00end", "two lines end"),
        ("# heading", r"\# heading"),
        ("1. first", r"1\. first"),
        ("2026-11-30", "2026-11-30"),
        ("back\\|slash", r"back\\\|slash"),
        ("a" * 400, "a" * 299 + "…"),
    ],
)
def test_text_from_data_becomes_no_markup(name, shown):
    assert escape(name) == shown


def cells(row):
    """Cells as a Markdown reader parts them."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def test_odd_names_keep_tables_whole():
    odd = "x|y`<b>\n|"
    edges = {"added": [[odd, "b", "adjacent"]], "strengthened": [[odd, "b", "adjacent", 1, 9]]}
    text = artifacts.graph(made(), diff(tools={"added": [odd]}, edges=edges)).text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    widths = [len(cells(row)) for row in rows]
    assert sorted(set(widths)) == [3, 4, 6]
    assert "<b>" not in text
    assert re.search(r"(?<!\\)`<", text) is None


def test_small_words():
    assert [count(1, "tool"), count(1234, "trajectory")] == ["1 tool", "1,234 trajectories"]
    assert some(["a", "b", "c"], 2) == "a, b and 1 more"
    assert link("a|b", None) == r"a\|b"
    assert link("run", "http://x/#/y z") == "[run](<http://x/#/y z>)"
    assert table(("a", "n"), [("x", "1")]).splitlines()[1] == "| :-- | --: |"


# --- what came in ------------------------------------------------------------------------------


def test_ingest_counts_and_names_what_was_refused_and_set_aside():
    result = ingested(quarantined=1)
    result["files"][0]["reasons"] = {"not | JSON": 1}
    result["files"].append({"path": "/p.png", "source": "p", "format": None, "skipped": "odd"})
    result["refused"] = ["/p.png: odd."]
    page = artifacts.ingest(result)
    assert page.line == "2 new trajectories, 0 new tools, 1 refused"
    assert "1 file refused" in page.text
    assert "- /p.png: odd." in page.text
    assert r"- a.jsonl, 1 record: not \| JSON" in page.text
    assert "### Skipped" not in page.text


def test_ingest_of_nothing_readable():
    result = ingested(read=0, new=0, duplicate=0)
    result["files"] = [{"path": f"/{i}", "format": None, "skipped": "odd"} for i in range(5)]
    result["refused"] = ["/0: odd.", "/1: odd.", "/2: odd.", "None of 5 files could be read."]
    page = artifacts.ingest(result)
    assert "5 refused" in page.line
    assert "### Files" not in page.text


def test_known_files_and_no_paths_say_so():
    result = ingested(new=0, duplicate=3)
    result["files"][0]["known"] = True
    assert "Every file was known already." in artifacts.ingest(result).text
    assert "setting ingest_paths" in artifacts.came_in(None)


# --- the graph ---------------------------------------------------------------------------------


def test_an_unchanged_graph_and_an_empty_diff():
    page = artifacts.graph(made(new=False), None)
    assert page.line == "unchanged: 3 tools, 2 edges"
    assert page.text == "Nothing changed: still version `bbbbbbbbbbbb` with 3 tools and 2 edges."
    assert "no tool and no edge differs" in artifacts.graph(made(), diff()).text


def test_a_first_graph_has_no_parent():
    first = diff(tools={"added": ["a"]}) | {"from": None}
    assert "The first version, `bbbbbbbbbbbb`" in artifacts.graph(made(), first).text


def test_long_diffs_are_cut_and_the_largest_changes_come_first():
    added = [[f"tool{i}", "b", "adjacent"] for i in range(50)]
    stronger = [["a", "b", "adjacent", 1, 2], ["c", "d", "adjacent", 1, 90]]
    changed = diff(
        tools={"added": [f"t{i}" for i in range(30)], "removed": ["old"]},
        edges={"added": added, "strengthened": stronger},
    )
    page = artifacts.graph(made(), changed)
    assert page.line == "3 tools (+30, -1), 2 edges (+50)"
    assert "t19 and 10 more" in page.text
    assert "And 30 more." in page.text
    assert page.text.index("| 1 → 90 | c |") < page.text.index("| 1 → 2 | a |")
    assert "`toolatlas graph diff aaaaaaaaaaaa bbbbbbbbbbbb`" in page.text


# --- comparison and decision -------------------------------------------------------------------


def test_planners_show_the_deciding_suite_first_with_intervals_and_the_best_in_bold():
    page = artifacts.planners(report())
    assert page.line == "n-F1: gtool 2 0.800, gtool 1 0.700"
    assert page.text.index("shop/test, 1,200 requests (this suite decides)") < page.text.index(
        "### other/test"
    )
    assert "| gtool 2 (challenger) | **0.800** (0.750–0.850) | **0.800** | **0.200** |" in page.text
    assert "| gtool 1 (champion) | 0.700 |" in page.text
    assert "| nearest (baseline) | 0.500 |" in page.text
    assert "the 90 % interval" in page.text


def test_a_planner_that_was_measured_on_a_sample_says_so():
    some = report()
    some["suites"]["shop/test"] = {**some["suites"]["shop/test"], "gtool-llm": scores(0.6)}
    some["measured"] = {"shop/test": {"gtool-llm": 100, "nearest": 1200}}
    text = artifacts.planners(some).text
    assert "| gtool-llm, 100 requests | 0.600 |" in text
    assert "| nearest (baseline) | 0.500 |" in text


def test_planners_beside_gtool_keep_their_names():
    known = report()
    known["suites"]["shop/test"]["gtool-llm"] = scores(0.9)
    assert "| gtool-llm | **0.900** |" in artifacts.planners(known).text


def test_a_champion_moved_by_hand_is_named_with_the_one_before():
    moved = report(champion="2", challenger=None, decision="keep") | {
        "moved_by_hand": {"champion": "1"}
    }
    kept = {"promoted": False, "champion": "2", "previous": "2"}
    told = "ersion 2 is champion, by hand in MLflow (before: version 1)."
    assert f"**V{told}**" in artifacts.decision(moved, kept).text
    night = IDLE | {"report": moved, "promotion": kept, "version": "1"}
    assert artifacts.headline(night).endswith(f": v{told}")
    assert artifacts.brief(night) == "Version 2 champion by hand, see inside"
    gone = report(champion=None) | {"moved_by_hand": {"champion": "1"}}
    none = {"promoted": False, "champion": None, "previous": None}
    assert "The champion was taken away, by hand" in artifacts.decision(gone, none).text


@pytest.mark.parametrize("value", [math.nan, None, math.inf])
def test_values_that_are_no_number_say_so_and_are_never_the_best(value):
    text = artifacts.planners(report(n_f1=value)).text
    assert "| gtool 2 (challenger) | no value (0.750–0.850) |" in text
    assert "**0.700**" in text


def test_without_any_gtool_only_baselines_are_compared():
    alone = report(champion=None, challenger=None, decision="inconclusive")
    for by_planner in alone["suites"].values():
        by_planner.pop("gtool", None)
    assert artifacts.planners(alone).line == "baselines only"


def test_a_decision_says_who_is_champion_and_who_was():
    page = artifacts.decision(report(), {"promoted": True, "champion": "2", "previous": "1"})
    assert page.line == "promote; champion: version 2"
    assert "**Version 2 is champion now** (before: version 1)." in page.text
    assert "- It plans better." in page.text
    kept = {"promoted": False, "champion": "1", "previous": "1"}
    assert "**Version 1 stays champion.**" in artifacts.decision(report(), kept).text
    none = {"promoted": False, "champion": None, "previous": None}
    assert "**There is no champion yet.**" in artifacts.decision(report(champion=None), none).text


# --- training and the night ----------------------------------------------------------------------


def test_training_links_to_mlflow_where_it_has_pages():
    text = artifacts.training(night(), PAGES).text
    assert "Version 2 was trained in 12 s: the graph changed." in text
    assert "[version 2 of gtool-planner](<http://ml/#/version>)" in text
    assert "[run r1](<http://ml/#/run>)" in text
    file = artifacts.training(night(), {**PAGES, "run_url": None, "version_url": None}).text
    assert "run r1" in file
    assert "no page" in file
    idle = artifacts.training({"trained": False, "train_reason": "nothing new"}, None)
    assert idle == ("not trained", "Not trained: nothing new.")


KEPT = {"promoted": False, "champion": "1", "previous": "1"}
FIRST = {"promoted": True, "champion": "2", "previous": None}
NONE = {"promoted": False, "champion": None, "previous": None}
IDLE = {
    "trained": False, "train_reason": "nothing new", "diff": None, "graph": made(new=False),
    "promotion": KEPT, "ingested": ingested(new=0), "report": report(new=False),
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "headline", "brief"),
    [
        ({}, "Version 2 was trained and is champion now in place of version 1.",
         "Version 2 is champion now"),
        ({"promotion": FIRST}, "Version 2 was trained and is champion now, the first one.",
         "Version 2 is champion now"),
        ({"promotion": KEPT}, "Version 2 was trained but not promoted: version 1 stays champion.",
         "Version 2 not promoted, version 1 stays champion"),
        ({"promotion": NONE}, "Version 2 was trained but not promoted: there is still no champion.",
         "Version 2 not promoted, no champion yet"),
        ({"trained": False}, "Nothing was trained; version 2 is champion now.",
         "Version 2 is champion now"),
        (IDLE, "Nothing new came in and nothing was trained: version 1 stays champion.",
         "Nothing new, version 1 stays champion"),
        (IDLE | {"diff": diff()}, "Nothing was trained: version 1 stays champion.",
         "Not trained, version 1 stays champion"),
        (IDLE | {"ingested": None, "promotion": NONE, "version": None},
         "Nothing new came in and nothing was trained: there is still no champion.",
         "Nothing new, no champion yet"),
    ],
)  # fmt: skip
def test_the_headline_says_it_all(changes, headline, brief):
    result = night(**changes)
    assert artifacts.headline(result) == headline
    page = artifacts.night(result, "nightly", PAGES)
    assert page.line == brief
    assert headline in page.text


def test_a_night_tells_the_story_in_order():
    result = night(
        diff=diff(tools={"added": ["shop/a|b"]}),
        suites=[{"suite": "shop/test", "version": 2, "rows": 53}],
    )
    text = artifacts.night(result, "nightly 2026-11-30 02:00, graph bbbbbbbbbbbb", PAGES).text
    parts = [
        "# nightly 2026-11-30 02:00, graph bbbbbbbbbbbb",
        "Version 2 was trained",
        "3 trajectories read: 2 new",
        r"New tools: shop/a\|b.",
        "shop/test version 2: 53 requests",
        "12 s: the graph changed",
        "http://ml/#/version",
        "| gtool 2 (challenger) |",
        "Also measured on other/test",
        "**Decision: promote**",
        "*Champion*: the planner version in use.",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_standing_report_is_told_as_an_old_one():
    result = night(**IDLE, decision="promote")
    text = artifacts.night(result, "nightly", None).text
    assert "How it compared last time" in text
    assert "Nothing was measured" in text
    assert "gtool 2 (then challenger)" in text
    assert artifacts.tags(result) == ["not trained", "nothing to decide"]
    assert artifacts.tags(night()) == ["trained", "decision promote", "promoted"]


def test_a_failed_night_says_what_failed():
    page = artifacts.failed_night(
        "nightly", "Flow run encountered an exception: NotEnoughData: expected <b>, got |."
    )
    assert r"**The night failed.** NotEnoughData: expected &lt;b&gt;, got \|." in page.text
