"""Trains GTool's graph readout: one loop, reproducible to the bit and resumable."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.candidates import Candidates, RequestVectors, find_candidates
from models.decoder import plan_agreement
from models.dependency import mask_edges, mdpl_auc, mdpl_loss, sample_negatives
from models.distributed import World
from models.edges import EdgeTable, Evidence, row_evidence, tool_use
from models.errors import GraphMismatch, NotEnoughData
from models.gtool import (
    PLAN_BATCH,
    GTool,
    GToolConfig,
    Member,
    ToolStates,
    graph_edges,
    graph_lexicon,
)
from models.lexicon import Lexicon
from models.memory import PAD, Recalled, padded_plans
from models.resume import read_state, restore_weights, weight_tensors, write_state
from models.splits import MIN_VALIDATION
from models.types import Example, Link, ToolGraph

MIN_TRAIN = 8
"""Fewest training examples."""

WARMUP_EPOCHS = 2
"""Epochs over which the learning rate rises to its peak; half a cosine leads down to 2 % of it."""

TEMPERATURES = (1.0, 0.5, 2.0)
"""What log probabilities may be divided by before plans are ranked by agreement."""

TEMPERATURE_GAIN = 0.002
"""Gain on validation (0..1) that a temperature other than 1 needs."""

SPARE = 3
"""Times the nearest requests of a training row that are kept for those that a step forgets."""

RIDGE = 1e-3
"""Keeps the slope of the calibration near 0 where all scores are alike."""

OnEpoch = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True)
class TrainResult:
    """What a training leaves behind.

    Attributes:
        model: The model with its best weights, in eval mode, on the CPU.
        config: The configuration with ``max_length`` filled in.
        history: One record an epoch, of all members one after the other: train_loss, mdpl_loss,
            mdpl_auc (absent where there was no hidden edge), learning_rate, and n_f1, l_f1
            (adjacent pairs), ned on validation.
        best_epoch: 0-based epoch of the last member's weights.
        num_skipped: Examples left out because a tool of theirs is not in the graph.
        weights_hash: Hash of the model's weights, see :func:`weights_hash`.
    """

    model: GTool
    config: GToolConfig
    history: list[dict[str, float]]
    best_epoch: int
    num_skipped: int
    weights_hash: str


def weights_hash(state: dict[str, Tensor]) -> str:
    """Sha256 over names, types, shapes and bytes of all tensors, in name order."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def train_gtool(
    graph: ToolGraph,
    tool_x: Float[Tensor, "num_tools text_channels"],
    examples: Sequence[Example],
    vectors: RequestVectors,
    config: GToolConfig,
    *,
    seed: int,
    device: str | torch.device = "cpu",
    on_epoch: OnEpoch | None = None,
    resume_dir: Path | None = None,
    code_version: str = "",
) -> TrainResult:
    """Train GTool's graph readout on a graph and its training rows.

    In use a request meets no evidence of its own: neither itself nor, where the split keeps them
    apart, rows of its group. A training row must not either. So the memory answers for each row
    as if it had never met the row's group; batches are drawn group by group; and each step sees
    the graph as if the batch's groups had not been mined. What that leaves out, and a random share
    besides, are the hidden edges of missing-dependency prediction (GTool, section 3.2).

    A tool that is added after training has no past at all. So that plans hold such tools too, each
    step takes a random share of all tools for new: without edges, use, votes or relevance, and
    without the past plans that hold them (cf. Volkovs et al., DropoutNet, 2017, on cold starts of
    recommenders).

    In a world of several processes (:class:`~models.distributed.World`) each takes its share of
    every batch.

    Args:
        graph: Mined from the rows of both splits.
        tool_x: Text vectors of its tools.
        examples: Rows of the splits ``train`` and ``validation``; others are ignored. Those with a
            tool outside the graph are skipped.
        vectors: Text vectors of the requests of all examples.
        config: Sizes, rates, epochs.
        seed: Of weights, order, masks and dropout; the global random state is untouched.
        device: Where to train. Bit-equal repetition is promised for the CPU.
        on_epoch: Called with the epoch and its record once its state is safe. Not called again
            for epochs that an earlier, interrupted run has done.
        resume_dir: Where the state of a training is kept after each epoch and looked for at the
            start; a state of other data, configuration, seed or code is ignored.
        code_version: What else should make a stored state stale.

    Raises:
        NotEnoughData: Fewer than 8 training or 2 validation examples.
        GraphMismatch: Vectors and texts do not match in number.
    """
    rows = _split_rows(graph, tool_x, examples, vectors, config)
    config = replace(config, max_length=config.max_length or rows.train.plans.size(1))
    mark = _fingerprint(graph, tool_x, rows, config, seed, str(device), code_version)
    with random_state(seed, torch.device(device)):
        run = _Run(graph, tool_x, rows, config, seed, torch.device(device))
        if resume_dir is not None:
            run.read(resume_dir, mark)
        while not run.finished:
            record = run.train_epoch()
            record.update(run.validate())
            run.keep_best(record)
            if resume_dir is not None and run.world.first:
                run.write(resume_dir, mark)
            if on_epoch is not None:
                on_epoch(len(run.history) - 1, record)
        model = run.best_model()
    digest = weights_hash(model.state_dict())
    run.world.check_same("the weights after training", digest)
    return TrainResult(model, config, run.history, run.best_epoch, rows.num_skipped, digest)


class _Part(NamedTuple):
    """The rows of one split; ``tools`` and ``links`` as mined, ``plans`` as learnt."""

    texts: list[str]
    groups: list[str]
    tools: list[list[int]]
    links: list[tuple[Link, ...]]
    vectors: RequestVectors
    plans: Tensor

    @property
    def x(self) -> Tensor:
        return self.vectors.x

    def to(self, device: torch.device) -> "_Part":
        return self._replace(vectors=self.vectors.to(device), plans=self.plans.to(device))


class _Rows(NamedTuple):
    """Both splits, and how many examples named a foreign tool."""

    train: _Part
    validation: _Part
    num_skipped: int


def _split_rows(
    graph: ToolGraph,
    tool_x: Tensor,
    examples: Sequence[Example],
    vectors: RequestVectors,
    config: GToolConfig,
) -> _Rows:
    """Check what came and turn it into tensors; empty plans teach nothing."""
    if tool_x.size(0) != graph.num_tools or vectors.x.size(0) != len(examples):
        raise GraphMismatch(
            f"expected vectors of {graph.num_tools} tools and {len(examples)} requests, got "
            f"{tool_x.size(0)} and {vectors.x.size(0)}; embed the texts of this very graph and set"
        )
    chosen, num_skipped = check_examples(graph, examples)
    parts = []
    for name in ("train", "validation"):
        rows = [examples[row] for row in chosen[name]]
        tools = [[graph.index[key] for key in row.tools] for row in rows]
        plans = padded_plans(tools)
        if name == "train" and config.max_length is not None:
            plans = plans[:, : config.max_length]
        texts, groups = [row.request for row in rows], [row.group or row.id for row in rows]
        links, some = [row.links for row in rows], vectors.rows(chosen[name])
        parts.append(_Part(texts, groups, tools, links, some, plans))
    return _Rows(parts[0], parts[1], num_skipped)


def check_examples(
    graph: ToolGraph, examples: Sequence[Example]
) -> tuple[dict[str, list[int]], int]:
    """Rows of the examples that a training uses, by split, and how many name a foreign tool.

    Raises:
        NotEnoughData: Fewer than 8 training or 2 validation examples have a plan.
    """
    parts: dict[str, list[int]] = {"train": [], "validation": []}
    num_skipped = 0
    for row, example in enumerate(examples):
        if example.split not in parts or not example.tools:
            continue
        if all(key in graph.index for key in example.tools):
            parts[example.split].append(row)
        else:
            num_skipped += 1
    for split, least in (("train", MIN_TRAIN), ("validation", MIN_VALIDATION)):
        if len(parts[split]) < least:
            raise NotEnoughData(
                f"expected at least {least} {split} examples with a plan, got "
                f"{len(parts[split])} ({num_skipped} left out for tools outside the graph); "
                "splits are drawn by tool sequence, so ingest trajectories of more kinds"
            )
    return parts, num_skipped


def _fingerprint(
    graph: ToolGraph,
    tool_x: Tensor,
    rows: _Rows,
    config: GToolConfig,
    seed: int,
    device: str,
    code_version: str,
) -> str:
    """Hash of all that decides what a training does."""
    head = [asdict(config), seed, device, code_version, torch.__version__, graph.keys, graph.texts]
    for part in (rows.train, rows.validation):
        head.append([part.texts, part.groups, part.tools, part.links])
    head.append(World.current().size)
    tensors = {"x": tool_x, "index": graph.edge_index, "counts": graph.edge_counts}
    for name, part in (("train", rows.train), ("validation", rows.validation)):
        tensors |= {f"{name}_x": part.x, f"{name}_clauses": part.vectors.clauses}
        tensors[f"{name}_plans"] = part.plans
    text = json.dumps(head, sort_keys=True) + weights_hash(tensors)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def random_state(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators for dropout and initial weights, and give them back after.

    On the CPU, sums whose order depends on the threads are ruled out too: they would change the
    last bits from run to run.
    """
    devices = [device] if device.type == "cuda" else []
    strict = torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(strict or device.type == "cpu")
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(strict)


class _Run:
    """The state of one training, and the steps that change it."""

    def __init__(
        self,
        graph: ToolGraph,
        tool_x: Tensor,
        rows: _Rows,
        config: GToolConfig,
        seed: int,
        device: torch.device,
    ) -> None:
        self.config, self.device, self.world = config, device, World.current()
        self.train, self.validation = rows.train.to(device), rows.validation.to(device)
        self.tool_x = tool_x.float().to(device)
        self.lexicon: Lexicon = graph_lexicon(graph)
        num_tools = graph.num_tools
        self.evidence = _evidence(rows.train, num_tools)
        mined = graph_edges(graph, config.ablation, device)
        self.edges = mined.without(_evidence(rows.validation, num_tools))
        self.generator = torch.Generator().manual_seed(seed)
        self.model = GTool(config, tool_x.size(1), num_tools).to(device)
        recalled = self.model.memory.fit(
            self.train.x, self.train.plans, self.train.groups, config.memory_rows, SPARE
        )
        self.model.use = tool_use(self.train.plans, num_tools)
        self.candidates = self._candidates(self.train, recalled, self.train.plans)
        self.positions = self.candidates.positions(self.train.plans)
        recalled = self.model.memory(self.validation.x)
        self.candidates_to_validate = self._candidates(self.validation, recalled)
        self.rows_of: dict[str, list[int]] = {}
        for row, group in enumerate(self.train.groups):
            self.rows_of.setdefault(group, []).append(row)
        num_train = len(self.train.texts)
        self.batch_size = max(1, min(config.batch_size, num_train // config.min_steps))
        self.steps = math.ceil(num_train / self.batch_size)
        self.history: list[dict[str, float]] = []
        self.score, self.error = 0.0, 0.0
        self.done: list[dict[str, Tensor]] = []
        self._start_member()

    def _start_member(self) -> None:
        """Begin the next member with new weights."""
        member = Member(self.config, self.tool_x.size(1)).to(self.device)
        self.member, self.weights = member, dict(member.named_parameters())
        self.average = {name: w.detach().clone() for name, w in self.weights.items()}
        self.best = {name: w.clone() for name, w in self.average.items()}
        self.optimizer = torch.optim.AdamW(
            self.weights.values(),
            lr=self.config.learning_rate,
            weight_decay=self.config.weight_decay,
        )
        self.epoch = 0
        self.best_epoch, self.best_score = 0, -math.inf

    @property
    def finished(self) -> bool:
        """Whether all members are trained."""
        return len(self.done) == self.config.members

    def train_epoch(self) -> dict[str, float]:
        """One pass over the training rows; returns its mean losses."""
        self.member.train()
        totals: dict[str, list[float]] = {"train_loss": [], "mdpl_loss": [], "mdpl_auc": []}
        for step, batch in enumerate(self._batches()):
            rate = self._learning_rate(self.epoch * self.steps + step)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            for name, value in self._step(batch).items():
                totals[name].append(value)
            self._average_weights(self.epoch * self.steps + step)
        self.epoch += 1
        record = {name: sum(values) / len(values) for name, values in totals.items() if values}
        return record | {"learning_rate": rate}

    def validate(self) -> dict[str, float]:
        """Strict metrics of the averaged weights on the validation rows."""
        config = replace(self.config, members=1)
        model = self._model([self.average], config)
        found = [
            plan_agreement(plans[:, 0], self.validation.plans[part])
            for part, plans, _ in self._plan(model, self.edges)
        ]
        reached = torch.cat(found)
        n_f1, l_f1, order = reached.mean(dim=0).tolist()
        self.score, self.error = _mean_and_error(reached.mean(dim=1))
        return {"n_f1": n_f1, "l_f1": l_f1, "ned": 1.0 - order}

    def keep_best(self, record: dict[str, float]) -> None:
        """Note the epoch, and its averaged weights unless they are clearly behind the best so far.

        A later epoch wins unless it lies more than one standard error below the best: a small
        validation split would choose by chance. A member ends with its last epoch, or when
        ``patience`` epochs in a row were clearly behind.
        """
        self.history.append(record)
        if self.score >= self.best_score - self.error:
            self.best_epoch = self.epoch - 1
            self.best = {name: w.clone() for name, w in self.average.items()}
        self.best_score = max(self.best_score, self.score)
        late = self.epoch - 1 - self.best_epoch >= self.config.patience
        if self.epoch == self.config.epochs or late:
            self.done.append({name: w.clone() for name, w in self.best.items()})
            if not self.finished:
                self._start_member()

    def best_model(self) -> GTool:
        """The chosen weights, with a memory of the training and the validation rows."""
        model = self._model(self.done, self.config)
        self._calibrate(model)
        plans = [self.train.plans.tolist(), self.validation.plans.tolist()]
        both = padded_plans([[t for t in plan if t != PAD] for part in plans for plan in part])
        both = both.to(self.device)
        request_x = torch.cat([self.train.x, self.validation.x])
        groups = self.train.groups + self.validation.groups
        model.memory.fit(request_x, both, groups, self.config.memory_rows)
        model.use = tool_use(both, self.edges.num_tools)
        return model.cpu()

    def write(self, folder: Path, mark: str) -> None:
        """Store the whole state."""
        tensors = {"generator": self.generator.get_state(), "dropout": torch.get_rng_state()}
        if self.device.type == "cuda":
            tensors["dropout_cuda"] = torch.cuda.get_rng_state(self.device)
        for name in self.weights:
            tensors |= {f"average/{name}": self.average[name], f"best/{name}": self.best[name]}
        for number, weights in enumerate(self.done):
            tensors |= {f"done{number}/{name}": weight for name, weight in weights.items()}
        head = {
            "epoch": self.epoch,
            "best_epoch": self.best_epoch,
            "best_score": self.best_score if math.isfinite(self.best_score) else None,
            "history": self.history,
            "done": len(self.done),
        }
        write_state(folder, mark, head, tensors | weight_tensors(self.weights, self.optimizer))

    def read(self, folder: Path, mark: str) -> None:
        """Take up a stored state of this very training; leave anything else alone."""
        state = read_state(folder, mark)
        if state is None:
            return
        head, tensors = state
        restore_weights(self.weights, self.optimizer, tensors, self.device)
        for name in self.weights:
            self.average[name].copy_(tensors[f"average/{name}"])
            self.best[name].copy_(tensors[f"best/{name}"])
        self.done = [
            {name: tensors[f"done{number}/{name}"].to(self.device) for name in self.weights}
            for number in range(head["done"])
        ]
        self.generator.set_state(tensors["generator"])
        torch.set_rng_state(tensors["dropout"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["dropout_cuda"], self.device)
        self.epoch, self.history = head["epoch"], head["history"]
        self.best_epoch = head["best_epoch"]
        self.best_score = -math.inf if head["best_score"] is None else head["best_score"]

    def _batches(self) -> Iterator[list[int]]:
        """All training rows in a random order of groups, in batches."""
        groups = list(self.rows_of.values())
        order = torch.randperm(len(groups), generator=self.generator).tolist()
        rows = [row for group in order for row in groups[group]]
        for start in range(0, len(rows), self.batch_size):
            yield rows[start : start + self.batch_size]

    def _step(self, batch: list[int]) -> dict[str, float]:
        """One step: hide edges, plan the batch, tell hidden edges from none."""
        config, generator = self.config, self.generator
        hidden, edges, use = self._honest(batch)
        new = torch.rand(use.size(0), generator=generator).to(self.device) < config.cold_rate
        edges = edges.keep(~new[edges.edge_index].any(dim=0))
        use = use.masked_fill(new.unsqueeze(1), 0.0)
        pairs = self.edges.edge_index[:, hidden]
        chosen = torch.randperm(pairs.size(1), generator=generator)[: config.mdpl_pairs]
        pairs = pairs[:, chosen.to(self.device)]
        others = sample_negatives(
            self.edges.edge_index.cpu(), self.edges.num_tools, pairs.size(1), generator
        ).to(self.device)

        self.optimizer.zero_grad()
        mine = self.world.share(batch)
        planned = sum(int((self.train.plans[row] != PAD).sum()) + 1 for row in mine)
        losses: list[float] = []
        for part in _parts(mine, config.accumulate):
            with self._autocast():
                tools = self.member.encode_tools(self.tool_x, edges, use)
                loss = self._planning(part, tools, new) / max(1, planned)
                losses.append(loss.item())
                if len(losses) == 1:
                    state = tools.layers[-1]
                    yes, no = (self.member.dependency(state, p) for p in (pairs, others))
                    dependency = mdpl_loss(yes.float(), no.float())
                    if config.ablation.mdpl:
                        loss = loss + config.mdpl_weight * dependency
            torch.autograd.backward(loss)
        self.world.average(self.weights.values(), planned)
        torch.nn.utils.clip_grad_norm_(self.weights.values(), config.max_grad_norm)
        self.optimizer.step()
        record = {"train_loss": sum(losses), "mdpl_loss": dependency.item()}
        auc = mdpl_auc(yes.float(), no.float())
        return record if auc is None else record | {"mdpl_auc": auc}

    def _honest(self, batch: list[int]) -> tuple[Tensor, EdgeTable, Tensor]:
        """The graph and the use of tools without the batch's groups.

        Returns:
            (which edges are hidden: those and a random share; what is left, use of each tool).
        """
        groups = dict.fromkeys(self.train.groups[row] for row in batch)
        gone = [row for group in groups for row in self.rows_of[group]]
        left = self.edges.without([self.evidence[row] for row in gone])
        rate = self.config.mask_rate if self.config.ablation.mdpl else 0.0
        masked = mask_edges(self.edges.code.numel(), rate, self.generator).to(self.device)
        stays = torch.isin(self.edges.code, left.code)
        use = self.model.use - tool_use(self.train.plans[gone], self.edges.num_tools)
        return masked | ~stays, left.keep(~masked[stays]), use

    def _planning(self, rows: list[int], tools: ToolStates, new: Tensor) -> Tensor:
        """Summed loss of these rows over all choices of their plans; 0 without rows."""
        if not rows:
            return tools.layers[-1].sum() * 0.0
        some = torch.tensor(rows, device=self.device)
        plans = self.positions[some]
        plans = plans[:, : int((plans != PAD).sum(dim=1).max())]
        candidates = self.candidates.rows(some).forget(new, self.config.neighbours)
        log_probs = self.member.log_probs(tools, candidates, plans)
        return _planning_loss(log_probs.float(), plans, self.config.label_smoothing)

    def _autocast(self) -> torch.autocast:
        wanted = self.config.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=wanted)

    def _candidates(
        self, part: _Part, recalled: Recalled, gold: Tensor | None = None
    ) -> Candidates:
        return find_candidates(
            part.texts,
            part.vectors,
            self.tool_x,
            recalled,
            self.edges,
            self.lexicon,
            self.config.shortlist,
            gold=gold,
        )

    def _plan(
        self, model: GTool, edges: EdgeTable
    ) -> Iterator[tuple[slice, Int[Tensor, "rows beams length"], Float[Tensor, "rows beams"]]]:
        """Ranked plans of the validation rows, part by part."""
        with torch.no_grad():
            tools = model.encode_tools(self.tool_x, edges)
        for start in range(0, len(self.validation.texts), PLAN_BATCH):
            part = slice(start, start + PLAN_BATCH)
            yield part, *model.rank_plans(tools, self.candidates_to_validate.rows(part))

    def _calibrate(self, model: GTool) -> None:
        """Choose the temperature that plans best, and fit scores to what plans reach."""
        best = -math.inf
        for temperature in TEMPERATURES:
            trial = self._model(self.done, self.config)
            trial.temperature.fill_(temperature)
            parts = [
                (plan_agreement(plans[:, 0], self.validation.plans[part]).mean(dim=1), scores[:, 0])
                for part, plans, scores in self._plan(trial, self.edges)
            ]
            reached, score = (torch.cat(part).double() for part in zip(*parts, strict=True))
            if reached.mean().item() > best + TEMPERATURE_GAIN:
                best = reached.mean().item()
                spread = score - score.mean()
                slope = (spread @ reached / (spread.square().sum() + RIDGE)).clamp(0.0, 1.0)
                line = torch.stack([reached.mean() - slope * score.mean(), slope])
                model.temperature.copy_(trial.temperature)
                model.calibration.copy_(line.float())

    def _learning_rate(self, step: int) -> float:
        """Linear rise, then half a cosine."""
        rise = min(1.0, (step + 1) / (WARMUP_EPOCHS * self.steps))
        fall = (1 + math.cos(math.pi * step / (self.config.epochs * self.steps))) / 2
        return self.config.learning_rate * rise * (0.02 + 0.98 * fall)

    @torch.no_grad()
    def _average_weights(self, step: int) -> None:
        """Move the averaged weights; early steps, when the weights run, are forgotten sooner."""
        decay = min(self.config.ema_decay, (1 + step) / (10 + step))
        for name, weight in self.weights.items():
            self.average[name].lerp_(weight, 1 - decay)

    def _model(self, members: list[dict[str, Tensor]], config: GToolConfig) -> GTool:
        """A model of its own with these members and the present memory, in eval mode."""
        memory = self.model.memory
        shape = (memory.requests.size(0), memory.used.numel(), memory.plans.size(1))
        model = GTool(config, self.tool_x.size(1), memory.num_tools, shape).to(self.device)
        state = {k: v for k, v in self.model.state_dict().items() if not k.startswith("members.")}
        for number, weights in enumerate(members):
            state |= {f"members.{number}.{name}": w for name, w in weights.items()}
        model.load_state_dict(state)
        return model.eval()


def _mean_and_error(values: Float[Tensor, " rows"]) -> tuple[float, float]:
    """Mean and its standard error."""
    return values.mean().item(), (values.std(correction=0) / values.numel() ** 0.5).item()


def _evidence(part: _Part, num_tools: int) -> list[Evidence]:
    """What each row has added to the graph."""
    pairs = zip(part.tools, part.links, strict=True)
    return [row_evidence(tools, links, num_tools) for tools, links in pairs]


def _parts(rows: list[int], count: int) -> list[list[int]]:
    """Rows in at most so many parts of nearly equal size, none of them empty but the first."""
    size = max(1, math.ceil(len(rows) / count))
    return [rows[start : start + size] for start in range(0, max(1, len(rows)), size)]


def _planning_loss(
    log_probs: Float[Tensor, "batch steps choices"],
    plans: Int[Tensor, "batch length"],
    smoothing: float,
) -> Float[Tensor, ""]:
    """Sum of the negative log-likelihood of all choices of the plans, END included, smoothed."""
    end = log_probs.size(2) - 1
    length = (plans != PAD).sum(dim=1)
    target = torch.cat([plans, plans.new_full((plans.size(0), 1), PAD)], dim=1)
    target = target.where(target != PAD, end)
    counts = torch.arange(target.size(1), device=plans.device) <= length.unsqueeze(1)
    right = log_probs.gather(2, target.unsqueeze(2)).squeeze(2)
    legal = ~log_probs.isneginf()
    spread = log_probs.masked_fill(~legal, 0.0).sum(dim=2) / legal.sum(dim=2)
    loss = -(1 - smoothing) * right - smoothing * spread
    return loss[counts].sum()
