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

from models.decoder import PAD, EdgeRows, plan_agreement
from models.dependency import mask_edges, mdpl_auc, mdpl_loss, sample_negatives
from models.errors import GraphMismatch, NotEnoughData
from models.gtool import PLAN_BATCH, GTool, GToolConfig
from models.resume import read_state, restore_weights, weight_tensors, write_state
from models.splits import MIN_VALIDATION
from models.types import Example, ToolGraph

MIN_TRAIN = 8
"""Fewest training examples."""

SCORE_NOISE = 0.003
"""A later epoch wins unless its validation score (0..1) lies this much below the best one."""

WARMUP_EPOCHS = 2
"""Epochs over which the learning rate rises to its peak; half a cosine leads down to 2 % of it."""

OnEpoch = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True)
class TrainResult:
    """What a training leaves behind.

    Attributes:
        model: The model with its best weights, in eval mode, on the CPU.
        config: The configuration with ``max_length`` filled in.
        history: One record an epoch: train_loss, mdpl_loss, mdpl_auc (absent where there was no
            hidden edge), learning_rate, and n_f1, l_f1 (adjacent pairs), ned on validation.
        best_epoch: 0-based epoch of the weights.
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
    request_x: Float[Tensor, "num_examples text_channels"],
    config: GToolConfig,
    *,
    seed: int,
    device: torch.device | str = "cpu",
    on_epoch: OnEpoch | None = None,
    resume_dir: Path | None = None,
    code_version: str = "",
) -> TrainResult:
    """Train on the examples of split ``train``; those of split ``validation`` choose the epoch.

    The request memory holds the training rows while training and, once the epoch is chosen, the
    validation rows too: it is fitted in closed form, with nothing left to choose.

    Args:
        graph: Graph mined from the training rows.
        tool_x: Text vectors of its tools.
        examples: Requests with gold plans; other splits are not looked at.
        request_x: Text vectors of the examples' requests.
        config: Sizes and rates.
        seed: Of initial weights, order, dropout and masks; the global random state is untouched.
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
    rows = _split_rows(graph, tool_x, examples, request_x, config)
    config = replace(config, max_length=config.max_length or rows.train_plans.size(1))
    mark = _fingerprint(graph, tool_x, rows, config, seed, str(device), code_version)
    with random_state(seed, torch.device(device)):
        run = _Run(graph, tool_x, rows, config, seed, torch.device(device))
        if resume_dir is not None:
            run.read(resume_dir, mark)
        while run.epoch < config.epochs:
            record = run.train_epoch()
            record.update(run.validate())
            run.keep_best(record)
            if resume_dir is not None:
                run.write(resume_dir, mark)
            if on_epoch is not None:
                on_epoch(run.epoch - 1, record)
        model = run.best_model()
    return TrainResult(
        model,
        config,
        run.history,
        run.best_epoch,
        rows.num_skipped,
        weights_hash(model.state_dict()),
    )


class _Rows(NamedTuple):
    """Vectors and padded plans of both splits, and how many examples named a foreign tool."""

    train_x: Tensor
    train_plans: Tensor
    validation_x: Tensor
    validation_plans: Tensor
    num_skipped: int


def _split_rows(
    graph: ToolGraph,
    tool_x: Tensor,
    examples: Sequence[Example],
    request_x: Tensor,
    config: GToolConfig,
) -> _Rows:
    """Check what came and turn it into tensors; empty plans teach nothing."""
    if tool_x.size(0) != graph.num_tools or request_x.size(0) != len(examples):
        raise GraphMismatch(
            f"expected vectors of {graph.num_tools} tools and {len(examples)} requests, got "
            f"{tool_x.size(0)} and {request_x.size(0)}; embed the texts of this very graph and set"
        )
    parts, num_skipped = check_examples(graph, examples)
    out: list[Tensor] = []
    for name in ("train", "validation"):
        plans = [[graph.index[key] for key in examples[row].tools] for row in parts[name]]
        out += [request_x[parts[name]].float(), padded_plans(plans)]
    if config.max_length is not None:
        out[1] = out[1][:, : config.max_length]
    return _Rows(out[0], out[1], out[2], out[3], num_skipped)


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


def padded_plans(plans: list[list[int]]) -> Int[Tensor, "rows length"]:
    """Plans as one tensor, padded with -1."""
    length = max(len(plan) for plan in plans)
    return torch.tensor([plan + [PAD] * (length - len(plan)) for plan in plans])


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
    head = [asdict(config), seed, device, code_version, torch.__version__, graph.keys]
    tensors = {f"rows{i}": part for i, part in enumerate(rows[:4])}
    tensors |= {"x": tool_x, "index": graph.edge_index, "counts": graph.edge_counts}
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
        self.config, self.device = config, device
        train_x, train_plans, validation_x, validation_plans = (r.to(device) for r in rows[:4])
        self.rows = _Rows(train_x, train_plans, validation_x, validation_plans, rows.num_skipped)
        self.tool_x = tool_x.float().to(device)
        self.edge_index = graph.edge_index.to(device)
        self.edge_counts = graph.edge_counts.to(device)
        self.edges = EdgeRows.from_edges(self.edge_index, self.edge_counts, graph.num_tools)
        self.generator = torch.Generator().manual_seed(seed)
        self.model = GTool(config, tool_x.size(1), graph.num_tools).to(device)
        self.memory = self.model.memory.fit_evenly(
            self.rows.train_x, self.rows.train_plans, config.memory_rows
        )
        self.weights = dict(self.model.named_parameters())
        self.average = {name: w.detach().clone() for name, w in self.weights.items()}
        self.best = {name: w.clone() for name, w in self.average.items()}
        self.optimizer = torch.optim.AdamW(
            self.weights.values(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        num_train = self.rows.train_x.size(0)
        self.batch_size = max(1, min(config.batch_size, num_train // config.min_steps))
        self.steps = math.ceil(num_train / self.batch_size)
        self.epoch = 0
        self.history: list[dict[str, float]] = []
        self.best_epoch, self.best_score = 0, -math.inf

    def train_epoch(self) -> dict[str, float]:
        """One pass over the training rows; returns its mean losses."""
        self.model.train()
        order = torch.randperm(self.rows.train_x.size(0), generator=self.generator)
        totals: dict[str, list[float]] = {"train_loss": [], "mdpl_loss": [], "mdpl_auc": []}
        for step, batch in enumerate(torch.split(order, self.batch_size)):
            rate = self._learning_rate(self.epoch * self.steps + step)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            for name, value in self._step(batch.to(self.device)).items():
                totals[name].append(value)
            self._average_weights(self.epoch * self.steps + step)
        self.epoch += 1
        record = {name: sum(values) / len(values) for name, values in totals.items() if values}
        return record | {"learning_rate": rate}

    def validate(self) -> dict[str, float]:
        """Strict metrics of the averaged weights on the validation rows."""
        model = self._model_with(self.average)
        tools = model.encode_tools(self.tool_x, self.edge_index, self.edge_counts, self.edges)
        found = []
        for start in range(0, self.rows.validation_x.size(0), PLAN_BATCH):
            part = slice(start, start + PLAN_BATCH)
            plans, _ = model.rank_plans(self.rows.validation_x[part], tools)
            found.append(plan_agreement(plans[:, 0], self.rows.validation_plans[part]))
        n_f1, l_f1, order = torch.cat(found).mean(dim=0).tolist()
        return {"n_f1": n_f1, "l_f1": l_f1, "ned": 1.0 - order}

    def keep_best(self, record: dict[str, float]) -> None:
        """Note the epoch, and its averaged weights if they are as good as the best so far."""
        self.history.append(record)
        score = (record["n_f1"] + record["l_f1"] + 1.0 - record["ned"]) / 3
        if score >= self.best_score - SCORE_NOISE:
            self.best_epoch = self.epoch - 1
            self.best = {name: w.clone() for name, w in self.average.items()}
        self.best_score = max(self.best_score, score)

    def best_model(self) -> GTool:
        """The chosen weights, with a memory of the training and the validation rows."""
        model = self._model_with(self.best)
        plans = [self.rows.train_plans.tolist(), self.rows.validation_plans.tolist()]
        both = padded_plans([[t for t in plan if t != PAD] for part in plans for plan in part])
        request_x = torch.cat([self.rows.train_x, self.rows.validation_x])
        model.memory.fit_evenly(request_x, both.to(self.device), self.config.memory_rows)
        return model.cpu()

    def write(self, folder: Path, mark: str) -> None:
        """Store the whole state."""
        tensors = {"generator": self.generator.get_state(), "dropout": torch.get_rng_state()}
        if self.device.type == "cuda":
            tensors["dropout_cuda"] = torch.cuda.get_rng_state(self.device)
        for name in self.weights:
            tensors |= {f"average/{name}": self.average[name], f"best/{name}": self.best[name]}
        head = {
            "epoch": self.epoch,
            "best_epoch": self.best_epoch,
            "best_score": self.best_score,
            "history": self.history,
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
        self.generator.set_state(tensors["generator"])
        torch.set_rng_state(tensors["dropout"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["dropout_cuda"], self.device)
        self.epoch, self.history = head["epoch"], head["history"]
        self.best_epoch = head["best_epoch"]
        self.best_score = head["best_score"]

    def _step(self, batch: Tensor) -> dict[str, float]:
        """One step: hide edges, plan the batch, tell hidden edges from none."""
        config, num_tools = self.config, self.tool_x.size(0)
        hidden = mask_edges(self.edge_index.size(1), config.mask_rate, self.generator)
        hidden = hidden.to(self.device)
        tools = self.model.encode_tools(
            self.tool_x, self.edge_index[:, ~hidden], self.edge_counts[~hidden], self.edges
        )
        plans = self.rows.train_plans[batch]
        plans = plans[:, : int((plans != PAD).sum(dim=1).max())]
        requests = self.model.encode_requests(self.rows.train_x[batch], tools, self.memory[batch])
        log_probs = self.model.decoder.log_probs(tools.side, requests, plans, leave_own_out=True)
        planning = _planning_loss(log_probs, plans, config.label_smoothing)

        h, positives = tools.layers[-1], self.edge_index[:, hidden]
        negatives = sample_negatives(
            self.edge_index.cpu(), num_tools, positives.size(1), self.generator
        ).to(self.device)
        yes, no = self.model.dependency(h, positives), self.model.dependency(h, negatives)
        dependency = mdpl_loss(yes, no)

        self.optimizer.zero_grad()
        torch.autograd.backward(planning + config.mdpl_weight * dependency)
        torch.nn.utils.clip_grad_norm_(self.weights.values(), config.max_grad_norm)
        self.optimizer.step()
        record = {"train_loss": planning.item(), "mdpl_loss": dependency.item()}
        auc = mdpl_auc(yes, no)
        return record if auc is None else record | {"mdpl_auc": auc}

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

    def _model_with(self, weights: dict[str, Tensor]) -> GTool:
        """A model of its own with these weights and the present memory, in eval mode."""
        memory = self.model.memory
        model = GTool(
            self.config, self.tool_x.size(1), memory.num_tools, memory.requests.size(0)
        ).to(self.device)
        model.load_state_dict(self.model.state_dict() | weights)
        return model.eval()


def _planning_loss(
    log_probs: Float[Tensor, "batch steps choices"],
    plans: Int[Tensor, "batch length"],
    smoothing: float,
) -> Float[Tensor, ""]:
    """Mean negative log-likelihood of all choices of the plans, END included, smoothed."""
    end = log_probs.size(2) - 1
    length = (plans != PAD).sum(dim=1)
    target = torch.cat([plans, plans.new_full((plans.size(0), 1), PAD)], dim=1)
    target = target.where(target != PAD, end)
    counts = torch.arange(target.size(1), device=plans.device) <= length.unsqueeze(1)
    right = log_probs.gather(2, target.unsqueeze(2)).squeeze(2)
    legal = ~log_probs.isneginf()
    spread = log_probs.masked_fill(~legal, 0.0).sum(dim=2) / legal.sum(dim=2)
    loss = -(1 - smoothing) * right - smoothing * spread
    return loss[counts].mean()
