"""GTool's LLM readout: what it plans, in both modes, and what cached training and decoding save.

python tests/benchmarks/bench_llm.py --data FOLDER [--home HOME] [--modes steps single]
    [--align 40] [--plan 60] [--batch 16] [--requests 100] [--race 8] [--threads 1]

Ingests FOLDER into a new home (or HOME, which keeps what is trained for the next time), trains the
graph readout and beside it the LLM readout in each mode, and prints one JSON object:

* ``prompt_tokens``: mean tokens of a prompt with the names of all tools, of the candidates, of
  none, against one that holds the descriptions of all tools.
* ``training_step``: loss of one batch with its gradients on the graph tokens. Naive: every prompt
  read whole under autograd, one request after the other (a batch of whole prompts needs more memory
  than the machine has). Cached: the shared text was read before the clock starts; once with
  requests that are new, once with requests whose keys are known.
* ``decoding``: greedy plans. Naive: ``generate`` on the whole prompt, with its own KV cache, free
  and with the trie as ``prefix_allowed_tokens_fn``. Cached: one request a call, and all in one.
  ``hallucinated``: share of the written lines that name no tool, without the trie and with it.
* ``accuracy``: both readouts, their fusion, and the LLM without graph tokens, on the same requests;
  ``agreement`` is that with the graph readout: equal tool lists, and mean node F1 of the two.

``--race 0`` leaves the two races out.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from models.ablation import Ablation
from models.checkpoint import Readout, load_llm_planner, load_planner, save_planner
from models.errors import CheckpointMismatch
from models.evaluation import evaluate
from models.fusion import FusionPlanner, agreement
from models.graph_tokens import LLMConfig
from models.gtool import GToolPlanner
from models.links import LinkScorer
from models.llm import FrozenLLM
from models.llm_planner import LLMPlanner
from models.llm_training import PlanningLoss, train_llm_readout
from models.prompt import PLANNING, frame, plan_tokens
from models.readings import read_requests
from models.types import Embedder, Example, Planner
from tasks import graphs, ingesting, training
from tasks.embedding import shared_embedder
from tasks.llm import shared_llm
from tasks.registry import Registry
from tasks.settings import Settings, prepare_environment, read_settings

METRICS = ("n_f1", "l_f1", "ned", "exact")


def prepared(data: Path, home: Path, threads: int) -> Settings:
    """A home with the data, a graph version, suites, and the graph readout trained."""
    os.environ |= {
        "TOOLATLAS_HOME": str(home),
        "TOOLATLAS_TRAIN_LLM_READOUT": "never",
        "TOOLATLAS_THREADS": str(threads),
    }
    settings = read_settings()
    prepare_environment(settings)
    ingesting.ingest(settings, [str(data)])
    graphs.build(settings)
    graphs.freeze(settings)
    training.train(settings, progress=lambda text, _: print(text, flush=True))
    return settings


def spoken(
    home: Path, drawn: GToolPlanner, examples: list[Example], llm: FrozenLLM, config: LLMConfig
) -> tuple[LLMPlanner, float]:
    """The LLM readout of one configuration, trained where the home has none; seconds it took."""
    folder = home / "bench" / f"{config.mode}-{config.ablation}-{config.tool_list}"
    try:
        found = load_llm_planner(folder, drawn.embed, llm)
        known = replace(found.config, max_length=None, fusion_weight=0.0)
        if known == config:
            return found, 0.0
    except CheckpointMismatch:
        pass
    started = time.perf_counter()
    result = train_llm_readout(
        llm,
        drawn,
        examples,
        drawn.embed([example.request for example in examples]),
        config,
        seed=0,
        on_step=lambda step, record: print(config.mode, step, record, flush=True),
        resume_dir=folder.with_suffix(".resume"),
    )
    seconds = time.perf_counter() - started
    model, links = drawn.model, LinkScorer.fit(drawn.graph, examples, drawn.tool_x)
    readout = Readout(result.config, result.tokens, llm)
    save_planner(folder, model, model.config, drawn.graph, drawn.tool_x, links, {}, readout)
    return load_llm_planner(folder, drawn.embed, llm), seconds


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
    config = replace(planner.config, loss="tokens")
    texts = [row.request for row in rows]
    plans = [[graph.index[key] for key in row.tools] for row in rows]
    x = planner.drawn.embed(texts)
    readings = read_requests(planner.drawn, texts, config.candidates)
    shown = readings.candidates.tolist()
    weights = [w for w in tokens.parameters()]
    loss = PlanningLoss(llm, planner.catalogue, config)

    def pieces() -> list[torch.Tensor]:
        layers = tokens.encode_tools(tool_x, graph.edge_index, graph.edge_counts)
        return tokens.graph_pieces(x, layers, readings)

    def cached() -> tuple[float, list[Any]]:
        value, _ = loss(texts, pieces(), plans, None, shown)
        return value.item(), list(torch.autograd.grad(value, weights, allow_unused=True))

    def whole() -> tuple[float, list[Any]]:
        answers = [plan_tokens(planner.catalogue.names.lines, p, planner.frame.end) for p in plans]
        count = sum(map(len, answers))
        total, sums = 0.0, [None] * len(weights)
        for i, (text, answer) in enumerate(zip(texts, answers, strict=True)):
            listed = shown[i] if config.tool_list == "topk" else None
            ids = planner.catalogue.request_tokens(llm, text, planner.limit, listed)
            prompt = [llm.embed(planner.frame.before), llm.embed(ids)]
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

    def generate(**options: Any) -> list[list[int]]:
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
            found.append(out[0].tolist())
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

    def invented(answers: Sequence[list[int]]) -> float:
        """Share of the lines of some answers that name no tool."""
        texts = [llm.tokenizer.decode(out, skip_special_tokens=True) for out in answers]
        said = [line.strip() for text in texts for line in text.strip().split("\n")]
        known = set(planner.catalogue.names.written)
        return round(sum(line not in known for line in said) / len(said), 3)

    def ours(size: int) -> list[tuple[str, ...]]:
        parts = [requests[i : i + size] for i in range(0, len(requests), size)]
        return [plans[0].tools for part in parts for plans in planner.plan(part)]

    ours(1)
    before = replace(planner.stats)
    alone_s, alone = timed(lambda: ours(1))
    after = planner.stats
    together_s, together = timed(lambda: ours(len(requests)))
    trie_s, written = timed(lambda: generate(prefix_allowed_tokens_fn=legal))
    free_s, raw = timed(generate)
    constrained, free = [named(out) for out in written], [named(out) for out in raw]
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
        "hallucinated": {"without_trie": invented(raw), "with_trie": invented(written)},
        "forced_share": round((after.forced - before.forced) / tokens, 3),
        "passes_a_token": round((after.passes - before.passes) / tokens, 3),
    }


def prompt_tokens(planner: LLMPlanner, requests: list[str]) -> dict[str, Any]:
    """Mean tokens of a request's prompt, by what it lists."""
    llm, graph = planner.llm, planner.graph
    means: dict[str, Any] = {}
    for kind in ("all", "topk", "none"):
        config = replace(planner.config, tool_list=kind)
        counts = LLMPlanner(config, planner.tokens, planner.drawn, llm).prompt_tokens(requests)
        means[kind] = round(sum(counts) / len(counts), 1)
    whole = frame(llm, PLANNING, graph.texts)
    words = sum(len(llm.tokens(request)) for request in requests) / len(requests)
    described = len(whole.before) + words + len(whole.after)
    saved = {kind: round(1 - mean / described, 3) for kind, mean in means.items()}
    return means | {"descriptions": round(described, 1), "saved": saved}


def accuracy(
    planners: dict[str, Planner], rows: list[Example], drawn: GToolPlanner
) -> dict[str, Any]:
    """Metrics of each planner and how far it agrees with the graph readout."""
    requests = [row.request for row in rows]
    graphs_plans = [plans[0] for plans in drawn.plan(requests)]
    report: dict[str, Any] = {}
    for name, planner in planners.items():
        kept = _Kept(planner)
        result = evaluate(kept, rows, resamples=200, confidence=0.95, seed=0)
        report[name] = {metric: round(result.metrics[metric], 3) for metric in METRICS}
        agreed = agreement([kept.plans[request] for request in requests], graphs_plans)
        report[name]["agreement"] = [round(value, 3) for value in agreed]
        print(name, report[name], flush=True)
    return report


class _Kept:
    """A planner that keeps its first plans."""

    def __init__(self, planner: Planner) -> None:
        self.planner, self.name = planner, planner.name
        self.plans: dict[str, Any] = {}

    def plan(self, requests: Sequence[str], top: int = 1) -> list[list[Any]]:
        found = self.planner.plan(requests, top)
        for request, ranked in zip(requests, found, strict=True):
            self.plans[request] = ranked[0] if ranked else None
        return found


def main() -> None:
    """Prepare, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of one set")
    parser.add_argument("--home", type=Path, help="kept for the next time")
    parser.add_argument("--modes", nargs="+", default=["steps", "single"])
    parser.add_argument("--list", default=LLMConfig().tool_list, help="tool list in the prompt")
    parser.add_argument("--align", type=int, default=40, help="steps of the alignment stage")
    parser.add_argument("--plan", type=int, default=60, help="steps of the planning stage")
    parser.add_argument("--batch", type=int, default=16, help="requests of a training step")
    parser.add_argument("--requests", type=int, default=100, help="whose plans are scored")
    parser.add_argument("--race", type=int, default=8, help="requests of the races; 0: none")
    parser.add_argument("--ablation", action="store_true", help="the LLM without graph tokens too")
    parser.add_argument("--fusion", action="store_true", help="the fusion of both readouts too")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = measure(args, args.home or Path(folder))
    print(json.dumps(report, indent=1))


def measure(args: argparse.Namespace, home: Path) -> dict[str, Any]:
    """All numbers."""
    settings = prepared(args.data, home, args.threads)
    registry = Registry(settings)
    embed: Embedder = shared_embedder(settings)
    latest = registry.latest()
    assert latest is not None
    torch.set_num_threads(args.threads)
    llm = shared_llm(settings, "cpu")
    drawn = load_planner(registry.planner_folder(str(latest.version)), embed)
    suite, rows = next(iter(graphs.load_suites(settings).items()))
    rows = [rows[i * len(rows) // args.requests] for i in range(min(args.requests, len(rows)))]
    examples = graphs.learning_data(settings).examples
    report: dict[str, Any] = {
        "set": suite.name,
        "llm": llm.name,
        "tools": drawn.graph.num_tools,
        "threads": args.threads,
        "requests": len(rows),
        "training": {"align_steps": args.align, "plan_steps": args.plan, "batch": args.batch},
    }
    planners: dict[str, Planner] = {"gtool-graph": drawn}
    for mode in args.modes:
        config = LLMConfig(
            mode=mode,
            tool_list=args.list,
            align_steps=args.align,
            plan_steps=args.plan,
            batch_size=args.batch,
            validate_every=max(1, args.plan // 3),
            fusion_rows=32 if args.fusion else 0,
        )
        planner, seconds = spoken(home, drawn, examples, llm, config)
        report["training"][f"{mode}_s"] = round(seconds, 1)
        planners[planner.name] = planner
        if args.fusion:
            fused = FusionPlanner(drawn, planner)
            report["training"][f"{mode}_fusion_weight"] = fused.weight
            planners[f"fusion with {planner.name}"] = fused
        if args.ablation:
            bare = replace(planner.config, ablation=Ablation.NO_GRAPH)
            name = f"{planner.name} without graph tokens"
            planners[name] = LLMPlanner(bare, planner.tokens, drawn, llm)
    report["prompt_tokens"] = prompt_tokens(planner, [row.request for row in rows[:32]])
    if args.race:
        read_s, _ = timed(lambda: type(planner.reader)(llm).start(planner.frame.before))
        greedy = LLMPlanner(replace(planner.config, beam_width=1), planner.tokens, drawn, llm)
        train = [row for row in examples if row.split == "train"]
        train = [row for row in train if set(row.tools) <= set(drawn.graph.keys)][:4]
        report["shared_text_read_once_s"] = round(read_s, 2)
        report["training_step"] = bench_step(planner, train, drawn.tool_x)
        asked = [row.request for row in rows[: args.race]]
        report["decoding"] = bench_decoding(greedy, asked)
    report["accuracy"] = accuracy(planners, rows, drawn)
    for name, planner in planners.items():
        if isinstance(planner, LLMPlanner):
            report["accuracy"][name]["forced_share"] = round(planner.stats.forced_share, 3)
    return report


if __name__ == "__main__":
    main()
