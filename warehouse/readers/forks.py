"""Messages that form a tree, told in any order: into a trunk and its branches of paired calls.

Events are of three kinds, each with an id that stands for its content:

* a message: ``message`` = prompt, reply, result or other; ``parent`` = the id of the message event
  before it; ``rank`` = what orders messages that the tree leaves open (a list of numbers, equally
  long in all); ``reply`` = which answer of the model it is part of; ``at`` = its time; ``origin`` =
  an id of the source that messages may share (those that do are no fork).
* a call (``call`` = name) or a result (``answers`` = call id, may be null) ``of`` a message, the
  ``n``-th in it. ``same`` is equal for equal content.

Of several continuations of one message the earliest is the trunk's; each further one is a branch.
Results of parallel calls and further lines of one answer are no forks.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from warehouse.readers.evidence import Waiting, answer, orphan
from warehouse.records import UNRECORDED, Call

Event = dict[str, Any]


@dataclass(slots=True)
class Branch:
    """One line of a conversation.

    Attributes:
        start: Its first message.
        parent: The branch that it leaves; None for the trunk.
        messages: In order.
        calls: In order, those of this branch only.
        orphans: Results without a call.
        duplicates: Calls that were told again and counted once.
    """

    start: Event
    parent: "Branch | None" = None
    messages: list[Event] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    duplicates: int = 0


@dataclass(slots=True)
class _Node:
    event: Event
    answers: tuple[str | None, ...]
    children: list["_Node"] = field(default_factory=list)
    rank: tuple[Any, ...] = ()
    head: "_Node | None" = None
    """The first message of its subtree that is a prompt, a reply or a result."""
    continues: bool = False
    """Whether the model goes on after it."""
    reply: str | None = None
    branch: Branch | None = None


def branches_of(messages: list[Event], parts: Iterable[Event]) -> list[Branch]:
    """The trunk first, then the branches, with their calls and results paired.

    Args:
        messages: Message events, each once.
        parts: Events of calls and results, each once.
    """
    if not messages:
        return []
    of: dict[str, list[Event]] = {}
    for part in parts:
        of.setdefault(part["of"], []).append(part)
    for mine in of.values():
        mine.sort(key=lambda part: (part["n"], part["id"]))
    branches, order = _grow(messages, of)
    _pair(order, of)
    return branches


def _grow(
    messages: list[Event], of: dict[str, list[Event]]
) -> tuple[list[Branch], list[tuple[Event, Branch]]]:
    """The branches with their messages, and all messages in order."""
    nodes = {
        event["id"]: _Node(
            event, tuple(p["answers"] for p in of.get(event["id"], ()) if "answers" in p)
        )
        for event in messages
    }
    roots = _connect(nodes)
    topological = _ranked(roots)
    for node in reversed(topological):
        kind = node.event["message"]
        heads = [child.head for child in node.children if child.head is not None]
        if kind != "other":
            node.head = node
        elif heads:
            node.head = min(heads, key=lambda head: head.rank)
        node.continues = kind == "reply" or any(child.continues for child in node.children)
    trunk = Branch(start=roots[0].event)
    branches = [trunk]
    for root in roots:
        root.branch = trunk
    for node in topological:
        assert node.branch is not None
        for child, is_fork in _continuations(node):
            child.branch = node.branch
            if is_fork:
                child.branch = Branch(start=child.event, parent=node.branch)
                branches.append(child.branch)
    order = []
    heap = [(root.rank, root) for root in roots]
    heapq.heapify(heap)
    while heap:
        _, node = heapq.heappop(heap)
        assert node.branch is not None
        node.branch.messages.append(node.event)
        order.append((node.event, node.branch))
        for child in node.children:
            heapq.heappush(heap, (child.rank, child))
    return branches, order


def _connect(nodes: dict[str, _Node]) -> list[_Node]:
    """Give every node its children; those that no root leads to get a root of their own."""
    roots = []
    for node in nodes.values():
        parent = nodes.get(node.event.get("parent") or "")
        if parent is None or parent is node:
            roots.append(node)
        else:
            parent.children.append(node)
    reached: set[str] = set()

    def reach(start: _Node) -> None:
        stack = [start]
        while stack:
            node = stack.pop()
            if node.event["id"] not in reached:
                reached.add(node.event["id"])
                stack.extend(node.children)

    for root in roots:
        reach(root)
    if len(reached) < len(nodes):
        lost = [node for node in nodes.values() if node.event["id"] not in reached]
        for node in sorted(lost, key=lambda node: _own_rank(node, ())):
            if node.event["id"] not in reached:  # the earliest of a circle is its beginning
                nodes[node.event["parent"]].children.remove(node)
                roots.append(node)
                reach(node)
    return sorted(roots, key=lambda node: _own_rank(node, ()))


def _own_rank(node: _Node, inherited: tuple[Any, ...]) -> tuple[Any, ...]:
    rank = node.event.get("rank")
    return (*((inherited[:-1] or (0,)) if rank is None else rank), node.event["id"])


def _ranked(roots: list[_Node]) -> list[_Node]:
    """All nodes, parents first; each gets its rank, from its parent where it has none."""
    found = []
    stack = [(root, ()) for root in reversed(roots)]
    while stack:
        node, inherited = stack.pop()
        node.rank = _own_rank(node, inherited)
        found.append(node)
        node.children.sort(key=lambda child, above=node.rank: _own_rank(child, above))  # type: ignore[misc]
        stack.extend((child, node.rank) for child in reversed(node.children))
    return found


def _continuations(node: _Node) -> Iterable[tuple[_Node, bool]]:
    """(child, whether it begins a branch) for the children of a node, the earliest first."""
    kind = node.event["message"]
    if kind == "reply":
        node.reply = node.event.get("reply")
    went_on = False
    origins: set[str | None] = set()
    answered: set[str | None] = set()
    for child in node.children:
        head = child.head
        if child.event["message"] == "other":
            child.reply = node.reply  # what follows may still be part of the same answer
        if head is None or not child.continues:
            yield child, False
        elif head.event["message"] == "result":
            again = bool(answered.intersection(head.answers))
            answered.update(head.answers)
            yield child, again
        elif (
            head.event["message"] == "reply"
            and node.reply is not None
            and head.event.get("reply") == node.reply
        ):
            yield child, False
        else:
            origin = child.event.get("origin")
            is_fork = went_on and (origin is None or origin not in origins)
            went_on = True
            origins.add(origin)
            yield child, is_fork


def _pair(order: list[tuple[Event, Branch]], of: dict[str, list[Event]]) -> None:
    """Calls and results of all messages into the branches, in the order of the messages."""
    turns: dict[str, int] = {}
    told: list[tuple[Event, Branch, int]] = []
    for message, branch in order:
        parts = of.get(message["id"], ())
        turn = len(turns)
        if any("call" in part for part in parts):
            turn = turns.setdefault(message.get("reply") or message["id"], len(turns))
        told += [(part, branch, turn) for part in parts]
    at_of = {message["id"]: message.get("at") for message, _ in order}
    copies = _copies(told)
    waiting: dict[int, Waiting] = {}
    answered: dict[tuple[int, str | None], tuple[Call, Event]] = {}
    left = []
    for part, branch, turn in told:
        if "call" not in part:
            if not _settle(part, branch, waiting, answered, at_of):
                left.append((part, branch))
            continue
        if part["id"] in copies:
            branch.duplicates += 1
            continue
        call = Call(
            name=part["call"],
            turn=turn,
            arguments=part.get("arguments", UNRECORDED),
            call_id=part.get("call_id"),
            started_at=at_of[part["of"]],
            uid=part.get("uid"),
            error=part.get("error"),
            flags=tuple(part.get("flags", ())),
        )
        branch.calls.append(call)
        if not part.get("refused"):
            waiting.setdefault(id(branch), Waiting()).add(call)
    for part, branch in left:  # told before its call, by a clock that is wrong
        if not _settle(part, branch, waiting, answered, at_of):
            branch.orphans.append(orphan(part.get("result")))


def _copies(told: list[tuple[Event, Branch, int]]) -> set[str]:
    """Ids of the calls that repeat an equal one of their turn without a result of their own."""
    groups: dict[tuple[int, int, str], list[int]] = {}
    for index, (part, branch, turn) in enumerate(told):
        if "call" in part and part.get("call_id") is not None:
            groups.setdefault((id(branch), turn, part["same"]), []).append(index)
    copies: set[str] = set()
    for (_, turn, _), members in groups.items():
        if len(members) < 2:
            continue
        call_id = told[members[0]][0]["call_id"]
        results: set[tuple[Any, Any]] = set()
        for part, _, other in told[members[0] :]:
            if "call" in part and other != turn and part.get("call_id") == call_id:
                break
            if "call" not in part and part["answers"] == call_id:
                results.add((part["of"], part["n"]))
        copies.update(told[index][0]["id"] for index in members[max(1, len(results)) :])
    return copies


def _settle(
    result: Event,
    branch: Branch,
    waiting: dict[int, Waiting],
    answered: dict[tuple[int, str | None], tuple[Call, Event]],
    at_of: dict[str, int | None],
) -> bool:
    """Give a result to its call, in its branch or one that this leaves; False if there is none."""
    call_id, at = result["answers"], at_of[result["of"]]
    line: Branch | None = branch
    while line is not None:
        open_calls = waiting.get(id(line))
        if open_calls is not None:
            if call_id is None:
                turn = line.calls[-1].turn
                call = open_calls.take_named(turn, result.get("name"))
            else:
                call = open_calls.take(call_id)
            if call is not None:
                _give(call, result, at)
                answered[id(line), call_id] = call, result
                return True
        line = line.parent
    line = branch
    while line is not None and call_id is not None:
        known = answered.get((id(line), call_id))
        if known is not None:
            call, first = known
            if first["same"] == result["same"] and at_of[first["of"]] == at:
                branch.duplicates += 1
                return True
            call.attempts += 1  # run again from a checkpoint
            if line is branch:
                _give(call, result, at)
            return True
        line = line.parent
    return False


def _give(call: Call, result: Event, at: int | None) -> None:
    answer(
        call, result.get("result"), failed=result.get("failed") is True, error=result.get("error")
    )
    if result.get("cut"):
        call.status = "incomplete"
    call.ended_at = at
    flags = dict.fromkeys((*call.flags, *result.get("flags", ())))
    if at is not None and call.started_at is not None and at < call.started_at:
        flags["clock_skew"] = None
    call.flags = tuple(flags)
