"""Trains GTool's LLM readout: graph tokens alone, in stages, over the answer tokens alone."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from models.ablation import Ablation
from models.candidates import RequestVectors
from models.dependency import mask_edges, sample_negatives
from models.distributed import World
from models.errors import TrainingDiverged, UnusableLLM
from models.fusion import choose_weight
from models.graph_tokens import GraphTokens, LLMConfig, new_graph_tokens
from models.gtool import GToolPlanner
from models.llm import FrozenLLM, Reader
from models.llm_planner import Catalogue, LLMPlanner, Target, request_limit
from models.memory import padded_plans
from models.prompt import DEPENDENCY, NAMING, frame, plan_tokens
from models.readings import Readings, Rows, read_rows
from models.resume import read_state, restore_weights, weight_tensors, write_state
from models.training import check_examples, random_state, weights_hash
from models.types import Example, ToolGraph

WARMUP = 0.05
"""Share of a stage's steps in which the learning rate rises; half a cosine leads down again."""

PAIRS_AT_ONCE = 64
"""Pairs of nodes that the LLM is asked about in one pass."""

OnStep = Callable[[int, dict[str, float]], None]
"""Told the steps made so far and the metrics of the last one."""


@dataclass(frozen=True)
class LLMTrainResult:
    """What a training leaves behind.

    Attributes:
        tokens: The graph tokens with their best weights, in eval mode, on the CPU.
        config: The configuration with ``max_length`` filled in.
        history: One record a look at the validation rows: ``step``, ``train_loss``, ``mdpl_loss``,
            ``validation_loss``, in nats: means per choice of a batch, or per token with
            ``loss = tokens``.
        weights_hash: Hash of the tokens' weights.
    """

    tokens: GraphTokens
    config: LLMConfig
    history: list[dict[str, float]]
    weights_hash: str


def choice_loss(
    logits: Float[Tensor, "places vocabulary"], targets: Sequence[Target]
) -> Float[Tensor, ""]:
    """Mean negative log-likelihood of the right token among the legal ones, over all choices.

    Zero where there is no choice at all, as in a catalogue of one tool.
    """
    legal = [options for target in targets for options in target.legal]
    if not legal:
        return logits.sum() * 0.0
    right = torch.tensor([i for target in targets for i in target.right], device=logits.device)
    width = max(len(options) for options in legal)
    index = torch.tensor([options + [0] * (width - len(options)) for options in legal])
    inside = torch.tensor([[True] * len(o) + [False] * (width - len(o)) for o in legal])
    scores = logits.gather(1, index.to(logits.device))
    scores = scores.masked_fill(~inside.to(logits.device), -torch.inf)
    return F.cross_entropy(scores, right)


def train_llm_readout(
    llm: FrozenLLM,
    planner: GToolPlanner,
    examples: Sequence[Example],
    vectors: RequestVectors,
    config: LLMConfig,
    *,
    seed: int,
    on_step: OnStep | None = None,
    resume_dir: Path | None = None,
    code_version: str = "",
) -> LLMTrainResult:
    """Train graph tokens for a frozen LLM, after the graph readout was trained.

    First every tool's token learns to say the tool's name (alignment), then request and step tokens
    learn to say plans, with missing-dependency prediction as a yes or no of the LLM beside
    it (GTool, sections 3.2 and 3.3). The LLM's weights never change. At the end validation rows
    choose the weight of the fusion of both readouts, see ``choose_weight``. Processes that torchrun
    started share each batch; the first one keeps the state and tells of steps.

    Args:
        llm: The frozen language model; it also decides the device.
        planner: The trained graph readout: its encoder is where the tokens start, and what it says
            of the rows is what the LLM is told, see ``read_rows``.
        examples: Requests with gold plans; splits other than train and validation are ignored.
        vectors: Text vectors of the examples' requests.
        config: Sizes, rates and steps.
        seed: Of initial weights, order, masks, disturbances and negatives.
        on_step: Told after every ``save_every`` steps and at the end of a stage, once the state is
            safe.
        resume_dir: Where the state is kept and looked for.
        code_version: What else should make a stored state stale.

    Raises:
        NotEnoughData: Fewer than 8 training or 2 validation examples.
        PromptTooLong: The tool list is longer than the LLM reads.
        UnusableLLM: The LLM's template or tokenizer does not serve.
        TrainingDiverged: The loss is no longer a number.
    """
    graph = planner.graph
    parts, _ = check_examples(graph, examples)
    rows = {
        name: Rows(
            [examples[i].request for i in found],
            vectors.rows(found),
            [[graph.index[key] for key in examples[i].tools] for i in found],
            [examples[i].links for i in found],
            [examples[i].group or examples[i].id for i in found],
        )
        for name, found in parts.items()
    }
    longest = max(map(len, rows["train"].plans))
    config = replace(config, max_length=config.max_length or longest)
    mark = _fingerprint(llm, planner, rows, config, seed, code_version)
    with random_state(seed, llm.device):
        readings, honest = read_rows(planner, rows, config.candidates)
        run = _Run(llm, honest, rows, readings, config, seed)
        if resume_dir is not None:
            run.read(resume_dir, mark)
        while not run.done:
            record = run.train_step()
            ends = run.step in (config.align_steps, config.align_steps + config.plan_steps)
            if ends or run.step % config.validate_every == 0:
                record |= run.validate()
            if ends or run.done or run.step % config.save_every == 0:
                if resume_dir is not None and run.world.first:
                    run.write(resume_dir, mark)
                if on_step is not None and run.world.first:
                    on_step(run.step, record)
        tokens = run.best_tokens(graph)
        run.world.check_same("the graph tokens", weights_hash(tokens.state_dict()))
        chosen = [examples[row] for row in parts["validation"][: config.fusion_rows]]
        if chosen:
            spoken = LLMPlanner(config, tokens, honest, llm)
            config = replace(config, fusion_weight=choose_weight(honest, spoken, chosen).weight)
    return LLMTrainResult(tokens.cpu(), config, run.history, weights_hash(tokens.state_dict()))


def _fingerprint(
    llm: FrozenLLM,
    planner: GToolPlanner,
    rows: dict[str, Rows],
    config: LLMConfig,
    seed: int,
    code_version: str,
) -> str:
    """Hash of all that decides what a training does."""
    graph = planner.graph
    texts = {name: [part.texts, part.plans, part.links, part.groups] for name, part in rows.items()}
    head = [asdict(config), llm.digest, str(llm.device), str(llm.dtype), seed, code_version]
    tensors = {"x": planner.tool_x, "index": graph.edge_index, "counts": graph.edge_counts}
    tensors |= {name: part.x for name, part in rows.items()}
    tensors |= {f"{name}_clauses": part.vectors.clauses for name, part in rows.items()}
    text = json.dumps([head, torch.__version__, graph.keys, texts], sort_keys=True)
    text += weights_hash(tensors) + weights_hash(planner.model.state_dict())
    return hashlib.sha256(text.encode()).hexdigest()


def disturbed(
    plan: Sequence[int], candidates: Sequence[int], generator: torch.Generator
) -> list[int]:
    """A plan with one step dropped, swapped with the next one, or replaced by a candidate.

    Args:
        plan: Tool rows, at least one.
        candidates: Rows that may take a step's place, padded with -1; without any other tool
            among them, a plan of one step stays as it is.
        generator: Source of randomness.
    """

    def below(count: int) -> int:
        return int(torch.randint(count, (1,), generator=generator))

    out = list(plan)
    others = [row for row in candidates if row >= 0 and row not in plan]
    kinds = (["drop", "swap"] if len(out) > 1 else []) + (["replace"] if others else [])
    kind = kinds[below(len(kinds))] if kinds else None
    if kind == "drop":
        del out[below(len(out))]
    elif kind == "swap":
        at = below(len(out) - 1)
        out[at], out[at + 1] = out[at + 1], out[at]
    elif kind == "replace":
        out[below(len(out))] = others[below(len(others))]
    return out


def likely_pairs(
    tool_x: Float[Tensor, "num_tools text_channels"], graph: ToolGraph, count: int
) -> Int[Tensor, "2 pairs"]:
    """Pairs without an edge that tools of similar text have edges like, the likeliest first.

    A pair scores the sum of the cosines of its source to the sources of edges into its target.

    Args:
        tool_x: Text vectors, of length 1.
        graph: The graph.
        count: Most pairs.
    """
    likeness = (tool_x @ tool_x.T).clamp_min(0)
    into = likeness.new_zeros(graph.num_tools, graph.num_tools)
    into[graph.edge_index[0], graph.edge_index[1]] = 1.0
    score = (likeness @ into).masked_fill(into.bool(), -torch.inf).fill_diagonal_(-torch.inf)
    best = score.flatten().sort(descending=True, stable=True)
    rows = best.indices[:count][best.values[:count] > 0]
    return torch.stack([rows // graph.num_tools, rows % graph.num_tools])


class PlanningLoss:
    """The loss of plans under the frozen LLM, over the tokens behind the request alone.

    Everything before the graph tokens is a constant of the frozen LLM. The shared text is read
    once; a request is read when it first comes up, and its keys are kept as long as there is room.

    Args:
        llm: The frozen language model.
        catalogue: The tools as it writes them.
        config: Of the readout.
        room: Bytes of request keys that are kept.
    """

    def __init__(
        self, llm: FrozenLLM, catalogue: Catalogue, config: LLMConfig, room: int = 2 << 30
    ) -> None:
        self.llm, self.catalogue, self.config = llm, catalogue, config
        self.frame = catalogue.planning_frame(llm, config)
        self.naming, self.asking = frame(llm, NAMING), frame(llm, DEPENDENCY)
        self.limit = request_limit(llm, catalogue, self.frame, config)
        answers = zip(llm.tokens("yes"), llm.tokens("no"), strict=False)
        differing = next((pair for pair in answers if pair[0] != pair[1]), None)
        if differing is None:
            raise UnusableLLM(
                f"expected a tokenizer of {llm.name!r} that tells yes from no, its tokens are the "
                "same; choose another model (setting llm)."
            )
        self.yes, self.no = differing
        self.reader = Reader(llm).start(self.frame.before)
        self._asking_root = self.reader.read_text(self.asking.before)
        self.naming_reader = Reader(llm).start(self.naming.before)
        self.after = [llm.embed(f.after) for f in (self.frame, self.naming, self.asking)]
        self._room = room
        self._kept: dict[tuple[int, ...], Tensor] = {}

    def weight(self, plan: Sequence[int]) -> int:
        """Places of a plan's answer that are judged; the loss of some plans is their mean."""
        end = self.frame.end
        if self.config.loss == "tokens":
            return len(plan_tokens(self.catalogue.names.lines, plan, end))
        return len(self.catalogue.choices(plan, end, self.config.max_length or len(plan)).places)

    def behind_requests(
        self, texts: Sequence[str], candidates: Sequence[Sequence[int]] | None = None
    ) -> tuple[Reader, list[int]]:
        """A reader that has read these requests and the lists below them, and their segments."""
        shown = candidates if self.config.tool_list == "topk" else None
        prompts = [
            tuple(
                self.catalogue.request_tokens(
                    self.llm, text, self.limit, None if shown is None else shown[i]
                )
            )
            for i, text in enumerate(texts)
        ]
        distinct = list(dict.fromkeys(prompts))
        reader = self.reader.fork()
        keys = [self._keys(ids) for ids in distinct]
        segments = reader.attach([reader.root] * len(distinct), keys)
        made = dict(zip(distinct, segments, strict=True))
        return reader, [made[ids] for ids in prompts]

    def _keys(self, ids: tuple[int, ...]) -> Tensor:
        """Keys of a request, which is read alone: to the last bit they depend on nothing else."""
        keys = self._kept.get(ids)
        if keys is None:
            reader = self.reader.fork()
            with torch.no_grad():
                (segment,), _ = reader.read([(reader.root, self.llm.embed(ids))], wanted=[])
            keys = reader.keys_of(segment)
            if keys.nbytes <= self._room:
                self._room -= keys.nbytes
                self._kept[ids] = keys
        return keys

    def __call__(
        self,
        texts: Sequence[str],
        graph_pieces: Sequence[Float[Tensor, "_ width"]],
        plans: Sequence[Sequence[int]],
        node_pairs: Float[Tensor, "pairs pair_tokens width"] | None = None,
        candidates: Sequence[Sequence[int]] | None = None,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, " pairs"]]:
        """Planning loss, and the LLM's logit of yes against no for each pair of node tokens.

        Args:
            texts: Requests.
            graph_pieces: What the graph says of each.
            plans: Their gold plans as tool rows.
            node_pairs: Two node tokens a pair, see ``GraphTokens.node_pieces``.
            candidates: Rows listed below each request, where the config lists candidates.
        """
        reader, segments = self.behind_requests(texts, candidates)
        end = self.frame.end
        answers = [plan_tokens(self.catalogue.names.lines, plan, end) for plan in plans]
        pieces, wanted, at = [], [], 0
        longest = self.config.max_length or max(map(len, plans), default=1)
        targets = [self.catalogue.choices(plan, end, longest) for plan in plans]
        for segment, graph, answer, target in zip(
            segments, graph_pieces, answers, targets, strict=True
        ):
            piece = torch.cat(
                [graph.to(self.llm.dtype), self.after[0], self.llm.embed(answer[:-1])]
            )
            pieces.append((segment, piece))
            first = at + piece.size(0) - len(answer)
            places = target.places if self.config.loss == "choices" else range(len(answer))
            wanted += [first + place for place in places]
            at += piece.size(0)
        num_plans = len(wanted)
        for pair in node_pairs if node_pairs is not None else ():
            piece = torch.cat([pair.to(self.llm.dtype), self.after[2]])
            pieces.append((self._asking_root, piece))
            at += piece.size(0)
            wanted.append(at - 1)
        _, logits = reader.read(pieces, wanted)
        if self.config.loss == "choices":
            loss = choice_loss(logits[:num_plans], targets)
        else:
            labels = torch.tensor([t for answer in answers for t in answer], device=logits.device)
            loss = F.cross_entropy(logits[:num_plans], labels)
        return loss, logits[num_plans:, self.yes] - logits[num_plans:, self.no]

    @torch.no_grad()
    def dependencies(
        self, node_pairs: Float[Tensor, "pairs pair_tokens width"]
    ) -> Float[Tensor, " pairs"]:
        """Probability that the LLM says yes rather than no to each pair of node tokens."""
        found = []
        for start in range(0, node_pairs.size(0), PAIRS_AT_ONCE):
            part = node_pairs[start : start + PAIRS_AT_ONCE]
            reader = self.reader.fork()
            pieces = [
                (self._asking_root, torch.cat([pair.to(self.llm.dtype), self.after[2]]))
                for pair in part
            ]
            _, logits = reader.read(pieces)
            found.append((logits[:, self.yes] - logits[:, self.no]).sigmoid())
        return torch.cat(found) if found else torch.zeros(0)

    def naming_loss(
        self, node_pieces: Float[Tensor, "tools tokens width"], rows: Sequence[int]
    ) -> Float[Tensor, ""]:
        """How far each node's token is from saying its tool's name."""
        lines = self.catalogue.names.lines
        reader = self.naming_reader.fork()
        pieces, wanted, targets, at = [], [], [], 0
        for node, row in zip(node_pieces, rows, strict=True):
            answer = list(lines[row])
            piece = torch.cat([node.to(self.llm.dtype), self.after[1], self.llm.embed(answer[:-1])])
            pieces.append((reader.root, piece))
            target = self.naming_target(row)
            first = at + piece.size(0) - len(answer)
            wanted += [first + place for place in target.places]
            targets.append(target)
            at += piece.size(0)
        _, logits = reader.read(pieces, wanted)
        return choice_loss(logits, targets)

    def naming_target(self, row: int) -> Target:
        """Where the name of a tool is judged; its end is due after it."""
        return self.catalogue.choices([row], self.naming.end, max_length=1)


@torch.no_grad()
def predict_links(
    loss: PlanningLoss,
    tokens: GraphTokens,
    tool_x: Float[Tensor, "num_tools text_channels"],
    graph: ToolGraph,
) -> None:
    """Ask the LLM for missing dependencies and store its answers in the tokens.

    The pairs asked for are those of :func:`likely_pairs`; what was not asked has probability 0.
    """
    device = loss.llm.device
    pairs = likely_pairs(tool_x, graph, tokens.links.size(1))
    layers = tokens.encode_tools(
        tool_x.to(device), graph.edge_index.to(device), graph.edge_counts.to(device)
    )
    tokens.links[:, : pairs.size(1)] = pairs
    tokens.link_probability[: pairs.size(1)] = loss.dependencies(
        tokens.node_pieces(layers, pairs.T.to(device))
    )


class _Run:
    """The state of one training, and the steps that change it."""

    def __init__(
        self,
        llm: FrozenLLM,
        planner: GToolPlanner,
        rows: dict[str, Rows],
        readings: dict[str, Readings],
        config: LLMConfig,
        seed: int,
    ) -> None:
        self.config, self.device, self.graph = config, llm.device, planner.graph
        self.rows = {name: part.cut(config.max_length) for name, part in rows.items()}
        self.world = World.current()
        self.tool_x = planner.tool_x.float().to(self.device)
        self.generator = torch.Generator().manual_seed(seed)
        self.loss = PlanningLoss(llm, Catalogue.of(llm, planner.graph), config)
        lines = self.loss.catalogue.names.lines
        self.tokens = new_graph_tokens(config, planner.model, llm, lines).to(self.device)
        self.readings = readings
        self.weights = dict(self.tokens.named_parameters())
        slow = [w for name, w in self.weights.items() if name.startswith("encoder.")]
        fast = [w for name, w in self.weights.items() if not name.startswith("encoder.")]
        self.optimizer = torch.optim.AdamW(
            [{"params": fast, "share": 1.0}, {"params": slow, "share": config.encoder_rate}],
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
        )
        self.step = 0
        self.order: list[int] = []
        self.history: list[dict[str, float]] = []
        self.best = {name: w.detach().clone() for name, w in self.weights.items()}
        self.best_loss = math.inf
        self.stale = 0  # looks at the validation rows since the best one
        self.recent: dict[str, list[float]] = {}

    @property
    def done(self) -> bool:
        """Whether nothing is left to train."""
        config = self.config
        over = self.step >= config.align_steps + config.plan_steps or self.stale >= config.patience
        return over or config.ablation is Ablation.NO_GRAPH

    def train_step(self) -> dict[str, float]:
        """One step of the stage that is on; its losses."""
        aligning = self.step < self.config.align_steps
        if self.step == self.config.align_steps:
            self.order = []
        rate = self._learning_rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["share"]
        self.optimizer.zero_grad()
        record, weight = self._align() if aligning else self._plan()
        self.world.average(self.weights.values(), weight)
        torch.nn.utils.clip_grad_norm_(self.weights.values(), self.config.max_grad_norm)
        self.optimizer.step()
        self.step += 1
        for name, value in record.items():
            self._require_number(name, value)
            self.recent.setdefault(name, []).append(value)
        return record

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Loss on the validation rows; the best weights so far are kept."""
        if self.step < self.config.align_steps:
            return {}
        rows, readings = self.rows["validation"], self.readings["validation"]
        layers = self._layers(torch.zeros(self.graph.edge_index.size(1), dtype=torch.bool))
        count, total = min(self.config.validation_rows, len(rows.texts)), 0.0
        for start in range(0, count, self.config.batch_size):
            some = range(start, min(start + self.config.batch_size, count))
            shown = readings.take(some)
            total += self._planning_loss(rows, shown, list(some), layers)[0].item() * len(some)
        means = {name: sum(values) / len(values) for name, values in self.recent.items()}
        record = {"step": float(self.step), **means, "validation_loss": total / count}
        self._require_number("validation_loss", record["validation_loss"])
        self.history.append(record)
        self.recent = {}
        if record["validation_loss"] < self.best_loss:
            self.best_loss = record["validation_loss"]
            self.best = {name: w.detach().clone() for name, w in self.weights.items()}
            self.stale = 0
        else:
            self.stale += 1
        return {"validation_loss": record["validation_loss"]}

    def _require_number(self, name: str, value: float) -> None:
        if not math.isfinite(value):
            raise TrainingDiverged(
                f"expected {name} to be a number after step {self.step}, got {value}; lower the "
                f"learning rate ({self.config.learning_rate:g}) or look for odd data"
            )

    def best_tokens(self, graph: ToolGraph) -> GraphTokens:
        """The tokens with the chosen weights, and the links that the LLM misses in the graph."""
        self.tokens.load_state_dict(self.tokens.state_dict() | self.best)
        if self.config.ablation is Ablation.LLM_LINKS:
            predict_links(self.loss, self.tokens, self.tool_x.cpu(), graph)
        return self.tokens.eval()

    def write(self, folder: Path, mark: str) -> None:
        """Store the whole state."""
        tensors = {f"best/{name}": weight for name, weight in self.best.items()}
        tensors["generator"] = self.generator.get_state()
        head = {
            "step": self.step,
            "order": self.order,
            "history": self.history,
            "best_loss": self.best_loss if math.isfinite(self.best_loss) else None,
            "stale": self.stale,
            "recent": self.recent,
        }
        write_state(folder, mark, head, tensors | weight_tensors(self.weights, self.optimizer))

    def read(self, folder: Path, mark: str) -> None:
        """Take up a stored state of this very training; leave anything else alone."""
        state = read_state(folder, mark)
        if state is None:
            return
        head, tensors = state
        restore_weights(self.weights, self.optimizer, tensors, self.device)
        self.best = {name: tensors[f"best/{name}"].to(self.device) for name in self.weights}
        self.generator.set_state(tensors["generator"])
        self.step, self.order, self.history = head["step"], head["order"], head["history"]
        self.best_loss = math.inf if head["best_loss"] is None else head["best_loss"]
        self.stale, self.recent = head["stale"], head["recent"]

    def _align(self) -> tuple[dict[str, float], int]:
        """Gradients of a step in which node tokens of some tools say their names.

        Returns:
            Mean losses over all processes, and how many choices this one's loss is a mean of.
        """
        hidden = self._hidden()
        rows = self.world.share(self._next(self.tool_x.size(0)))
        weights = [len(self.loss.naming_target(row).places) for row in rows]
        total = 0.0
        for part, share in self._parts(weights):
            some = [rows[i] for i in part]
            with self._precision():
                nodes = torch.tensor(some, device=self.device)[:, None]
                pieces = self.tokens.node_pieces(self._layers(hidden), nodes)
            loss = self.loss.naming_loss(pieces, some) * share
            torch.autograd.backward(loss)
            total += loss.item()
        return {"align_loss": self._mean(total, weights)}, self._weight(weights)

    def _plan(self) -> tuple[dict[str, float], int]:
        """Gradients of a step in which requests say their plans, and pairs of nodes yes or no.

        Returns:
            As :meth:`_align`.
        """
        rows, hidden = self.rows["train"], self._hidden()
        pairs, labels = self._pairs(hidden)
        drawn = self._next(len(rows.texts))
        shown = self._shown(drawn).take(self.world.share(range(len(drawn))))
        batch = self.world.share(drawn)
        weights = [self.loss.weight(rows.plans[row]) for row in batch]
        record = {"train_loss": 0.0}
        for number, (part, share) in enumerate(self._parts(weights)):
            some, asked = [batch[i] for i in part], pairs if number == 0 else None
            with self._precision():
                layers = self._layers(hidden)
            loss, logits = self._planning_loss(rows, shown.take(part), some, layers, asked)
            loss = loss * share
            record["train_loss"] += loss.item()
            if number == 0 and labels.numel():
                mdpl = F.binary_cross_entropy_with_logits(logits, labels)
                record["mdpl_loss"] = mdpl.item()
                loss = loss + self.config.mdpl_weight * mdpl
            torch.autograd.backward(loss)
        record["train_loss"] = self._mean(record["train_loss"], weights)
        return record, self._weight(weights)

    @staticmethod
    def _weight(weights: Sequence[int]) -> int:
        """Of this process's mean among those of the others; rows without a choice count once."""
        return max(1, sum(weights)) if weights else 0

    def _mean(self, value: float, weights: Sequence[int]) -> float:
        """Mean over the choices of all processes."""
        weight = self._weight(weights)
        summed, count = self.world.total([value * weight, weight])
        return summed / count

    def _parts(self, weights: Sequence[int]) -> list[tuple[list[int], float]]:
        """Places of a step's rows, one pass each, with the share of the pass in the whole mean."""
        size, total = self.config.batch_size, max(1, sum(weights))
        places = [
            list(range(at, min(at + size, len(weights)))) for at in range(0, len(weights), size)
        ]
        return [(part, sum(weights[i] for i in part) / total) for part in places]

    def _shown(self, batch: Sequence[int]) -> Readings:
        """What the step tokens of training rows say: honest plans, gold ones, disturbed ones.

        Gold plans alone would teach the LLM to copy whatever stands there.
        """
        config, readings = self.config, self.readings["train"].take(batch)
        drawn = torch.rand(len(batch), 2, generator=self.generator).tolist()
        plans = []
        for i, (row, (honest, spoilt)) in enumerate(zip(batch, drawn, strict=True)):
            plan = self.rows["train"].plans[row]
            if honest < config.honest_share:
                plan = [tool for tool in readings.plans[i].tolist() if tool >= 0]
            elif spoilt < config.disturbed_share:
                plan = disturbed(plan, readings.candidates[i].tolist(), self.generator)
            plans.append(plan)
        return replace(readings, plans=padded_plans(plans).to(readings.plans.device))

    def _planning_loss(
        self,
        rows: Rows,
        readings: Readings,
        batch: list[int],
        layers: list[Tensor],
        pairs: Int[Tensor, "pairs 2"] | None = None,
    ) -> tuple[Tensor, Tensor]:
        x, nodes = rows.x[batch].float().to(self.device), None
        with self._precision():
            pieces = self.tokens.graph_pieces(x, layers, readings)
            if pairs is not None and pairs.size(0):
                nodes = self.tokens.node_pieces(layers, pairs)
        plans, texts = [rows.plans[row] for row in batch], [rows.texts[row] for row in batch]
        return self.loss(texts, pieces, plans, nodes, readings.candidates.tolist())

    def _precision(self) -> AbstractContextManager[Any]:
        """Matrix products of the graph side in bfloat16 where the LLM's are."""
        if self.loss.llm.dtype != torch.bfloat16:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _hidden(self) -> Tensor:
        return mask_edges(self.graph.edge_index.size(1), self.config.mask_rate, self.generator)

    def _layers(self, hidden: Tensor) -> list[Tensor]:
        """Tool states with some edges hidden."""
        return self.tokens.encode_tools(
            self.tool_x,
            self.graph.edge_index[:, ~hidden].to(self.device),
            self.graph.edge_counts[~hidden].to(self.device),
        )

    def _pairs(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Some hidden edges and as many pairs without an edge, with their labels."""
        index, count = self.graph.edge_index, self.config.mdpl_pairs
        found = index[:, hidden]
        chosen = torch.randperm(found.size(1), generator=self.generator)
        yes = found[:, chosen[: count if self.config.ablation.mdpl else 0]]
        no = sample_negatives(index, self.tool_x.size(0), yes.size(1), self.generator)
        labels = torch.cat([torch.ones(yes.size(1)), torch.zeros(no.size(1))])
        return torch.cat([yes, no], dim=1).T.to(self.device), labels.to(self.device)

    def _next(self, count: int) -> list[int]:
        """The next rows of a random order, drawn anew when it is used up."""
        if not self.order:
            self.order = torch.randperm(count, generator=self.generator).tolist()
        size = self.config.batch_size * self.config.accumulate
        batch, self.order = self.order[:size], self.order[size:]
        return batch

    def _learning_rate(self) -> float:
        """In each stage a linear rise, then half a cosine."""
        config = self.config
        aligning = self.step < config.align_steps
        step = self.step if aligning else self.step - config.align_steps
        steps = config.align_steps if aligning else config.plan_steps
        rise = min(1.0, (step + 1) / max(1.0, WARMUP * steps))
        fall = (1 + math.cos(math.pi * step / steps)) / 2
        return config.learning_rate * rise * (0.02 + 0.98 * fall)
