"""What is worth knowing of a graph version, in sentences: from a structure to a newcomer's page."""

from collections.abc import Iterable

from models.structure import Ceremony, Community, Structure

_FEW = 3


def findings(structure: Structure) -> tuple[str, ...]:
    """Sentences in the order in which somebody new would ask: what is it, what matters, what fails.

    Tools go by their bare names where the graph has one namespace. What there is nothing to say of
    has no sentence.
    """
    name = _Names(structure.coverage.num == 1)
    found = [_size(structure)]
    found += [_ceremony(tool, name) for tool in structure.ceremonial.first]
    if structure.ceremonial.num:
        found.append(
            "Such tools carry no dependency. Groups, cycles and weak spots below are told without "
            "them."
        )
    found += [*_hubs(structure, name), *_groups(structure, name), *_loops(structure, name)]
    found += [*_unused(structure, name), *_weak_spots(structure, name)]
    found += _failures(structure, name)
    return tuple(found)


class _Names:
    """Keys as sentences write them."""

    def __init__(self, is_bare: bool) -> None:
        self.is_bare = is_bare

    def __call__(self, key: str) -> str:
        return key.split("/", 1)[1] if self.is_bare else key

    def few(self, keys: Iterable[str], num: int) -> str:
        """The first keys, and how many more there are."""
        shown = [self(key) for key in list(keys)[:_FEW]]
        more = num - len(shown)
        return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def _size(s: Structure) -> str:
    spaces = f" in {s.coverage.num:,} namespaces" if s.coverage.num > 1 else ""
    told = f", as of {s.mark.isoformat()}" if s.mark else ""
    return (
        f"{s.num_tools:,} tools{spaces}{told}; {s.num_called:,} of them were called, "
        f"{s.num_calls:,} times. {s.num_pairs:,} ordered pairs of tools were seen in them."
    )


def _ceremony(tool: Ceremony, name: _Names) -> str:
    follows = f"follows {tool.sources:,} different tools"
    precedes = f"precedes {tool.targets:,} different tools"
    does = {
        "ends": f"ends runs: it {follows}, and {_hardly(tool.targets)} follows it",
        "opens": f"opens runs: it {precedes}, and {_hardly(tool.sources)} precedes it",
        "between": f"stands between any two steps: it {follows} and {precedes}",
    }[tool.role]
    flow = (
        "No value flows into or out of it, while values flow between other tools."
        if tool.has_dataflow
        else "No value flows into or out of it, but none was seen to flow in its namespace either."
    )
    setup = " Should it set up what the others need, declare that." if tool.role == "opens" else ""
    return f"{name(tool.tool)} ({tool.calls:,} calls) is ceremonial, it {does}. {flow}{setup}"


def _hardly(num: int) -> str:
    return "nothing" if num == 0 else "hardly anything"


def _hubs(s: Structure, name: _Names) -> list[str]:
    ceremonial = {tool.tool for tool in s.ceremonial.first}
    hubs = [hub for hub in s.hubs.first if hub.tool not in ceremonial][:_FEW]
    if not hubs:
        return []
    told = "; ".join(
        f"{name(hub.tool)} (target of {_share(hub.share_in)}, source of {_share(hub.share_out)})"
        for hub in hubs
    )
    return [f"The hubs, by share of all that was seen: {told}."]


def _groups(s: Structure, name: _Names) -> list[str]:
    if not s.communities.num:
        return []
    largest = "; ".join(_group(group, name) for group in s.communities.first[:_FEW])
    clear = "clear" if s.modularity >= 0.3 else "blurred"
    return [
        f"{_count(s.communities.num, 'group')} of tools that work together, {clear} ones "
        f"(modularity {s.modularity:.2f}). The largest: {largest}."
    ]


def _group(group: Community, name: _Names) -> str:
    first, second = (name(key) for key in group.strongest[:2])
    around = f"{group.size:,} tools around {first} and {second}"
    is_tool = group.strongest[0].endswith(f"/{group.name}")
    return around if is_tool else f"{group.name}, {around}"


def _loops(s: Structure, name: _Names) -> list[str]:
    found = []
    if s.mutual.num:
        told = "; ".join(
            f"{name(pair.tools[0])} and {name(pair.tools[1])} ({pair.num_seen:,} times)"
            for pair in s.mutual.first[:_FEW]
        )
        found.append(
            f"{_count(s.mutual.num, 'pair')} of tools {_verb(s.mutual.num, 'follow')} each other, "
            f"mostly {told}."
        )
    if s.strong.num and s.strong.first[0].size > 2:
        first = s.strong.first[0]
        found.append(
            f"From each of {first.size:,} tools every other of them can be reached: their order "
            "is no chain."
        )
    if s.num_repeats:
        share = s.num_repeats / s.num_calls
        most = s.repeats.first[0]
        after = f", {s.num_retries:,} of them after a failure" if s.num_retries else ""
        found.append(
            f"{s.num_repeats:,} calls ({share:.0%}) repeat the same tool at once{after}. Most "
            f"often {name(most.tool)}: {most.share:.0%} of its {most.calls:,} calls."
        )
    return found


def _unused(s: Structure, name: _Names) -> list[str]:
    found = []
    if s.never_called.num:
        share = s.never_called.num / s.num_active
        found.append(
            f"{_tools_were(s.never_called.num, 'active tool', share)} never called: "
            f"{name.few(s.never_called.first, s.never_called.num)}."
        )
    if s.only_failed.num:
        found.append(
            f"{_tools_were(s.only_failed.num)} called, but no call is known to have worked: "
            f"{name.few(s.only_failed.first, s.only_failed.num)}."
        )
    if s.not_lately.num:
        tools = (tool.tool for tool in s.not_lately.first)
        found.append(
            f"{_tools_were(s.not_lately.num)} not seen for {s.quiet_days} days or more, longest "
            f"first: {name.few(tools, s.not_lately.num)}."
        )
    if s.isolated.num:
        found.append(
            f"{_tools_were(s.isolated.num)} called, but never beside another one: "
            f"{name.few(s.isolated.first, s.isolated.num)}."
        )
    return found


def _weak_spots(s: Structure, name: _Names) -> list[str]:
    found = []
    if s.components.num > 1:
        found.append(
            f"The graph is in {s.components.num:,} pieces that share no run; the largest has "
            f"{s.components.first[0].size:,} tools."
        )
    told = [cut for cut in s.cut_tools.first if cut.cuts_off > 1][:_FEW]
    if told:
        tools = "; ".join(f"{name(cut.tools[0])} ({cut.cuts_off:,} tools)" for cut in told)
        found.append(f"Tools that alone join others to the rest: {tools}.")
    return found


def _failures(s: Structure, name: _Names) -> list[str]:
    found = []
    if s.warnings.num:
        told = "; ".join(
            f"{name(w.target)} after {name(w.source)} (failed {w.num_failed:,} of "
            f"{w.num_failed + w.num_succeeded:,} times, in all its calls {w.usual:.0%})"
            for w in s.warnings.first[:_FEW]
        )
        found.append(
            f"{_count(s.warnings.num, 'edge')} {_verb(s.warnings.num, 'warn')}: the target mostly "
            f"fails. First: {told}."
        )
    if s.fallbacks.num:
        told = "; ".join(
            f"{name(f.target)} after {name(f.source)} ({f.num_after_failure:,} times)"
            for f in s.fallbacks.first[:_FEW]
        )
        found.append(
            f"{_count(s.fallbacks.num, 'edge')} {_verb(s.fallbacks.num, 'show')} what is tried "
            f"when a call fails. First: {told}."
        )
    return found


def _count(num: int, noun: str) -> str:
    return f"{num:,} {noun}" if num == 1 else f"{num:,} {noun}s"


def _verb(num: int, verb: str) -> str:
    return f"{verb}s" if num == 1 else verb


def _tools_were(num: int, noun: str = "tool", share: float | None = None) -> str:
    of_all = "" if share is None else f" ({share:.0%})"
    return f"{_count(num, noun)}{of_all} {'was' if num == 1 else 'were'}"


def _share(share: float) -> str:
    return "less than 1%" if 0 < share < 0.01 else f"{share:.0%}"
