"""Contracts of tools compared: what kind of change lies between two, and what looks like a rename.

Each kind of change has its own fingerprint, so that a new wording is told from another parameter.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb
import msgspec
import polars as pl

from warehouse.identity import digest

KINDS = ("parameters", "required", "types", "outputs", "description")
"""What can change in a contract, what breaks callers first.

parameters: other names, another order or place, another JSON type. required: what must be given.
types: other names of types where they are the source's own. outputs: the types of results.
description: wording only, of the tool or of a parameter; never a reason for an alarm.
"""

_JSON_TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}


@dataclass(frozen=True)
class Contract:
    """A tool's contract as stored: lists are JSON texts."""

    description: str
    parameters: str
    input_types: str
    output_types: str
    contract_hash: str
    status: str = "active"

    @cached_property
    def declared(self) -> list[dict[str, Any]]:
        """The parameters, parsed."""
        found = msgspec.json.decode(self.parameters)
        return [p for p in found if isinstance(p, dict)]

    @cached_property
    def names(self) -> list[str]:
        """The parameters' names in order."""
        return [str(p.get("name")) for p in self.declared]

    @cached_property
    def parts(self) -> dict[str, Any]:
        """What each kind of change compares."""
        named = [
            (name, str(p.get("in", ""))) for name, p in zip(self.names, self.declared, strict=True)
        ]
        types = [str(p.get("type") or "") for p in self.declared]
        told = {
            name: p.get("description") or ""
            for name, p in zip(self.names, self.declared, strict=True)
        }
        return {
            "parameters": named,
            "required": sorted(
                name for name, p in zip(self.names, self.declared, strict=True) if p.get("required")
            ),
            "types": [types, self.input_types],
            "outputs": self.output_types,
            "description": [self.description, told],
        }

    def fingerprints(self) -> dict[str, str]:
        """A hash for each kind of change."""
        return {kind: digest(self.parts[kind])[:12] for kind in KINDS}


def _is_other_type(old: str, new: str) -> bool:
    """Whether JSON Schema knows both types and they differ; other names are the source's own."""
    return old != new and {*old.split("|"), *new.split("|")} <= _JSON_TYPES


def changes(old: Contract, new: Contract) -> list[str]:
    """The kinds of change from one contract to another.

    A name of a type that changed with its parameter is part of that change, and so is what is said
    of a parameter that came or went.
    """
    if old.contract_hash == new.contract_hash:
        return []
    if old.parameters == new.parameters:
        told = ["outputs"] if old.output_types != new.output_types else []
        told += ["types"] if old.input_types != new.input_types else []
        told += ["description"] if old.description != new.description else []
        return sorted(told, key=KINDS.index)
    before, after = old.parts, new.parts
    kinds = [kind for kind in ("parameters", "required", "outputs") if before[kind] != after[kind]]
    if "parameters" not in kinds and before["types"] != after["types"]:
        pairs = zip(before["types"][0], after["types"][0], strict=True)
        other = any(_is_other_type(*pair) for pair in pairs)
        kinds.append("parameters" if other else "types")
    (old_text, old_told), (new_text, new_told) = before["description"], after["description"]
    both = old_told.keys() & new_told.keys()
    if old_text != new_text or any(old_told[name] != new_told[name] for name in both):
        kinds.append("description")
    return sorted(kinds, key=KINDS.index)


def compare(old: Mapping[str, Contract], new: Mapping[str, Contract]) -> dict[str, Any]:
    """``added``, ``removed`` and ``changed`` (names by kind) between two states of a catalogue."""
    changed: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name in sorted(old.keys() & new.keys()):
        for kind in changes(old[name], new[name]):
            changed[kind].append(name)
    return {
        "added": sorted(new.keys() - old.keys()),
        "removed": sorted(old.keys() - new.keys()),
        "changed": changed,
    }


def same_contracts(
    removed: Mapping[str, Contract], added: Mapping[str, Contract]
) -> list[list[str]]:
    """[old, new] of tools that differ in nothing but the name, where only one pair can be meant.

    A contract that says nothing (no description, no parameters) is no evidence.
    """
    left: dict[str, list[str]] = defaultdict(list)
    right: dict[str, list[str]] = defaultdict(list)
    for names, found in ((removed, left), (added, right)):
        for name, contract in names.items():
            if contract.description or contract.names:
                found[contract.contract_hash].append(name)
    return sorted(
        [old[0], right[hash][0]]
        for hash, old in left.items()
        if len(old) == 1 and len(right.get(hash, ())) == 1
    )


# --- likely renames -------------------------------------------------------------------------------

LIKELY = 0.65
"""Least score of a rename that is worth showing."""
_ALL_PAIRS = 10_000
"""As many pairs are all looked at; of more, those that have something in common."""
_COMMON = 4_000
"""What more pairs have in common says nothing of which became which."""
_WEIGHTS = {"parameters": 0.35, "description": 0.35, "name": 0.3}


def likely_renames(
    con: duckdb.DuckDBPyConnection, removed: Mapping[str, Contract], added: Mapping[str, Contract]
) -> list[dict[str, Any]]:
    """Removed and added tools that may be one tool under two names, the likeliest first.

    Each entry has ``old``, ``new``, a ``score`` in 0..1 and its ``evidence``: ``contract`` (nothing
    but the name differs), the likeness of ``parameters``, ``description`` and ``name``. A tool
    stands in one entry at most. Nothing is applied: that is for ``rename``.
    """
    pairs = _candidates(removed, added)
    if not pairs:
        return []
    frame = pl.DataFrame(
        [(o, n, _plain(o), _plain(n)) for o, n in pairs],
        schema={"old": pl.String, "new": pl.String, "a": pl.String, "b": pl.String},
        orient="row",
    )
    con.register("rename_pair", frame)
    alike = {
        (old, new): likeness
        for old, new, likeness in con.execute(
            "select old, new, jaro_winkler_similarity(a, b) from rename_pair"
        ).fetchall()
    }
    con.unregister("rename_pair")
    words = {name: _words(c.description) for names in (removed, added) for name, c in names.items()}
    scored = []
    for old, new in pairs:
        a, b = removed[old], added[new]
        same = a.contract_hash == b.contract_hash and bool(a.description or a.names)
        evidence = {
            "contract": same,
            "parameters": round(_jaccard(set(a.names), set(b.names)), 3),
            "description": round(_jaccard(words[old], words[new]), 3),
            "name": round(alike[old, new], 3),
        }
        weights = {**_WEIGHTS}
        if not a.names and not b.names:  # nothing to compare is no evidence for either side
            weights.pop("parameters")
        if not a.description and not b.description:
            weights.pop("description")
        score = sum(evidence[k] * w for k, w in weights.items()) / sum(weights.values())
        if same:
            score = 0.9 + score / 10
        if len(weights) == 1:
            score *= 0.8
        if score >= LIKELY:
            scored.append((round(score, 3), old, new, evidence))
    scored.sort(key=lambda row: (-row[0], row[1], row[2]))
    taken: set[tuple[str, str]] = set()
    likely = []
    for score, old, new, evidence in scored:
        if ("old", old) not in taken and ("new", new) not in taken:
            taken |= {("old", old), ("new", new)}
            likely.append({"old": old, "new": new, "score": score, "evidence": evidence})
    return likely


def _candidates(
    removed: Mapping[str, Contract], added: Mapping[str, Contract]
) -> list[tuple[str, str]]:
    """Pairs that share contract, parameters, description or a word, where that is rare."""
    if len(removed) * len(added) <= _ALL_PAIRS:
        return [(old, new) for old in sorted(removed) for new in sorted(added)]
    marks: dict[tuple[str, Any], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, names in enumerate((removed, added)):
        for name, contract in names.items():
            for mark in _marks(name, contract):
                marks[mark][side].append(name)
    pairs = {
        (old, new)
        for old_names, new_names in marks.values()
        if len(old_names) * len(new_names) <= _COMMON
        for old in old_names
        for new in new_names
    }
    return sorted(pairs)


def _marks(name: str, contract: Contract) -> Iterable[tuple[str, Any]]:
    yield "contract", contract.contract_hash
    yield "description", contract.description
    if contract.names:
        yield "parameters", tuple(sorted(contract.names))
    for word in set(_split(name)):
        yield "word", word


def _split(name: str) -> list[str]:
    """Words of a name: ``get_userName`` is get, user, name."""
    spaced = "".join(
        f" {c}" if c.isupper() and i and not name[i - 1].isupper() else c
        for i, c in enumerate(name)
    )
    return "".join(c if c.isalnum() else " " for c in spaced).lower().split()


def _plain(name: str) -> str:
    return " ".join(_split(name))


def _words(text: str) -> set[str]:
    return set("".join(c if c.isalnum() else " " for c in text.lower()).split())


def _jaccard(a: set[str], b: set[str]) -> float:
    return len(a & b) / len(a | b) if a or b else 0.0


def common_spellings(names: Iterable[str]) -> list[list[str]]:
    """Groups of names that differ in case, blanks or punctuation alone."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups["".join(c for c in name.casefold() if c.isalnum())].append(name)
    counts = Counter({key: len(set(group)) for key, group in groups.items()})
    return sorted(sorted(set(groups[key])) for key, n in counts.items() if n > 1 and key)


def contract_of(row: list[Any]) -> Contract:
    """The contract of a row of ``tool_row``."""
    return Contract(row[3], row[4], row[5], row[6], row[2], row[7])


def to_json(contract: Contract) -> dict[str, Any]:
    """A contract as commands show it."""
    return {
        "description": contract.description,
        "parameters": json.loads(contract.parameters),
        "input_types": json.loads(contract.input_types),
        "output_types": json.loads(contract.output_types),
        "status": contract.status,
        "fingerprints": contract.fingerprints(),
    }
