"""The second planner: ControlLLM's line from a request to a plan, without a language model.

Decompose, search the graph, choose, fill arguments (arXiv 2310.17796, section 3). A request is cut
into tasks by rules; for each one, best-first search looks for the cheapest solution that ends in a
tool which suits the words of the task and works on the files that it names. What the chosen
solutions take and give are the subtasks. A decomposer or scorer of another kind takes their place.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import polars as pl

from models.best_first import best_first
from models.decomposing import Task, asks, tasks_of, verbs_of
from models.fields import Field, words_of
from models.filling import Contract, fill_step, read_contracts
from models.mentions import SEVERAL, FileTypes, Mention, files_in, phrase_of, quoted_in
from models.scorers import TextScorer
from models.search_graph import SearchGraph, is_file, search_graph, takes_any_file
from models.solutions import Solution, ranked
from models.solving import Scorer, SolvingConfig, Suits, join_solutions, judged, solve
from models.subtasks import Subtask, short_type
from models.thoughts_on_graph import Scores, SearchConfig, tool_costs
from models.toolset import Resource
from models.types import Argument, Embedder, Plan

TEXT = "text"
"""The type of what is said in words."""


@dataclass(frozen=True)
class TogConfig:
    """How the planner decides.

    Attributes:
        solving: Strategy and weights of the search.
        ends: Tools that a task may end in, by how they suit it.
        end_weight: What the last tool of a solution pays for suiting badly, beside its own cost.
        unused_cost: What it costs to leave a named file, or the result spoken of, unused.
        type_bonus: How far the score of a tool moves up to 5 that gives or takes a type which the
            words name.
        unsaid_cost: What it costs to leave unused what a task is about ("the umbrella").
    """

    solving: SolvingConfig = field(
        default_factory=lambda: SolvingConfig(
            search=SearchConfig(max_tools=10, max_visits=2000, step_cost=0.5)
        )
    )
    ends: int = 16
    end_weight: float = 1.0
    unused_cost: float = 2.0
    unsaid_cost: float = 0.6
    type_bonus: float = 0.5


Decomposer = Callable[[str, Sequence[Resource]], Sequence[Subtask]]
"""A request and the resources that it knows to subtasks."""


class Decomposed(NamedTuple):
    """A request taken apart and solved.

    Attributes:
        subtasks: In order.
        choices: Of each subtask, its solutions, best first.
        visits: Tools that the searches descended into.
        unsolved: Words of the tasks that have no solution: plans leave them out.
    """

    subtasks: list[Subtask]
    choices: list[list[Solution]]
    visits: int
    unsolved: list[str]


class TogPlanner:
    """Plans by Thoughts-on-Graph, over whatever a catalogue carries to search on.

    Args:
        graph: Tools and resource nodes.
        nodes: The version's nodes: descriptions and parameters.
        texts: What is read of each tool of the graph.
        embed: Text encoder.
        config: Weights.
        scorer: How tools suit a task; default: by texts and words.
        decomposer: Cuts requests into subtasks; default: the rules.
    """

    name = "tog"

    def __init__(
        self,
        graph: SearchGraph,
        nodes: pl.DataFrame,
        texts: Sequence[str],
        embed: Embedder,
        config: TogConfig | None = None,
        scorer: Scorer | None = None,
        decomposer: Decomposer | None = None,
    ) -> None:
        self.graph = graph
        self.config = config or TogConfig()
        self.scorer = scorer or TextScorer(graph.keys, texts, embed)
        self.decomposer = decomposer
        self.contracts = read_contracts(nodes)
        self.types = _file_types(graph, self.contracts)
        self._types_said = _pattern(self.types.types)
        self.namers = {
            tool
            for tool, key in enumerate(graph.keys)
            for p in self.contracts[key].parameters
            if words_of(p.name)[-1:] in (("name",), ("filename",))
        }
        self.verbs = verbs_of(contract.description for contract in self.contracts.values())

    def searches(self, namespaces: Collection[str]) -> bool:
        """Whether these catalogues carry anything to search on: types, names or edges that join."""
        return any(
            key.split("/", 1)[0] in namespaces
            and any(
                set(self.graph.givers[node]) - {tool}
                for need in self.graph.needs[tool]
                for node in need.nodes
            )
            for tool, key in enumerate(self.graph.keys)
        )

    def plan(self, requests: Sequence[str], top: int = 1) -> list[list[Plan]]:
        """Ranked plans for each request, best first, at most ``top``; with arguments."""
        return [self.plan_one(request, top) for request in requests]

    def plan_one(
        self, request: str, top: int = 1, resources: Sequence[Resource] = ()
    ) -> list[Plan]:
        """Ranked plans for one request.

        Args:
            request: What the user asks.
            top: Plans at most.
            resources: What is known besides what the request names.
        """
        return self.plans_of(self.decompose(request, resources), top)

    def plans_of(self, taken: Decomposed, top: int = 1) -> list[Plan]:
        """Ranked plans for a request that was taken apart, at most ``top``."""
        plans = join_solutions(self.graph, taken.subtasks, taken.choices, top, self.name)
        texts = {subtask.id: subtask.description for subtask in taken.subtasks}
        return [self._filled(plan, [texts[i] for i in owners]) for plan, owners in plans]

    def fill(self, plan: Plan, request: str, resources: Sequence[Resource] = ()) -> Plan:
        """The arguments of a plan that has none, such as GTool's: of the request and of its steps.

        A parameter of a type takes the output of the nearest step linked to it that gives the
        type, then of any earlier one, then a file of the request; the rest comes from the words.
        """
        known = [Resource(f.value, f.type) for f in files_in(request, self.types)]
        known += [r for r in resources if r.value not in {k.value for k in known}]
        known += [Resource(q.value, TEXT) for q in quoted_in(request)]
        steps: list[tuple[Argument, ...]] = []
        used: set[str] = set()
        for at, key in enumerate(plan.tools):
            linked = sorted((s for s, t in plan.links if t == at), reverse=True)
            earlier = [*linked, *(s for s in range(at - 1, -1, -1) if s not in linked)]
            step = [
                self._bound(f, plan, earlier, known, used) for f in self.graph.signatures[key].takes
            ]
            beside = [self.contracts[other] for other in plan.tools if other != key]
            steps.append(fill_step(self.contracts[key], step, request, beside, self.verbs))
        return replace(plan, arguments=tuple(steps))

    def _bound(
        self,
        f: Field,
        plan: Plan,
        earlier: Sequence[int],
        known: Sequence[Resource],
        used: set[str],
    ) -> Argument:
        kind = "|".join(f.types)
        wanted = set(map(short_type, f.types))
        takes_files = takes_any_file(f)
        for step in earlier:
            returns = self.graph.signatures[plan.tools[step]].returns
            given = {short_type(name) for part in returns for name in part.types}
            taken = {kind for kind in given - {TEXT} if self._is_taken(kind)}
            if wanted & given or (takes_files and taken):
                return Argument(f.name, kind, step=step)
        fitting = [
            r for r in known if short_type(r.type) in wanted or (takes_files and is_file(r.value))
        ]
        fresh = [r for r in fitting if r.value not in used] or fitting
        if not fresh:
            return Argument(f.name, kind)
        used.add(fresh[0].value)
        return Argument(f.name, kind, fresh[0].value)

    def _is_taken(self, kind: str) -> bool:
        """Whether any tool takes a type: what none takes is an answer, not a file to work on."""
        return any(self.graph.takers[node] for node in self.graph.of_type(kind))

    def _filled(self, plan: Plan, texts: Sequence[str]) -> Plan:
        """The plan with its open arguments filled from the words of each step's task."""
        steps = []
        for place, (key, text) in enumerate(zip(plan.tools, texts, strict=True)):
            others = [t for i, t in enumerate(plan.tools) if i != place and texts[i] == text]
            beside = [self.contracts[other] for other in others]
            own = fill_step(self.contracts[key], plan.arguments[place], text, beside, self.verbs)
            steps.append(own)
        return replace(plan, arguments=tuple(steps))

    def decompose(self, request: str, resources: Sequence[Resource] = ()) -> Decomposed:
        """The subtasks of a request with their solutions; a task without one is left out."""
        if self.decomposer is not None:
            return self._given(self.decomposer, request, resources)
        tasks = tasks_of(request, self.types, self.verbs)
        scored = self.scorer([self._scored(task) for task in tasks])
        suits = [self._heard(task, one) for task, one in zip(tasks, scored, strict=True)]
        subtasks: list[Subtask] = []
        choices: list[list[Solution]] = []
        seen: list[Resource] = [*resources]
        unsolved: list[str] = []
        visits = 0
        for task, one in zip(tasks, suits, strict=True):
            for files in self._rounds(task, one):
                subtask, found, visited = self._solve(task, files, one, subtasks, seen)
                visits += visited
                if subtask is not None:
                    subtasks.append(subtask)
                    choices.append(found)
                else:
                    unsolved.append(task.text)
            seen += [Resource(f.value, f.type) for f in task.files]
        return Decomposed(subtasks, choices, visits, unsolved)

    def _given(
        self, decompose: Decomposer, request: str, resources: Sequence[Resource]
    ) -> Decomposed:
        """The subtasks of another decomposer, solved."""
        named = [Resource(f.value, f.type) for f in files_in(request, self.types)]
        known = {str(r.value): r for r in (*resources, *named)}
        subtasks = list(decompose(request, list(known.values())))
        suits = self.scorer(subtasks)
        found = [
            solve(self.graph, subtask, one, self.config.solving)
            for subtask, one in zip(subtasks, suits, strict=True)
        ]
        kept = [(s, f.solutions) for s, f in zip(subtasks, found, strict=True) if f.solutions]
        return Decomposed(
            [subtask for subtask, _ in kept],
            [solutions for _, solutions in kept],
            sum(one.visits for one in found),
            [s.description for s, f in zip(subtasks, found, strict=True) if not f.solutions],
        )

    def _scored(self, task: Task) -> Subtask:
        """A task as scorers read it: without files and what they are, which search sees to."""
        text = task.text
        for mention in (*task.files, *task.makes):
            text = text.replace(mention.value, " ")
        kinds = {short_type(mention.type) for mention in task.files if mention.type}
        text = _pattern({*kinds, "file", "picture", "photo"}).sub(" ", text)
        return Subtask(0, f"Answer a question: {text}" if asks(task.text) else text, (), ())

    def _heard(self, task: Task, suits: Suits) -> Suits:
        """The scores, raised for tools that give or take a type which the task says.

        Where it wants a file made, tools that let it be named are raised too.
        """
        kinds = {short_type(mention.type) for mention in task.files}
        said = {m[0].casefold().removesuffix("s") for m in self._types_said.finditer(task.text)}
        nodes = frozenset().union(*(self.graph.types.get(kind, ()) for kind in said - kinds))
        near = {
            tool for node in nodes for tool in (*self.graph.givers[node], *self.graph.takers[node])
        }
        if task.makes:
            near |= self.namers
        if not near:
            return suits
        tools = suits.tools.copy()
        tools[sorted(near)] += self.config.type_bonus * (5.0 - tools[sorted(near)])
        return suits._replace(tools=tools)

    def _rounds(self, task: Task, suits: Suits) -> list[list[Mention]]:
        """The files of a task, all at once or one after the other.

        Several files of one type go one by one unless a tool that suits takes that many.
        """
        files = list({f.value: f for f in task.files}.values())
        kinds = [f.type for f in files]
        several = {kind for kind in kinds if kinds.count(kind) > 1}
        if not several:
            return [files]
        kind = min(several)
        best = np.argsort(-suits.tools, kind="stable")[: max(3, self.config.ends // 4)]
        nodes = self.graph.of_type(kind)
        for tool in best:
            slots = sum(bool(need.nodes & nodes) for need in self.graph.needs[int(tool)])
            if slots >= kinds.count(kind):
                return [files]
            if slots == 1 and tool == best[0]:
                break
        shared = [f for f in files if f.type != kind]
        return [[*shared, f] for f in files if f.type == kind]

    def _solve(
        self,
        task: Task,
        files: Sequence[Mention],
        suits: Suits,
        subtasks: Sequence[Subtask],
        seen: Sequence[Resource],
    ) -> tuple[Subtask | None, list[Solution], int]:
        """One task with the files of this round: the best of the ways to read what it works on."""
        named = [Resource(f.value, f.type) for f in files]
        usable = self.graph.of_resources(named)
        typed = [r for r, nodes in zip(named, usable, strict=True) if nodes]
        made = [
            Resource(f"<GENERATED>-{subtask.id}", kind, str(subtask.id))
            for subtask in reversed(subtasks)
            for kind in subtask.returns[:1]
        ]
        quoted = [Resource(q.value, TEXT) for q in quoted_in(task.text)]
        mentioned = [f.value for f in (*task.files, *task.makes)]
        phrase = phrase_of(task.text, mentioned, self.verbs | self.types.types.keys())
        said = quoted or ([Resource(phrase, TEXT)] if phrase else [])
        if asks(task.text) and not quoted:
            said = [Resource(task.text, TEXT)]
        said = said if self.graph.of_type(TEXT) else []
        earlier = [r for r in reversed(seen) if r.value not in {n.value for n in named}]
        readings: list[tuple[float, list[Resource]]] = []
        if typed:
            readings.append((0.0, typed))
            if made and task.refers_back:
                readings.append((0.0, [*typed, made[0]]))
        elif len(made) > 1 and made[0].type == made[1].type and SEVERAL.search(task.text):
            readings += [(0.0, [made[1], made[0]]), (0.0, made[:1])]
        elif made and (task.refers_back or not quoted):
            readings += [(0.0, made[:1]), *((0.5, [one]) for one in earlier[:2])]
        elif earlier and task.refers_back:
            readings.append((0.0, earlier[:1]))
        readings.append((self.config.unused_cost * bool(readings), []))
        if said:
            price = self.config.unsaid_cost
            readings = [(extra, [*args, *said[:2]]) for extra, args in readings] + [
                (extra + price, args) for extra, args in readings
            ]
        best: tuple[float, list[Resource], list[Resource], list[Solution]] | None = None
        visits = 0
        for extra, args in readings:
            known = [r for r in (*said, *made, *earlier) if r not in args]
            found, visited = self._search(args, known, suits)
            visits += visited
            if found and (best is None or found[0].cost + extra < best[0] - 1e-9):
                best = (found[0].cost + extra, args, known, found)
        if best is None:
            return None, [], visits
        _, args, known, found = best
        return self._subtask(task, args, known, found, len(subtasks)), found, visits

    def _search(
        self, args: Sequence[Resource], known: Sequence[Resource], suits: Suits
    ) -> tuple[list[Solution], int]:
        config = self.config.solving
        ends = np.argsort(-suits.tools, kind="stable")[: self.config.ends]
        prices = tool_costs(suits.tools, config.search, config.failure_rates)
        found = best_first(
            self.graph,
            self.graph.of_resources([*args, *known]),
            self.graph.done(map(int, ends)),
            prices,
            config.search,
            num_args=len(args),
            conflicts=config.conflicts,
            end_costs=_end_costs(suits.tools, self.config.end_weight),
        )
        chosen = [judged(solution, suits.pieces, config) for solution in found.solutions]
        return ranked(chosen, config.search.keep), found.visits

    def _subtask(
        self,
        task: Task,
        args: Sequence[Resource],
        known: Sequence[Resource],
        found: Sequence[Solution],
        number: int,
    ) -> Subtask:
        """The subtask that the best solution shows: what it takes and what it gives."""
        best = found[0]
        used = {s for step in best.steps for s in step.sources if s is not None and s >= 0}
        resources = [*args, *known]
        taken = [resources[i] for i in sorted(used)]
        signature = self.graph.signatures[self.graph.keys[best.steps[-1].tool]]
        returns = tuple(kind for f in signature.returns for kind in f.types) or (TEXT,)
        sources = {int(r.origin) for r in taken if r.origin.isdigit()}
        return Subtask(
            id=number,
            description=task.text,
            args=tuple(args),
            returns=returns,
            dependencies=tuple(sorted(sources)),
            known=tuple(known),
        )


def _pattern(words: Collection[str]) -> re.Pattern[str]:
    """Any of the words, or their plurals, as whole words."""
    either = "|".join(sorted(map(re.escape, words)))
    return re.compile(rf"\b(?:{either})s?\b", re.IGNORECASE)


def _end_costs(scores: Scores, weight: float) -> Scores:
    return np.asarray(weight * (5.0 - np.clip(scores, 1.0, 5.0)) / 4.0, dtype=np.float64)


def _file_types(graph: SearchGraph, contracts: Mapping[str, Contract]) -> FileTypes:
    """The catalogue's types, and what its parameters say of files."""
    said: dict[str, list[str]] = {}
    for key, signature in graph.signatures.items():
        told = {p.name: p.description for p in contracts[key].parameters}
        for f in signature.takes:
            for kind in f.types:
                said.setdefault(kind, []).append(told.get(f.name, ""))
    return FileTypes(graph.own_types, said)


def failure_rates(nodes: pl.DataFrame, keys: Sequence[str]) -> Scores:
    """How often each tool failed, 0 to 1, drawn to nothing as if two more calls had worked.

    Args:
        nodes: namespace, name, and num_ok, num_unrecorded, num_failed: counted calls.
        keys: Whose rates are wanted, in this order.
    """
    counts = {
        f"{namespace}/{name}": failed / (ok + unrecorded + failed + 2)
        for namespace, name, ok, unrecorded, failed in nodes.select(
            "namespace", "name", "num_ok", "num_unrecorded", "num_failed"
        ).iter_rows()
    }
    return np.array([counts.get(key, 0.0) for key in keys], dtype=np.float64)


def make_tog_planner(
    nodes: pl.DataFrame,
    texts: Mapping[str, str],
    embed: Embedder,
    *,
    edges: Mapping[tuple[str, str], float] | None = None,
    config: TogConfig | None = None,
    scorer: Callable[[SearchGraph], Scorer] | None = None,
    decomposer: Callable[[SearchGraph], Decomposer] | None = None,
) -> TogPlanner:
    """The planner over a version's nodes.

    Args:
        nodes: As :func:`models.search_graph.search_graph` takes them; active ones are used. Where
            they count calls, tools that fail cost more.
        texts: Key to what is read of the tool.
        embed: Text encoder.
        edges: Likely dependencies, as :func:`models.search_graph.search_graph` takes them.
        config: Weights.
        scorer: Makes another scorer over the graph.
        decomposer: Makes another decomposer over the graph.
    """
    graph = search_graph(nodes, edges=edges)
    config = config or TogConfig()
    if "num_failed" in nodes.columns and config.solving.failure_rates is None:
        rates = failure_rates(nodes, graph.keys)
        config = replace(config, solving=replace(config.solving, failure_rates=rates))
    return TogPlanner(
        graph,
        nodes,
        [texts[key] for key in graph.keys],
        embed,
        config,
        scorer and scorer(graph),
        decomposer and decomposer(graph),
    )
