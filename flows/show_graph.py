"""What a person sees of a graph version: its structure, and the drift between two."""

from collections.abc import Mapping
from typing import Any

from flows.show import _say, _table


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
    _say(f"Drift from {value['from'][:12]} to {value['to'][:12]}: {value['verdict']}")
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
