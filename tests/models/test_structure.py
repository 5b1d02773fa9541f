import json
from datetime import date

import polars as pl
import pytest

from models.errors import GraphMismatch
from models.findings import findings
from models.structure import analyse

DAY = date(2026, 3, 31)
COUNTS = ("num_ok", "num_unrecorded", "num_failed", "num_repeats", "num_retries")


def nodes(**tools):
    """Tools by name (``__`` parts namespace and name), with counts or a status that are not 0."""
    rows = []
    for name, told in tools.items():
        namespace, bare = name.split("__") if "__" in name else ("s", name)
        rows.append(
            {
                "key": f"{namespace}/{bare}",
                "namespace": namespace,
                "name": bare,
                "status": told.get("status", "active"),
                **{count: told.get(count, 0) for count in COUNTS},
            }
        )
    schema = dict.fromkeys(("key", "namespace", "name", "status"), pl.String)
    return pl.DataFrame(rows, schema=schema | dict.fromkeys(COUNTS, pl.Int64))


def edge(source, target, ok=0, kind="adjacent", failed=0, after_failure=0, day=DAY):
    standing = "dependency"
    if kind == "declared":
        standing = "stated"
    elif not ok + failed:
        standing = "fallback"
    elif failed > ok:
        standing = "warning"
    return {
        "source": source if "/" in source else f"s/{source}",
        "target": target if "/" in target else f"s/{target}",
        "kind": kind,
        "num_ok": ok,
        "num_unrecorded": 0,
        "num_failed": failed,
        "num_after_failure": after_failure,
        "num_seen": ok + failed + after_failure,
        "last_seen": day,
        "standing": standing,
    }


def summary(*edges):
    counts = ("num_ok", "num_unrecorded", "num_failed", "num_after_failure", "num_seen")
    schema = {
        **dict.fromkeys(("source", "target", "kind"), pl.String),
        **dict.fromkeys(counts, pl.Int64),
        "last_seen": pl.Date,
        "standing": pl.String,
    }
    return pl.DataFrame(list(edges), schema=schema)


def plain(*names, calls=10):
    return nodes(**{name: {"num_ok": calls} for name in names})


def chores(num=12, times=5):
    """Pairs of tools, each second tool used by nothing else: a0 -> b0, a1 -> b1, ..."""
    tools = {f"{side}{i}": {"num_ok": 10} for i in range(num) for side in "ab"}
    flows = [edge(f"a{i}", f"b{i}", times, kind) for i in range(num) for kind in FLOWING]
    return tools, flows


FLOWING = ("adjacent", "dataflow")


def test_a_tool_that_ends_runs_whatever_they_did_is_ceremonial():
    tools, edges = chores()
    tools["done"] = {"num_ok": 60}
    edges += [edge(f"{side}{i}", "done", 3) for i in range(12) for side in "ab"]
    found = analyse(nodes(**tools), summary(*edges))
    (tool,) = found.ceremonial.first
    assert (tool.tool, tool.role, tool.sources, tool.targets) == ("s/done", "ends", 24, 0)
    assert tool.breadth > 0.9
    assert tool.has_dataflow
    # Without it the chores have nothing to do with each other.
    assert found.components.num == found.communities.num == 12


def test_a_tool_between_all_steps_is_ceremonial_and_one_before_them_opens():
    tools, edges = chores()
    tools |= {"ponder": {"num_ok": 60}, "hello": {"num_ok": 60}}
    edges += [edge(f"a{i}", "ponder", 5) for i in range(12)]
    edges += [edge("ponder", f"b{i}", 5) for i in range(12)]
    edges += [edge("hello", f"a{i}", 5) for i in range(12)]
    found = analyse(nodes(**tools), summary(*edges))
    assert {t.tool: t.role for t in found.ceremonial.first} == {
        "s/ponder": "between",
        "s/hello": "opens",
    }


def test_a_hub_whose_result_the_others_use_is_not_ceremonial():
    tools, edges = chores()
    tools["login"] = {"num_ok": 60}
    edges += [edge("login", f"a{i}", 5, kind) for i in range(12) for kind in FLOWING]
    found = analyse(nodes(**tools), summary(*edges))
    assert found.ceremonial.num == 0
    assert found.hubs.first[0].tool == "s/login"
    assert found.hubs.first[0].num_out == 60
    assert found.hubs.first[0].share_out == pytest.approx(60 / 120)


def test_a_tool_that_ends_runs_of_one_kind_is_not_ceremonial():
    tools, edges = chores()
    tools["pay"] = {"num_ok": 60}
    edges += [edge("b0", "pay", 50)] + [edge(f"b{i}", "pay", 1) for i in range(1, 6)]
    assert analyse(nodes(**tools), summary(*edges)).ceremonial.num == 0


def test_where_all_tools_follow_all_none_is_ceremonial():
    names = [f"t{i}" for i in range(8)]
    edges = [edge(a, b, 5) for a in names for b in names if a != b]
    found = analyse(plain(*names, calls=35), summary(*edges))
    assert found.ceremonial.num == 0
    assert found.strong.first[0].size == 8


def test_a_name_alone_makes_nothing_ceremonial():
    tools, edges = chores()
    tools["Finish"] = {"num_ok": 30}
    edges += [edge("b0", "Finish", 30)]
    assert analyse(nodes(**tools), summary(*edges)).ceremonial.num == 0


def test_ceremony_is_judged_among_the_namespaces_it_meets():
    tools, edges = chores()
    tools |= {f"far__{i}": {"num_ok": 50} for i in range(40)}
    edges += [edge(f"far/{i}", f"far/{i + 1}", 50, kind) for i in range(39) for kind in FLOWING]
    tools["done"] = {"num_ok": 60}
    edges += [edge(f"b{i}", "done", 5) for i in range(12)]
    found = analyse(nodes(**tools), summary(*edges))
    assert [tool.tool for tool in found.ceremonial.first] == ["s/done"]


def test_communities_are_named_by_a_shared_word_or_their_strongest_tool():
    names = ["flight_find", "flight_book", "flightPay", "mail.read", "mail.send", "cook", "eat"]
    found = analyse(
        plain(*names),
        summary(
            edge("flight_find", "flight_book", 9),
            edge("flight_book", "flightPay", 8),
            edge("mail.read", "mail.send", 5),
            edge("cook", "eat", 4),
        ),
    )
    assert [(c.name, c.size) for c in found.communities.first] == [
        ("flight", 3),
        ("mail", 2),
        ("cook", 2),
    ]
    assert found.communities.first[0].strongest == (
        "s/flight_book",
        "s/flight_find",
        "s/flightPay",
    )
    assert found.communities.first[0].inside == 1


def test_kinds_of_one_pair_do_not_add_up():
    found = analyse(plain("a", "b"), summary(edge("a", "b", 3), edge("a", "b", 2, "dataflow")))
    assert found.num_pairs == 1
    assert found.communities.first[0].num_seen == 3


def test_cycles_and_repeats():
    tools = plain("a", "b", "c").with_columns(num_repeats=pl.Series([4, 0, 1]), num_retries=1)
    found = analyse(
        tools, summary(edge("a", "b", 7), edge("b", "a", 3), edge("b", "c", 2), edge("c", "a", 2))
    )
    assert [(c.tools, c.num_seen) for c in found.mutual.first] == [(("s/a", "s/b"), 3)]
    assert [(c.tools, c.num_seen) for c in found.triangles.first] == [(("s/a", "s/b", "s/c"), 2)]
    assert found.strong.first[0].tools == ("s/a", "s/b", "s/c")
    assert [(r.tool, r.share) for r in found.repeats.first] == [("s/a", 0.4), ("s/c", 0.1)]
    assert (found.num_repeats, found.num_retries) == (5, 3)


def test_unused_tools_and_coverage():
    tools = nodes(
        a={"num_ok": 3},
        b={"num_unrecorded": 3},
        broken={"num_failed": 2},
        never={},
        gone={"status": "deprecated"},
        alone={"num_ok": 1},
        x__old={"num_ok": 1},
    )
    found = analyse(
        tools,
        summary(
            edge("a", "b", 3),
            edge("x/old", "a", 1, day=date(2026, 3, 1)),
            edge("never", "gone", 1, kind="declared", day=None),
        ),
        quiet_days=30,
    )
    assert found.never_called.first == ("s/never",)
    assert found.only_failed.first == ("s/broken",)
    assert found.isolated.first == ("s/alone", "s/broken")
    assert [(u.tool, u.last_seen) for u in found.not_lately.first] == [("x/old", date(2026, 3, 1))]
    assert [(c.namespace, c.active, c.called, c.deprecated) for c in found.coverage.first] == [
        ("s", 5, 4, 1),
        ("x", 1, 1, 0),
    ]
    assert found.standings == {"dependency": 2, "stated": 1}
    later = analyse(tools, summary(edge("a", "b", 3)), mark=date(2026, 6, 1))
    assert [u.tool for u in later.not_lately.first] == ["s/a", "s/b"]


def test_cut_tools_and_bridges_say_what_they_hold():
    found = analyse(
        plain(*"abcdef"),
        summary(
            edge("a", "b", 1),
            edge("b", "c", 1),
            edge("a", "c", 1),
            edge("c", "d", 1),
            edge("d", "e", 1),
            edge("e", "f", 1),
            edge("d", "f", 1),
        ),
    )
    assert [(c.tools, c.cuts_off) for c in found.bridges.first] == [(("s/c", "s/d"), 3)]
    assert [(c.tools, c.cuts_off) for c in found.cut_tools.first] == [(("s/c",), 2), (("s/d",), 2)]


def test_warnings_rank_by_failures_beyond_what_is_usual_for_the_target():
    tools = nodes(
        a={"num_ok": 30},
        b={"num_ok": 30},
        flaky={"num_ok": 1, "num_failed": 19},
        steady={"num_ok": 95, "num_failed": 5},
    )
    found = analyse(
        tools,
        summary(
            edge("a", "flaky", 1, failed=19),
            edge("b", "steady", 1, failed=5),
            edge("a", "b", after_failure=4),
        ),
    )
    assert [(w.target, w.usual) for w in found.warnings.first] == [
        ("s/steady", 0.05),
        ("s/flaky", 0.95),
    ]
    assert [(f.source, f.target, f.num_after_failure) for f in found.fallbacks.first] == [
        ("s/a", "s/b", 4)
    ]


def test_lists_are_bounded_and_counts_are_not():
    tools, edges = chores(12)
    found = analyse(nodes(**tools), summary(*edges), most=3)
    assert (found.communities.num, len(found.communities.first)) == (12, 3)
    assert (found.bridges.num, len(found.bridges.first)) == (12, 3)


def test_the_order_of_rows_changes_nothing_and_everything_is_json():
    tools, edges = chores()
    edges += [edge(f"b{i}", f"a{(i * 5) % 12}", 1 + i) for i in range(1, 12)]
    first = analyse(nodes(**tools), summary(*edges))
    again = analyse(nodes(**dict(reversed(tools.items()))), summary(*reversed(edges)))
    assert json.dumps(first.to_json()) == json.dumps(again.to_json())
    assert first.to_json()["mark"] == "2026-03-31"


def test_an_empty_graph_has_a_structure():
    found = analyse(nodes(), summary())
    assert found.num_tools == found.communities.num == found.num_pairs == 0
    assert found.mark is None
    assert findings(found) == (
        "0 tools; 0 of them were called, 0 times. 0 ordered pairs of tools were seen in them.",
    )


def test_edges_of_another_version_are_refused():
    with pytest.raises(GraphMismatch, match="s/a -> s/z"):
        analyse(plain("a"), summary(edge("a", "z", 1)))
    with pytest.raises(ValueError, match="most"):
        analyse(plain("a"), summary(), most=0)


def test_findings_tell_a_newcomer_what_matters():
    tools, edges = chores()
    tools |= {"done": {"num_ok": 60}, "never": {}, "broken": {"num_failed": 1}}
    tools["a0"] = {"num_ok": 10, "num_repeats": 4, "num_retries": 1}
    edges += [edge(f"b{i}", "done", 5) for i in range(12)]
    edges += [edge("b0", "a0", 2), edge("a1", "a0", failed=3)]
    told = " ".join(findings(analyse(nodes(**tools), summary(*edges))))
    for part in (
        "done (60 calls) is ceremonial, it ends runs: it follows 12 different tools, and nothing",
        "1 pair of tools follows each other, mostly a0 and b0 (2 times)",
        "4 calls (1%) repeat the same tool at once, 1 of them after a failure",
        "1 active tool (4%) was never called: never.",
        "no call is known to have worked: broken",
        "a0 after a1 (failed 3 of 3 times, in all its calls 0%)",
    ):
        assert part in told
    assert "s/" not in told
