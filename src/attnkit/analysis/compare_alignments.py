"""Comparison of alignment functions on the queries and keys of one trained model.

The model computes its states with its own functions, so that the maps differ only in the alignment function. Compared
functions with parameters get random ones, which are not trained for these states.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from attnkit.analysis.attention import ForcedTarget, attention_maps, load_attending, run_summary, written_lines
from attnkit.analysis.attention_request import AttentionQuery, AttentionReport
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.checkpoint_metadata import read_tree
from attnkit.errors import RunError, UsageError
from attnkit.models.attention.alignment import AlignmentModule, make_alignment
from attnkit.models.attention.config import ALIGNMENT_NAMES, AlignmentName, DistributionName, incompatibility
from attnkit.models.attention.distribution import make_distribution
from attnkit.models.attention.multihead import HeadGroup
from attnkit.plotting.attention_maps import AttentionExample, AttentionMap, Choice
from attnkit.tasks.translation.loading import LoadedRun


@dataclass(frozen=True)
class FunctionChoice:
    """Alignment functions to compare, with one distribution function."""

    alignments: Sequence[AlignmentName] = ()  #: empty: all that can be combined with the distribution function
    distribution: DistributionName | None = None  #: None: the run's, or softmax if its heads differ
    seed: int = 1  #: seed of the random parameters


class StateRecorder(AlignmentModule):
    """Wrapper of an alignment function that records its queries and keys."""

    def __init__(self, inner: AlignmentModule, heads: Sequence[int]) -> None:
        super().__init__()
        self.inner, self.heads = inner, heads
        self.recorded_keys: list[Tensor] = []
        self.queries: list[Tensor] = []

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Record the keys (B, H, S, d) and return them prepared."""
        self.recorded_keys.append(keys)
        return self.inner.prepare(keys, at)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Record the queries (B, H, T, d) and return their scores (B, H, T, S)."""
        self.queries.append(query)
        return self.inner.score(query, prepared)

    def relative(self, query: Tensor, prepared: Tensor, mask: Tensor | None) -> Tensor:
        """Record the queries (B, H, T, d); return row-scaled scores (B, H, T, S)."""
        self.queries.append(query)
        return self.inner.relative(query, prepared, mask)


def compare_functions(query: AttentionQuery, functions: FunctionChoice, layer: Choice | None) -> AttentionReport:
    """Compare alignment functions with the run's own, in one example per input line.

    Raises ``RunError`` for a run of another task, ``UsageError`` for an unknown layer, or for a named function
    that cannot be combined with the distribution.
    """
    task = read_tree(RunFolder(query.run).checkpoint(query.checkpoint)[0]).get("task")
    if task != "translation":
        what = f"--compare requires a translator; this is a run of task {task!r}"
        raise RunError(what, where=str(query.run), help="leave out --compare")
    translator, run = load_attending(query)
    model = run.config.model
    n_layers = model.decoder_layers if model.kind == "transformer" else 1
    number = n_layers if layer is None else layer
    if not isinstance(number, int) or number > n_layers:
        help = f"give a number from 1 to {n_layers}"
        raise UsageError("--compare requires a single layer", where="--layer", help=help)
    distribution = functions.distribution
    if distribution is None:
        own = {model.distribution} if isinstance(model.distribution, str) else set(model.distribution)
        distribution = own.pop() if len(own) == 1 else "softmax"
    named, warnings = [], list(run.warnings)
    for name in functions.alignments or ALIGNMENT_NAMES:
        reason = incompatibility(name, distribution, model.attention_options)
        if reason is None:
            named.append(name)
        elif functions.alignments:
            raise UsageError(f"{name} cannot be combined with {distribution}: {reason}", where="--alignment")
        else:
            warnings.append(f"{name} skipped: {reason}")
    facts = {**run_summary(run), "compared": f"on queries and keys of layer {number}", "distribution": distribution}
    functions = FunctionChoice(named, distribution, functions.seed)
    sentences = (_compared(run, line, functions, number) for line in written_lines(translator, run, query))
    return AttentionReport(facts, sentences, tuple(warnings))


@torch.inference_mode()
def _compared(run: LoadedRun, line: ForcedTarget, functions: FunctionChoice, layer: int) -> AttentionExample:
    """Return the map of the run's own functions and of the others on its states."""
    own, queries, keys = record_states(run, line, layer)
    note = f"the run's own: {run_summary(run)['attention']}"
    maps = [replace(own, weights=own.weights[layer - 1 : layer], note=note, first_layer=layer)]
    n_heads, n_keys, width = keys.shape[1:]
    options = run.config.model.attention_options
    options = options.model_copy(update={"max_source": max(options.max_source, n_keys)})
    for name in functions.alignments:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(functions.seed)
            align = make_alignment(name, queries.shape[-1], width, options, n_heads)
            distribute = make_distribution(functions.distribution or "softmax", width, options, n_heads)
        drawn = bool(align.state_dict()) or isinstance(distribute, nn.Module)
        for part in (align, distribute):
            if isinstance(part, nn.Module):
                part.to(queries.device)
        weights = distribute(align(queries, keys), queries, None).float().cpu().numpy()
        note = f"random parameters, seed {functions.seed}" if drawn else "no parameters"
        maps.append(replace(maps[0], kind=name, weights=weights, heads=(), note=note))
    return AttentionExample(line.source, line.target, maps, line.tree, line.facts)


def record_states(run: LoadedRun, line: ForcedTarget, layer: int) -> tuple[AttentionMap, Tensor, Tensor]:
    """Return the cross-attention map, and the queries and keys of one layer.

    ``layer`` counts from 1. Queries are (1, H, T, d), keys (1, H, S, d), with the heads in the order of the model.
    """
    assert isinstance(run.model, nn.Module)
    # Cross-attention alignments per layer: (parent module, alignment, recorder).
    layers: dict[str, list[tuple[nn.Module, AlignmentModule, StateRecorder]]] = {}
    for name, module in run.model.named_modules():
        inner = dict(module.named_children()).get("align")
        # In a Transformer's decoder, layers.N.attention is self-attention, layers.N.cross cross-attention.
        if isinstance(inner, AlignmentModule) and name.startswith("decoder") and ".attention." not in f".{name}.":
            recorder = StateRecorder(inner, module.indices if isinstance(module, HeadGroup) else [0])
            layers.setdefault(name.split(".groups.")[0], []).append((module, inner, recorder))
    alignments = [part for parts in layers.values() for part in parts]
    try:
        for parent, _, recorder in alignments:
            parent.register_module("align", recorder)
        own = attention_maps(run, line)[0]
    finally:
        for parent, inner, _ in alignments:
            parent.register_module("align", inner)
    recorders = [recorder for _, _, recorder in list(layers.values())[layer - 1]]
    order = torch.tensor([head for recorder in recorders for head in recorder.heads]).argsort()
    # A recurrent decoder scores one query per step, against keys that are prepared once per sentence.
    queries = torch.cat([torch.cat(recorder.queries, 2) for recorder in recorders], 1)[:, order]
    keys = torch.cat([recorder.recorded_keys[0] for recorder in recorders], 1)[:, order]
    return own, queries, keys
