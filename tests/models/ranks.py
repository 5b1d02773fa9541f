"""What each of two processes of a training does: the test is one of them and starts the other."""

import json
import os

import torch
from torch.nn import functional as F

from models.distributed import join
from models.errors import LostProcess, ProcessesDiffer
from models.gtool import GToolConfig
from models.training import train_gtool
from tests.models import worlds

BATCHES = [[0, 1, 2, 3, 4, 5, 6], [6, 2, 4], [5]]
"""Rows of each step: uneven shares, and one batch of fewer rows than processes."""


def loss_of(weights, x, y, whole):
    """Mean over rows; a part of the weights joins in large batches only, and one never."""
    lin, rare, _ = weights
    out = x @ lin
    return F.mse_loss(out * rare if whole > 2 else out, y)


def train(world):
    """Some steps on shares of the batches: losses and gradients of each, and the weights."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(7, 4, generator=generator), torch.randn(7, 3, generator=generator)
    weights = [torch.randn(size, generator=generator) for size in ((4, 3), (3,), (2,))]
    weights = [weight.requires_grad_() for weight in weights]
    world.check_same("the first weights", str(weights))
    grads, losses = [], []
    for batch in BATCHES:
        rows = world.share(batch)
        total = 0.0
        if rows:
            loss = loss_of(weights, x[rows], y[rows], len(batch))
            loss.backward()
            total = loss.item() * len(rows)
        world.average(weights, len(rows))
        summed, count = world.total([total, len(rows)])
        losses.append(summed / count)
        grads.append([None if w.grad is None else w.grad.tolist() for w in weights])
        for weight in weights:
            if weight.grad is not None:
                weight.data -= 0.1 * weight.grad
                weight.grad = None
    found = [weight.tolist() for weight in weights]
    world.check_same("the last weights", str(found))
    return {"rank": world.rank, "grads": grads, "losses": losses, "weights": found}


def planner(accumulate=1):
    """A training of the graph readout without dropout: its weights and their hash."""
    here = worlds.world(num_rows=24)
    graph, vectors = here.graph, worlds.vectors_of(here.rows)
    config = GToolConfig(
        hidden_channels=8,
        heads=2,
        num_layers=2,
        epochs=2,
        min_steps=2,
        beam_width=3,
        dropout=0.0,
        text_dropout=0.0,
        learning_rate=1e-3,
        accumulate=accumulate,
    )
    result = train_gtool(graph, worlds.embed(graph.texts), here.rows, vectors, config, seed=0)
    weights = {name: part.tolist() for name, part in result.model.state_dict().items()}
    return {"planner": weights, "hash": result.weights_hash}


def play(world):
    """All of it, for either process; the second one dies at the end."""
    told = world.tell("Grüße" if world.first else "never heard")
    found = train(world) | planner(accumulate=2) | {"told": told}
    try:
        world.check_same("weights", "ab"[world.rank])
    except ProcessesDiffer as error:
        found["differ"] = str(error)
    if not world.first:
        print(json.dumps(found), flush=True)
        os._exit(9)
    try:
        world.total([1.0])
    except LostProcess as error:
        found["lost"] = str(error)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    with join(timeout_s=30.0) as joined:
        play(joined)
