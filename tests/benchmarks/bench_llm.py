"""GTool's LLM readout: cached training and decoding against the whole prompt, and what it plans.

python tests/benchmarks/bench_llm.py --data FOLDER [--home HOME] [--steps 100] [--requests 100]

Ingests FOLDER into a new home (or HOME, which keeps what is trained for the next time), trains both
readouts, and prints one JSON object:

* ``training_step``: loss of one batch with its gradients on the graph tokens. Naive: every prompt
  read whole under autograd, one request after the other (a batch of whole prompts needs more memory
  than the machine has). Cached: the shared text was read before the clock starts; once with
  requests that are new, once with requests whose keys are known.
* ``decoding``: greedy plans. Naive: ``generate`` on the whole prompt, with its own KV cache, free
  and with the trie as ``prefix_allowed_tokens_fn``. Cached: one request a call, and all in one.
* ``accuracy``: both readouts and the LLM without graph tokens on the same requests.
"""

import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from models.checkpoint import load_llm_planner, load_planner
from models.evaluation import evaluate
from models.llm_planner import LLMPlanner
from models.llm_training import PlanningLoss
from models.prompt import plan_tokens
from tasks import graphs, ingesting, training
from tasks.embedding import shared_embedder
from tasks.llm import shared_llm
from tasks.registry import Registry
from tasks.settings import Settings, prepare_environment, read_settings

METRICS = ("n_f1", "l_f1", "ned", "exact")


def prepared(data: Path, home: Path, steps: int, threads: int) -> Settings:
    """A home with the data, a graph version, suites, and both readouts trained."""
    os.environ |= {
        "TOOLATLAS_HOME": str(home),
        "TOOLATLAS_TRAIN_LLM_READOUT": "always",
        "TOOLATLAS_MAX_LLM_STEPS": str(steps),
        "TOOLATLAS_THREADS": str(threads),
    }
    settings = read_settings()
    prepare_environment(settings)
    ingesting.ingest(settings, [str(data)])
    graphs.build(settings)
    graphs.freeze(settings)
    training.train(settings, progress=lambda text, _: print(text, flush=True))
    return settings


def timed(call: Any, times: int = 1) -> tuple[float, Any]:
    """Least seconds of some calls, and what the last one gave."""
    best, out = float("inf"), None
    for _ in range(times):
        started = time.perf_counter()
        out = call()
        best = min(best, time.perf_counter() - started)
    return best, out


def bench_step(planner: LLMPlanner, rows: list[Any], tool_x: torch.Tensor) -> dict[str, Any]:
    """One training step, cached and on whole prompts: seconds, losses, gradients."""
    llm, tokens, graph = planner.llm, planner.tokens, planner.graph
    assert tokens is not None
    config = replace(planner.config, loss="tokens")
    texts = [row.request for row in rows]
    plans = [[graph.index[key] for key in row.tools] for row in rows]
    x = planner.embed(texts)
    memory = planner.memory(x)
    weights = [w for w in tokens.parameters()]
    loss = PlanningLoss(llm, planner.catalogue, config)

    def pieces() -> list[torch.Tensor]:
        layers = tokens.encode_tools(tool_x, graph.edge_index, graph.edge_counts)
        return list(tokens.graph_pieces(x, layers, memory))

    def cached() -> tuple[float, list[Any]]:
        value, _ = loss(texts, pieces(), plans)
        return value.item(), list(torch.autograd.grad(value, weights, allow_unused=True))

    def whole() -> tuple[float, list[Any]]:
        answers = [plan_tokens(planner.catalogue.names.lines, p, planner.frame.end) for p in plans]
        count = sum(map(len, answers))
        total, sums = 0.0, [None] * len(weights)
        for i, (text, answer) in enumerate(zip(texts, answers, strict=True)):
            prompt = [llm.embed(planner.frame.before), llm.embed(llm.tokens(text))]
            prompt += [pieces()[i], llm.embed(planner.frame.after), llm.embed(answer[:-1])]
            keep = torch.arange(len(answer)) - len(answer) + sum(part.size(0) for part in prompt)
            logits = llm.model(inputs_embeds=torch.cat(prompt)[None], logits_to_keep=keep).logits
            value = F.cross_entropy(logits[0], torch.tensor(answer), reduction="sum") / count
            total += value.item()
            for j, part in enumerate(torch.autograd.grad(value, weights, allow_unused=True)):
                sums[j] = part if sums[j] is None else sums[j] + part
        return total, sums

    new_s, (new_loss, _) = timed(cached)
    known_s, (known_loss, gradient) = timed(cached, times=3)
    whole_s, (whole_loss, expected) = timed(whole)
    scale = max(float(g.abs().max()) for g in expected if g is not None)
    apart = max(
        float((a - b).abs().max()) for a, b in zip(gradient, expected, strict=True) if b is not None
    )
    return {
        "requests": len(rows),
        "shared_tokens": len(planner.frame.before),
        "whole_s": round(whole_s, 2),
        "cached_new_requests_s": round(new_s, 2),
        "cached_known_requests_s": round(known_s, 2),
        "ratio_new_requests": round(whole_s / new_s, 1),
        "ratio_known_requests": round(whole_s / known_s, 1),
        "losses": [whole_loss, new_loss, known_loss],
        "loss_difference": max(abs(whole_loss - new_loss), abs(whole_loss - known_loss)),
        "gradient_difference": apart / scale,
    }


@torch.no_grad()
def bench_decoding(planner: LLMPlanner, requests: list[str]) -> dict[str, Any]:
    """Greedy decoding, cached and by ``generate``: seconds and plans."""
    llm, lines, end = planner.llm, planner.catalogue.names.lines, planner.frame.end
    trie, key = planner.catalogue.trie, planner.graph.keys
    row_of = {line: row for row, line in enumerate(lines)}
    limit = max(map(len, lines)) * planner.max_length + 1
    prompts = [
        torch.cat([llm.embed(planner.frame.before), behind])[None]
        for behind in planner.prompts(requests)
    ]

    def legal(_: int, written: torch.Tensor) -> list[int]:
        node, count = 0, 0
        for token in written.tolist():
            if token == end:
                return [end]
            node = trie.children[node][token]
            if trie.tool[node] is not None:
                node, count = 0, count + 1
        return trie.legal(node, count, end, planner.max_length)

    def generate(**options: Any) -> list[tuple[str, ...] | None]:
        found = []
        for prompt in prompts:
            out = llm.model.generate(
                inputs_embeds=prompt,
                attention_mask=torch.ones(prompt.shape[:2], dtype=torch.long),
                do_sample=False,
                max_new_tokens=limit,
                eos_token_id=end,
                pad_token_id=end,
                **options,
            )
            found.append(named(out[0].tolist()))
        return found

    def named(answer: list[int]) -> tuple[str, ...] | None:
        """The plan of an answer; None where it is not one."""
        tools, line = [], []
        for token in answer:
            if token == end:
                return tuple(tools) if tools and not line else None
            line.append(token)
            if tuple(line) in row_of:
                tools.append(key[row_of[tuple(line)]])
                line = []
        return None

    def ours(size: int) -> list[tuple[str, ...]]:
        parts = [requests[i : i + size] for i in range(0, len(requests), size)]
        return [plans[0].tools for part in parts for plans in planner.plan(part)]

    ours(1)
    before = replace(planner.stats)
    alone_s, alone = timed(lambda: ours(1))
    after = planner.stats
    together_s, together = timed(lambda: ours(len(requests)))
    trie_s, constrained = timed(lambda: generate(prefix_allowed_tokens_fn=legal))
    free_s, free = timed(generate)
    comparable = [(a, b) for a, b in zip(free, alone, strict=True) if a is not None]
    tokens = after.tokens - before.tokens
    return {
        "requests": len(requests),
        "generate_s": round(free_s, 2),
        "generate_with_trie_s": round(trie_s, 2),
        "cached_one_by_one_s": round(alone_s, 2),
        "cached_together_s": round(together_s, 2),
        "ratio_one_by_one": round(free_s / alone_s, 1),
        "ratio_together": round(free_s / together_s, 1),
        "ratio_one_by_one_with_trie": round(trie_s / alone_s, 1),
        "ratio_together_with_trie": round(trie_s / together_s, 1),
        "same_plans_with_trie": sum(a == b for a, b in zip(constrained, alone, strict=True)),
        "same_plans_together": sum(a == b for a, b in zip(together, alone, strict=True)),
        "legal_without_trie": len(comparable),
        "same_plans_without_trie": sum(a == b for a, b in comparable),
        "forced_share": round((after.forced - before.forced) / tokens, 3),
        "passes_a_token": round((after.passes - before.passes) / tokens, 3),
    }


def main() -> None:
    """Prepare, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of one set")
    parser.add_argument("--home", type=Path, help="kept for the next time")
    parser.add_argument("--steps", type=int, default=100, help="of each stage")
    parser.add_argument("--requests", type=int, default=100, help="whose plans are scored")
    parser.add_argument("--batch", type=int, default=4, help="requests of the training step")
    parser.add_argument("--decoded", type=int, default=8, help="requests of the decoding race")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = measure(args, args.home or Path(folder))
    print(json.dumps(report, indent=1))


def measure(args: argparse.Namespace, home: Path) -> dict[str, Any]:
    """All numbers."""
    settings = prepared(args.data, home, args.steps, args.threads)
    registry, embed = Registry(settings), shared_embedder(settings)
    latest = registry.latest()
    assert latest is not None
    folder = registry.planner_folder(str(latest.version))
    llm = shared_llm(settings, "cpu")
    spoken, drawn = load_llm_planner(folder, embed, llm), load_planner(folder, embed)
    read_s, _ = timed(lambda: type(spoken.reader)(llm).start(spoken.frame.before))
    greedy = load_llm_planner(folder, embed, llm)
    greedy.config = replace(greedy.config, beam_width=1)
    suite, rows = next(iter(graphs.load_suites(settings).items()))
    rows = [rows[i * len(rows) // args.requests] for i in range(min(args.requests, len(rows)))]
    train = [row for row in graphs.learning_data(settings).examples if row.split == "train"]
    train = [row for row in train if set(row.tools) <= set(drawn.graph.keys)][: args.batch]
    bare = LLMPlanner(spoken.config, None, drawn.model, drawn.graph, drawn.tool_x, embed, llm)
    report: dict[str, Any] = {
        "set": suite.name,
        "llm": llm.name,
        "tools": drawn.graph.num_tools,
        "threads": args.threads,
        "shared_text_read_once_s": round(read_s, 2),
        "training_step": bench_step(spoken, train, drawn.tool_x),
        "decoding": bench_decoding(greedy, [row.request for row in rows[: args.decoded]]),
        "accuracy": {"requests": len(rows), "steps_a_stage": args.steps},
    }
    for name, planner in (
        ("gtool-llm", spoken),
        ("without graph tokens", bare),
        ("gtool-graph", drawn),
    ):
        result = evaluate(planner, rows, resamples=200, confidence=0.95, seed=0)
        report["accuracy"][name] = {m: round(result.metrics[m], 3) for m in METRICS}
    return report


if __name__ == "__main__":
    main()
