"""Trains GTool's LLM readout: graph tokens alone, in stages, over the answer tokens alone."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from models.dependency import mask_edges, sample_negatives
from models.errors import TrainingDiverged, UnusableLLM
from models.graph_tokens import GraphTokens, LLMConfig, new_graph_tokens
from models.gtool import GTool
from models.llm import FrozenLLM, Reader
from models.llm_planner import Catalogue, request_limit, request_vectors
from models.memory import RequestMemory
from models.prompt import DEPENDENCY, NAMING, frame, plan_tokens
from models.resume import read_state, restore_weights, weight_tensors, write_state
from models.training import check_examples, padded_plans, random_state, weights_hash
from models.trie import ROOT, TokenTrie
from models.types import Example, ToolGraph

WARMUP = 0.05
"""Share of a stage's steps in which the learning rate rises; half a cosine leads down again."""

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


class Target(NamedTuple):
    """Where an answer is judged: places in its tokens, legal tokens there, and the right one."""

    places: list[int]
    legal: list[list[int]]
    right: list[int]


def choices(
    plan: Sequence[int],
    trie: TokenTrie,
    lines: Sequence[Sequence[int]],
    end: int,
    max_length: int,
) -> Target:
    """The places of an answer where the trie leaves a choice (see ``constrained_search``).

    Args:
        plan: Tool rows.
        trie: The tools that may be written.
        lines: Tokens of each tool's line.
        end: Token that ends an answer.
        max_length: Most tools of a plan.
    """
    target = Target([], [], [])
    steps = [
        (node, number, token)
        for number, row in enumerate(plan)
        for node, token in zip(trie.walk(lines[row]), lines[row], strict=True)
    ]
    for place, (node, number, token) in enumerate([*steps, (ROOT, len(plan), end)]):
        legal = trie.legal(node, number, end, max_length)
        if len(legal) > 1:
            target.places.append(place)
            target.legal.append(legal)
            target.right.append(legal.index(token))
    return target


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
    model: GTool,
    graph: ToolGraph,
    tool_x: Float[Tensor, "num_tools text_channels"],
    examples: Sequence[Example],
    request_x: Float[Tensor, "num_examples text_channels"],
    config: LLMConfig,
    *,
    seed: int,
    on_step: OnStep | None = None,
    resume_dir: Path | None = None,
    code_version: str = "",
) -> LLMTrainResult:
    """Train graph tokens for a frozen LLM, after the graph readout was trained.

    First every tool's token learns to say the tool's name (alignment), then request and candidate
    tokens learn to say plans, with missing-dependency prediction as a yes or no of the LLM beside
    it (GTool, section 3.2 and 3.3). The LLM's weights never change.

    Args:
        llm: The frozen language model; it also decides the device.
        model: The trained graph readout: its encoder is where the tokens start, its memory names
            the candidates.
        graph: Graph mined from the training rows.
        tool_x: Text vectors of its tools.
        examples: Requests with gold plans; splits other than train and validation are ignored.
        request_x: Text vectors of the examples' requests.
        config: Sizes, rates and steps.
        seed: Of initial weights, order, masks and negatives.
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
    parts, _ = check_examples(graph, examples)
    plans = {
        name: [[graph.index[key] for key in examples[row].tools] for row in rows]
        for name, rows in parts.items()
    }
    longest = max(map(len, plans["train"]))
    config = replace(config, max_length=config.max_length or longest)
    plans = {name: [plan[: config.max_length] for plan in rows] for name, rows in plans.items()}
    rows = {
        name: _Rows(
            [examples[row].request for row in parts[name]], request_x[parts[name]], plans[name]
        )
        for name in parts
    }
    mark = _fingerprint(llm, model, graph, tool_x, rows, config, seed, code_version)
    with random_state(seed, llm.device):
        run = _Run(llm, model, graph, tool_x, rows, config, seed)
        if resume_dir is not None:
            run.read(resume_dir, mark)
        while run.step < config.align_steps + config.plan_steps:
            record = run.train_step()
            ends = run.step in (config.align_steps, config.align_steps + config.plan_steps)
            if ends or run.step % config.validate_every == 0:
                record |= run.validate()
            if ends or run.step % config.save_every == 0:
                if resume_dir is not None:
                    run.write(resume_dir, mark)
                if on_step is not None:
                    on_step(run.step, record)
        tokens = run.best_tokens()
    return LLMTrainResult(tokens, config, run.history, weights_hash(tokens.state_dict()))


class _Rows(NamedTuple):
    """Requests of one split: texts, text vectors, plans as tool rows."""

    texts: list[str]
    x: Tensor
    plans: list[list[int]]


def _fingerprint(
    llm: FrozenLLM,
    model: GTool,
    graph: ToolGraph,
    tool_x: Tensor,
    rows: dict[str, _Rows],
    config: LLMConfig,
    seed: int,
    code_version: str,
) -> str:
    """Hash of all that decides what a training does."""
    texts = {name: [part.texts, part.plans] for name, part in rows.items()}
    head = [asdict(config), llm.digest, str(llm.device), str(llm.dtype), seed, code_version]
    tensors = {"x": tool_x, "index": graph.edge_index, "counts": graph.edge_counts}
    tensors |= {name: part.x for name, part in rows.items()}
    text = json.dumps([head, torch.__version__, graph.keys, texts], sort_keys=True)
    text += weights_hash(tensors) + weights_hash(model.state_dict())
    return hashlib.sha256(text.encode()).hexdigest()


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
        self._kept: dict[str, Tensor] = {}

    def behind_requests(self, texts: Sequence[str]) -> tuple[Reader, list[int]]:
        """A reader that has read these requests, and their segments."""
        distinct = list(dict.fromkeys(texts))
        reader = self.reader.fork()
        keys = [self._keys(text) for text in distinct]
        segments = reader.attach([reader.root] * len(distinct), keys)
        made = dict(zip(distinct, segments, strict=True))
        return reader, [made[text] for text in texts]

    def _keys(self, text: str) -> Tensor:
        """Keys of a request, which is read alone: to the last bit they depend on nothing else."""
        keys = self._kept.get(text)
        if keys is None:
            reader = self.reader.fork()
            with torch.no_grad():
                vectors = request_vectors(self.llm, text, self.limit)
                (segment,), _ = reader.read([(reader.root, vectors)], wanted=[])
            keys = reader.keys_of(segment)
            if keys.nbytes <= self._room:
                self._room -= keys.nbytes
                self._kept[text] = keys
        return keys

    def __call__(
        self,
        texts: Sequence[str],
        graph_pieces: Sequence[Float[Tensor, "tokens width"]],
        plans: Sequence[Sequence[int]],
        node_pairs: Float[Tensor, "pairs pair_tokens width"] | None = None,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, " pairs"]]:
        """Planning loss, and the LLM's logit of yes against no for each pair of node tokens.

        Args:
            texts: Requests.
            graph_pieces: What the graph says of each.
            plans: Their gold plans as tool rows.
            node_pairs: Two node tokens a pair, see ``GraphTokens.node_pieces``.
        """
        reader, segments = self.behind_requests(texts)
        lines, end = self.catalogue.names.lines, self.frame.end
        answers = [plan_tokens(lines, plan, end) for plan in plans]
        pieces, wanted, at = [], [], 0
        trie, longest = self.catalogue.trie, self.config.max_length or max(map(len, plans))
        targets = [choices(plan, trie, lines, end, longest) for plan in plans]
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
            target = choices([row], self.catalogue.trie, lines, self.frame.end, max_length=1)
            first = at + piece.size(0) - len(answer)
            wanted += [first + place for place in target.places]
            targets.append(target)
            at += piece.size(0)
        _, logits = reader.read(pieces, wanted)
        return choice_loss(logits, targets)


class _Run:
    """The state of one training, and the steps that change it."""

    def __init__(
        self,
        llm: FrozenLLM,
        model: GTool,
        graph: ToolGraph,
        tool_x: Tensor,
        rows: dict[str, _Rows],
        config: LLMConfig,
        seed: int,
    ) -> None:
        self.config, self.device, self.rows = config, llm.device, rows
        self.tool_x = tool_x.float().to(self.device)
        self.edge_index, self.edge_counts = graph.edge_index, graph.edge_counts
        self.generator = torch.Generator().manual_seed(seed)
        self.loss = PlanningLoss(llm, Catalogue.of(llm, graph), config)
        lines = self.loss.catalogue.names.lines
        self.tokens = new_graph_tokens(config, model, llm, lines).to(self.device)
        self.memory = {name: said.to(self.device) for name, said in _votes(model, rows).items()}
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
        self.recent: dict[str, list[float]] = {}

    def train_step(self) -> dict[str, float]:
        """One step of the stage that is on; its losses."""
        aligning = self.step < self.config.align_steps
        if self.step == self.config.align_steps:
            self.order = []
        rate = self._learning_rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["share"]
        loss, record = self._align() if aligning else self._plan()
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
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
        rows, memory = self.rows["validation"], self.memory["validation"]
        layers = self._layers(torch.zeros(self.edge_index.size(1), dtype=torch.bool))
        count, total = min(self.config.validation_rows, len(rows.texts)), 0.0
        for start in range(0, count, self.config.batch_size):
            some = range(start, min(start + self.config.batch_size, count))
            total += self._planning_loss(rows, memory, list(some), layers)[0].item() * len(some)
        means = {name: sum(values) / len(values) for name, values in self.recent.items()}
        record = {"step": float(self.step), **means, "validation_loss": total / count}
        self._require_number("validation_loss", record["validation_loss"])
        self.history.append(record)
        self.recent = {}
        if record["validation_loss"] < self.best_loss:
            self.best_loss = record["validation_loss"]
            self.best = {name: w.detach().clone() for name, w in self.weights.items()}
        return {"validation_loss": record["validation_loss"]}

    def _require_number(self, name: str, value: float) -> None:
        if not math.isfinite(value):
            raise TrainingDiverged(
                f"expected {name} to be a number after step {self.step}, got {value}; lower the "
                f"learning rate ({self.config.learning_rate:g}) or look for odd data"
            )

    def best_tokens(self) -> GraphTokens:
        """The tokens with the chosen weights."""
        self.tokens.load_state_dict(self.tokens.state_dict() | self.best)
        return self.tokens.cpu().eval()

    def write(self, folder: Path, mark: str) -> None:
        """Store the whole state."""
        tensors = {f"best/{name}": weight for name, weight in self.best.items()}
        tensors["generator"] = self.generator.get_state()
        head = {
            "step": self.step,
            "order": self.order,
            "history": self.history,
            "best_loss": self.best_loss if math.isfinite(self.best_loss) else None,
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
        self.recent = head["recent"]

    def _align(self) -> tuple[Tensor, dict[str, float]]:
        """Node tokens of some tools say their names."""
        rows = self._next(self.tool_x.size(0))
        layers = self._layers(self._hidden())
        nodes = self.tokens.node_pieces(layers, torch.tensor(rows, device=self.device)[:, None])
        loss = self.loss.naming_loss(nodes, rows)
        return loss, {"align_loss": loss.item()}

    def _plan(self) -> tuple[Tensor, dict[str, float]]:
        """Requests say their plans, pairs of nodes whether one leads to the other."""
        config, rows = self.config, self.rows["train"]
        hidden = self._hidden()
        layers = self._layers(hidden)
        pairs, labels = self._pairs(hidden)
        batch = self._next(len(rows.texts))
        loss, logits = self._planning_loss(rows, self.memory["train"], batch, layers, pairs)
        record = {"train_loss": loss.item()}
        if labels.numel():
            mdpl = F.binary_cross_entropy_with_logits(logits, labels)
            record["mdpl_loss"] = mdpl.item()
            loss = loss + config.mdpl_weight * mdpl
        return loss, record

    def _planning_loss(
        self,
        rows: _Rows,
        memory: Tensor,
        batch: list[int],
        layers: list[Tensor],
        pairs: Int[Tensor, "pairs 2"] | None = None,
    ) -> tuple[Tensor, Tensor]:
        x = rows.x[batch].float().to(self.device)
        pieces = self.tokens.graph_pieces(x, layers, memory[batch])
        nodes = None
        if pairs is not None and pairs.size(0):
            nodes = self.tokens.node_pieces(layers, pairs)
        plans = [rows.plans[row] for row in batch]
        return self.loss([rows.texts[row] for row in batch], list(pieces), plans, nodes)

    def _hidden(self) -> Tensor:
        return mask_edges(self.edge_index.size(1), self.config.mask_rate, self.generator)

    def _layers(self, hidden: Tensor) -> list[Tensor]:
        """Tool states with some edges hidden."""
        return self.tokens.encode_tools(
            self.tool_x,
            self.edge_index[:, ~hidden].to(self.device),
            self.edge_counts[~hidden].to(self.device),
        )

    def _pairs(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Some hidden edges and as many pairs without an edge, with their labels."""
        found = self.edge_index[:, hidden]
        chosen = torch.randperm(found.size(1), generator=self.generator)[: self.config.mdpl_pairs]
        yes = found[:, chosen]
        no = sample_negatives(self.edge_index, self.tool_x.size(0), yes.size(1), self.generator)
        labels = torch.cat([torch.ones(yes.size(1)), torch.zeros(no.size(1))])
        return torch.cat([yes, no], dim=1).T.to(self.device), labels.to(self.device)

    def _next(self, count: int) -> list[int]:
        """The next rows of a random order, drawn anew when it is used up."""
        if not self.order:
            self.order = torch.randperm(count, generator=self.generator).tolist()
        size = self.config.batch_size
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


@torch.no_grad()
def _votes(model: GTool, rows: dict[str, _Rows]) -> dict[str, Tensor]:
    """What the memory says of each row, of training rows without themselves."""
    train, config = rows["train"], model.config
    memory = RequestMemory(
        model.text_channels,
        model.memory.num_tools,
        scale=config.memory_scale,
        ridge=config.memory_ridge,
    )
    said = memory.fit_evenly(train.x.float(), padded_plans(train.plans), config.memory_rows)
    return {"train": said, "validation": memory(rows["validation"].x.float())}
