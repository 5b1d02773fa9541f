"""What a person sees of a graph version: its structure, and the drift between two."""

from collections.abc import Mapping
from typing import Any

from flows.show import _say, _some, _table, diff, graph


def structure(value: Mapping[str, Any]) -> None:
    """The findings, then a table of each kind that there is."""
    for sentence in value["findings"]:
        _say(f"- {sentence}")
    _say("")
    _listed(
        "Hubs",
        value["hubs"],
        ("tool", "seen as target", "seen as source", "sources", "targets"),
        lambda h: (h["tool"], h["num_in"], h["num_out"], h["sources"], h["targets"]),
    )
    _listed(
        "Groups",
        value["communities"],
        ("group", "tools", "around", "inside"),
        lambda c: (c["name"], c["size"], c["strongest"], f"{c['inside']:.0%}"),
    )
    _listed(
        "Tools that follow each other",
        value["mutual"],
        ("tools", "times"),
        lambda c: (" <-> ".join(c["tools"]), c["num_seen"]),
    )
    _listed(
        "Cycles of three",
        value["triangles"],
        ("tools", "times"),
        lambda c: (" -> ".join((*c["tools"], c["tools"][0])), c["num_seen"]),
    )
    _listed(
        "Called again at once",
        value["repeats"],
        ("tool", "calls", "repeats", "after a failure", "share"),
        lambda r: (
            r["tool"], r["calls"], r["num_repeats"], r["num_retries"], f"{r['share']:.0%}"
        ),
    )  # fmt: skip
    _listed(
        "Catalogue in use",
        value["coverage"],
        ("namespace", "active", "called", "deprecated", "share"),
        lambda c: (
            c["namespace"], c["active"], c["called"], c["deprecated"], f"{c['share']:.0%}"
        ),
    )  # fmt: skip
    _listed(
        "Without these, others lose the rest",
        {
            "num": value["cut_tools"]["num"] + value["bridges"]["num"],
            "first": [*value["cut_tools"]["first"], *value["bridges"]["first"]],
        },
        ("tool or edge", "tools cut off"),
        lambda c: (" - ".join(c["tools"]), c["cuts_off"]),
    )
    _listed(
        "Warnings",
        value["warnings"],
        ("edge", "kind", "failed", "succeeded", "fails anyway"),
        lambda w: (
            f"{w['source']} -> {w['target']}", w["kind"], w["num_failed"], w["num_succeeded"],
            f"{w['usual']:.0%}",
        ),
    )  # fmt: skip
    _listed(
        "Fallbacks",
        value["fallbacks"],
        ("edge", "kind", "times"),
        lambda f: (f"{f['source']} -> {f['target']}", f["kind"], f["num_after_failure"]),
    )


def drift(value: Mapping[str, Any]) -> None:
    """The verdict with its reasons, then what changed most."""
    _say(f"Drift of use: {value['verdict']}")
    for reason in value["reasons"]:
        _say(f"  - {reason}")
    for name in ("tools", "adjacent", "dataflow"):
        compared = value[name]
        if not compared or not compared["contributors"]:
            continue
        _table(
            f"{name}: {compared['verdict']}",
            ("what", "before", "since", "share before", "share since", "new"),
            [
                (
                    " -> ".join(c["what"]),
                    c["num_old"],
                    c["num_new"],
                    f"{c['share_old']:.1%}",
                    f"{c['share_new']:.1%}",
                    "new" if c["is_new"] else "",
                )
                for c in compared["contributors"]
            ],
        )


def _listed(title: str, listed: Mapping[str, Any], columns: tuple[str, ...], cells: Any) -> None:
    """A table of what is listed, with how many there are; nothing where there is nothing."""
    if listed["num"]:
        shown = len(listed["first"])
        of_all = f", {shown} of {listed['num']:,}" if shown < listed["num"] else ""
        _table(f"{title}{of_all}", columns, [cells(item) for item in listed["first"]])


def version(value: Mapping[str, Any]) -> None:
    """One version in numbers, and what it looks like."""
    graph({**value, "new": True})
    _say(
        f"built of data up to {value['mark']['last'] or 'an unknown time'} by code "
        f"{value['code_version']}, parent {(value['parent'] or 'none')[:12]}"
    )
    _table(
        "Evidence",
        ("kind", "outcome", "held out", "tool pairs", "times seen"),
        [
            (
                e["kind"],
                e["outcome"],
                "yes" if e["is_held_out"] else "no",
                e["pairs"],
                e["num_seen"],
            )
            for e in value["evidence"]
        ],
    )
    _table(
        "Strongest edges of the learning graph",
        ("from", "to", "kind", "seen"),
        [(e["source"], e["target"], e["kind"], e["num_seen"]) for e in value["strongest"]],
    )
    if value["predicted"]:
        _predicted(value["predicted"])
    types = value["types"]
    _say(
        f"by types: {types['strict_pairs']:,} tool pairs fit strictly, "
        f"{types['partial_pairs']:,} more in part, over {types['resources']:,} resources"
    )
    for source, count in value["declared_edges"].items():
        _say(f"{source} declares {count} edges; they stay out of learning")
    structure(value["structure"])
    if value["unlisted"]:
        names = [f"{t['name']} (nearest: {', '.join(t['nearest'][:1])})" for t in value["unlisted"]]
        _say(f"called but in no catalogue: {_some(names)}")


def _predicted(value: Mapping[str, Any]) -> None:
    """The likeliest edges that nobody has seen, and how such predictions fared."""
    edges = value["likeliest"]
    shown = f", {len(edges)} of {value['num']:,}" if len(edges) < value["num"] else ""
    _table(
        f"Predicted by version {value['model_version']}{shown}",
        ("from", "to", "probability"),
        [(e["source"], e["target"], f"{e['probability']:.2f}") for e in edges],
    )
    metrics = value["metrics"]
    if "auc" in metrics:
        _say(
            "such predictions from half of the data against the other half: log loss "
            f"{metrics['log_loss'] / metrics['base_log_loss']:.2f} of the base rate's, AUC "
            f"{metrics['auc']:.2f}, {metrics['expected']:.0f} edges expected, "
            f"{metrics['came']:.0f} came"
        )


def why(value: Mapping[str, Any]) -> None:
    """The evidence for an edge."""
    edge = f"{value['source']} -> {value['target']}"
    if not value["evidence"]:
        _say(f"{edge} is no edge of version {value['version'][:12]}")
    else:
        _table(
            f"{edge} in version {value['version'][:12]}",
            ("kind", "it is a", "ok", "not recorded", "failed", "after a failure",
             "in all", "first", "last", "weight"),
            [
                (
                    e["kind"], e["standing"], e["num_ok"], e["num_unrecorded"], e["num_failed"],
                    e["num_after_failure"], e["num_seen"], e["first_seen"], e["last_seen"],
                    f"{e['weight']:.2f}",
                )
                for e in value["evidence"]
            ],
        )  # fmt: skip
        _say(
            f"weight: successes, halved every {value['half_life_days']:g} days before "
            f"{value['mark'] or 'the mark (the data has no clock)'}"
        )
    if value["predicted"]:
        _say(
            f"predicted with probability {value['predicted']['probability']:.2f} by version "
            f"{value['predicted']['model_version']}"
        )
    for match in value["types"]:
        _say(
            f"type, {match['match']}: {match['resource']} ({match['output']} -> "
            f"{match['parameter']})"
        )
    if value["declared"]:
        _say(f"declared by its source as: {', '.join(value['declared'])}")
    if value["reverse"]:
        back = ", ".join(f"{e['kind']} {e['num_seen']}" for e in value["reverse"])
        _say(f"the other way round: {back}")
    if value["trajectories"]:
        _table(
            f"{value['num_trajectories']} trajectories of the present data, the latest first",
            ("trajectory", "source", "its id", "day", "kind", "outcome", "calls", "request"),
            [
                (
                    t["trajectory_id"][:12], t["source"], t["native_id"], t["on_day"], t["kind"],
                    t["outcome"] + (", held out" if t["is_held_out"] else ""),
                    f"{t['source_position']} -> {t['target_position']}", t["request"][:60],
                )
                for t in value["trajectories"]
            ],
        )  # fmt: skip


def rolled_back(value: Mapping[str, Any]) -> None:
    """What is the latest now, and how to go on."""
    _say(
        f"version {value['version'][:12]} is the latest again (before: {value['from'][:12]}); "
        "later builds are kept and do not replace it until: toolatlas graph build --release"
    )


def changes(value: Mapping[str, Any]) -> None:
    """What changed between two versions, and whether use drifted."""
    diff(value)
    drift(value["drift"])
