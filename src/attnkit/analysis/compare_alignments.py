"""Alignment functions side by side, on the states of one run's model: its own queries and keys, every other function.

The model computes its states as always, by ``look``. Only who is asked about them differs, so what differs in the maps
is the functions alone. Those with parameters are not trained for these states, but drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from attnkit.analysis.attention import (
    ForcedTarget,
    attention_maps,
    head_names,
    load_attending,
    run_summary,
    translator_of,
    written_lines,
)
from attnkit.analysis.attention_request import AttentionQuery, AttentionReport
from attnkit.errors import UsageError
from attnkit.models.attention.alignment import AlignmentModule, make_alignment
from attnkit.models.attention.config import ALIGNMENT_NAMES, AlignmentName, DistributionName, incompatibility
from attnkit.models.attention.distribution import make_distribution
from attnkit.plotting.attention_maps import AttentionExample, AttentionMap, Choice
from attnkit.tasks.translation.loading import LoadedRun
from attnkit.tasks.translation.translator import Translator


@dataclass(frozen=True)
class FunctionChoice:
    """What is compared."""

    alignments: Sequence[AlignmentName] = ()
    """Empty: all that have a meaning with the distribution function."""
    distribution: DistributionName | None = None
    """None: the run's own, or softmax where its heads have several."""
    seed: int = 1
    """Of the parameters that are drawn."""


class StateRecorder(AlignmentModule):
    """An alignment function that keeps what it is asked; the results are those of the wrapped function."""

    def __init__(self, inner: AlignmentModule, places: Sequence[int]) -> None:
        super().__init__()
        self.inner, self.places = inner, list(places)
        self.keys: list[Tensor] = []
        self.queries: list[Tensor] = []

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Keep the keys (B, H, S, d) and prepare them."""
        self.keys.append(keys)
        return self.inner.prepare(keys, at)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Keep the queries (B, H, T, d) and return their scores (B, H, T, S)."""
        self.queries.append(query)
        return self.inner.score(query, prepared)

    def relative(self, query: Tensor, prepared: Tensor, mask: Tensor | None) -> Tensor:
        """Keep the queries (B, H, T, d) and return what normalize is given in the scores' place (B, H, T, S)."""
        self.queries.append(query)
        return self.inner.relative(query, prepared, mask)


@dataclass(frozen=True)
class States:
    """What one layer's attention to the source works with."""

    queries: Tensor
    """(1, H, T, d)."""
    keys: Tensor
    """(1, H, S, d)."""


def compare_functions(question: AttentionQuery, functions: FunctionChoice, layer: Choice | None) -> AttentionReport:
    """Load the run and return a sentence a line: a map for the run's own functions and one for each other.

    Raises:
        UsageError: no such layer, or a function that was named has no meaning with the distribution.
    """
    run = load_attending(question)
    n_layers = run.config.model.decoder_layers if run.config.model.kind == "transformer" else 1
    number = n_layers if layer is None else layer
    if not isinstance(number, int) or number > n_layers:
        raise UsageError(
            "functions are compared on one layer's states", where="--layer", help=f"give a number from 1 to {n_layers}"
        )
    distribution, skipped = _chosen(run, functions)
    facts = {**run_summary(run), "compared": f"on queries and keys of layer {number}", "distribution": distribution}
    named = [name for name in functions.alignments or ALIGNMENT_NAMES if name not in skipped]
    sentences = _sentences(translator_of(run), question, FunctionChoice(named, distribution, functions.seed), number)
    warnings = [f"{name} is left out: {reason}" for name, reason in skipped.items()]
    return AttentionReport(facts, sentences, (*run.warnings, *warnings))


def _chosen(run: LoadedRun, functions: FunctionChoice) -> tuple[DistributionName, dict[AlignmentName, str]]:
    """Return the distribution function, and the alignments that have no meaning with it, with the reasons."""
    own = run.config.model.distribution
    several = () if isinstance(own, str) else tuple(dict.fromkeys(own))
    distribution = functions.distribution or (own if isinstance(own, str) else several[0])
    if functions.distribution is None and len(several) > 1:
        distribution = "softmax"
    options = run.config.model.attention_options
    reasons = {name: incompatibility(name, distribution, options) for name in functions.alignments or ALIGNMENT_NAMES}
    skipped = {name: reason for name, reason in reasons.items() if reason is not None}
    for name, reason in skipped.items():
        if functions.alignments:
            raise UsageError(f"{name} has no meaning with {distribution}: {reason}", where="--alignment")
    return distribution, skipped


def _sentences(
    translator: Translator, question: AttentionQuery, functions: FunctionChoice, layer: int
) -> Iterator[AttentionExample]:
    run = translator.runs[0]
    for line in written_lines(translator, question):
        with torch.inference_mode():
            own, states = record_states(run, line, layer)
            note = f"the run's own: {', '.join(dict.fromkeys(head_names(run)))}"
            own = replace(own, weights=own.weights[layer - 1 : layer], note=note, first_layer=layer)
            maps = [own, *(_weighed(run, states, own, name, functions) for name in functions.alignments)]
        yield AttentionExample(line.source, line.target, maps, line.tree, line.facts)


def _weighed(
    run: LoadedRun, states: States, own: AttentionMap, name: AlignmentName, functions: FunctionChoice
) -> AttentionMap:
    """Return the map of another function on the same states."""
    n_heads, n_keys, width = states.keys.shape[1:]
    options = run.config.model.attention_options
    options = options.model_copy(update={"max_source": max(options.max_source, n_keys)})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(functions.seed)
        align = make_alignment(name, states.queries.shape[-1], width, options, n_heads)
        distribute = make_distribution(functions.distribution or "softmax", width, options, n_heads)
    drawn = bool(align.state_dict()) or isinstance(distribute, nn.Module)
    for part in (align, distribute):
        if isinstance(part, nn.Module):
            part.to(states.queries.device)
    weights = distribute(align(states.queries, states.keys), states.queries, None)
    note = f"parameters drawn, seed {functions.seed}" if drawn else "no parameters"
    return replace(own, kind=name, weights=weights.float().cpu().numpy(), heads=(), note=note)


def record_states(run: LoadedRun, line: ForcedTarget, layer: int) -> tuple[AttentionMap, States]:
    """Return the weights of attention to the source, and what a layer's (from 1) was asked for them."""
    attentions = _attentions(run.model)
    listeners = [[StateRecorder(inner, places) for _, inner, places in groups] for groups in attentions]
    try:
        for groups, heard in zip(attentions, listeners, strict=True):
            for (parent, _, _), listener in zip(groups, heard, strict=True):
                parent.register_module("align", listener)
        own = attention_maps(run, line.ids, line.written, ends=line.ends)[0]
    finally:
        for groups in attentions:
            for parent, inner, _ in groups:
                parent.register_module("align", inner)
    heard = listeners[layer - 1]
    order = torch.tensor([place for listener in heard for place in listener.places]).argsort()
    # A recurrent decoder asks step by step, with the keys of the one sentence prepared once.
    queries = torch.cat([torch.cat(listener.queries, 2) for listener in heard], 1)[:, order]
    keys = torch.cat([listener.keys[0] for listener in heard], 1)[:, order]
    return own, States(queries, keys)


def _attentions(model: object) -> list[list[tuple[nn.Module, AlignmentModule, Sequence[int]]]]:
    """Return each layer's alignments over the source, as (module that holds it, alignment, places of its heads)."""
    assert isinstance(model, nn.Module)
    found: dict[str, list[tuple[nn.Module, AlignmentModule, Sequence[int]]]] = {}
    for name, module in model.named_modules():
        inner = dict(module.named_children()).get("align")
        # In a Transformer's decoder, layers.N.attention looks at the target, layers.N.cross at the source.
        if isinstance(inner, AlignmentModule) and name.startswith("decoder") and ".attention." not in f".{name}.":
            places = getattr(module, "indices", [0])
            found.setdefault(name.split(".groups.")[0], []).append((module, inner, places))
    return list(found.values())
