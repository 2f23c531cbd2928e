"""Attention weights of a run, for given or generated targets, with search trees."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from attnkit.analysis.attention_language import language_attention
from attnkit.analysis.attention_request import AttentionQuery, AttentionReport, pair_lines
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.decoding.beam import BeamTrace
from attnkit.decoding.search import Sources, search
from attnkit.engine.checkpoint_metadata import read_tree
from attnkit.engine.loading import load_model
from attnkit.engine.predict import PredictRequest
from attnkit.engine.seq2seq import LocalSearch, pad_sources
from attnkit.errors import DataError, RunError, UsageError
from attnkit.models.attention.config import AlignmentName, DistributionName, per_head
from attnkit.plotting.attention_maps import AttentionExample, AttentionMap, BeamNode
from attnkit.protocols import BOS_ID, EOS_ID
from attnkit.tasks.language_modeling.config import LANGUAGE_TASKS
from attnkit.tasks.text_classification.predict import HanPredictor
from attnkit.tasks.translation.directions import OPTIONS
from attnkit.tasks.translation.loading import LoadedRun, load_run
from attnkit.tasks.translation.score import check_lengths
from attnkit.tasks.translation.translator import TranslationPipeline
from attnkit.text.token_runs import path_texts, token_runs


def extract_attention(query: AttentionQuery) -> AttentionReport:
    """Load a run and return all attention weights for each line of a request.

    Raises ``RunError`` if the run is missing, damaged or without attention, ``DataError`` if a line is blank or too
    long, ``UsageError`` if the numbers of sources and targets differ, or for targets with a classifier.
    """
    checkpoint, warnings = RunFolder(query.run).checkpoint(query.checkpoint)
    tree = read_tree(checkpoint)
    model, task = tree.get("model"), tree.get("task")
    is_han = isinstance(model, dict) and model.get("kind") == "han"
    of_translators = {
        "--target": query.targets,
        "--beam-size": query.beam_size,
        **dict(zip(OPTIONS, query.languages, strict=True)),
    }
    of_translators |= {"--pair": query.pairs} if is_han else {}
    given = [option for option, value in of_translators.items() if value]
    if given and (is_han or task in LANGUAGE_TASKS):
        what = "a document classifier does not generate text"
        what = what if is_han else f"a run of task '{task}' does not translate"
        raise UsageError(what, where=str(query.run), help=f"leave out {' and '.join(given)}")
    if is_han:
        opened = load_model(query.run, "text-classification", device=query.device, checkpoint=checkpoint.name)
        kind = "hierarchical attention over words and sentences"
        facts = {"run": str(opened.path), "checkpoint": opened.checkpoint.name, "model": kind}
        classifier = HanPredictor(opened, PredictRequest(query.run, []), lambda text: None)
        return AttentionReport(facts, _documents(classifier, query), tuple(warnings), classifier.warnings)
    if task in LANGUAGE_TASKS:
        return language_attention(query, checkpoint, task, warnings)
    if query.pairs:
        raise UsageError("a translator reads one text per line", where="--pair", help="leave out --pair")
    translator, run = load_attending(query)
    sentences = (
        AttentionExample(line.source, line.target, attention_maps(run, line), line.tree, line.facts)
        for line in written_lines(translator, run, query)
    )
    return AttentionReport(run_summary(run), sentences, run.warnings)


def _documents(classifier: HanPredictor, query: AttentionQuery) -> Iterator[AttentionExample]:
    """Yield the word and sentence attention of each document, one document per line."""
    for number, document, _ in pair_lines(query):
        encoded = classifier.reader.encode([document])
        (found,) = classifier.classify_encoded(encoded)
        if not found.sentences:
            raise DataError("the document is blank", where=f"source:{number}")
        # The word map has one row per sentence and one column per word of the document.
        words = [word for sentence in found.sentences for word in sentence]
        weights = np.zeros((1, 1, len(found.sentences), len(words)), np.float32)
        first = 0
        for row, of_words in enumerate(found.word_weights):
            weights[0, 0, row, first : first + len(of_words)] = of_words
            first += len(of_words)
        texts = classifier.reader.tokenizer.decode(encoded[0])
        names = [f"{number}. {text}" for number, text in enumerate(texts, 1)]
        over_sentences = np.array(found.sentence_weights, np.float32)[None, None, None]
        maps = [AttentionMap("word", names, words, weights)]
        maps.append(AttentionMap("sentence", ["document"], names, over_sentences))
        facts = {"probability": round(max(found.probabilities), 4)}
        yield AttentionExample(document, found.label, maps, facts=facts, sides=("Document", "Label"))


def load_attending(query: AttentionQuery) -> tuple[TranslationPipeline, LoadedRun]:
    """Load a run for search by torch; raise ``RunError`` if it has no attention."""
    run = load_run(query.run, device=query.device, checkpoint=query.checkpoint)
    if not run.config.model.has_attention:
        help = "train a model with attention: --set model.alignment=additive"
        raise RunError("this model has no attention weights", where=str(run.path), help=help)
    translator = TranslationPipeline([run], LocalSearch([run.model], run.device))
    translator.set_languages(query.languages)
    return translator, run


def run_summary(run: LoadedRun) -> dict[str, str]:
    """Return path, checkpoint, architecture and attention functions for display."""
    model = run.config.model
    return {
        "run": str(run.path),
        "checkpoint": run.checkpoint,
        "model": f"{model.kind}, encoder layers: {model.encoder_layers}, decoder layers: {model.decoder_layers}",
        "attention": ", ".join(dict.fromkeys(head_names(run))),
    }


@dataclass(frozen=True)
class ForcedTarget:
    """A sentence pair whose attention weights are computed by teacher forcing."""

    source: str
    target: str
    source_ids: list[int]
    target_ids: list[int]
    ends: bool  #: whether EOS is included; a search may stop before it
    tree: Sequence[BeamNode] = ()
    facts: dict[str, Any] = field(default_factory=dict)


def written_lines(translator: TranslationPipeline, run: LoadedRun, query: AttentionQuery) -> Iterator[ForcedTarget]:
    """Yield each line with its given translation, or else with the model's own.

    Raises ``DataError`` if a line is blank or too long, or if a given translation has too many tokens.
    """
    for number, source, target in pair_lines(query):
        if not source.strip():
            raise DataError("the line is blank", where=f"source:{number}")
        masked = translator.mask(source)
        ids = [*translator.direction.tag, *translator.src_tokenizer.encode([masked.text])[0]]
        if len(ids) > translator.max_source:
            most = f"more than the maximum of {translator.max_source:,}"
            what = f"this line has {len(ids):,} tokens, {most}"
            raise DataError(what, where=f"source:{number}", help="split the line")
        if target is not None:
            written = translator.tgt_tokenizer.encode([masked.mask_other(target)])
            check_lengths(run, written, "target", [number])
            yield ForcedTarget(source, target, ids, written[0], ends=True)
            continue
        # The run's search settings, but without sampling and with all hypotheses of the beam returned.
        width = query.beam_size or translator.search.beam_size
        plain = {"sampling": False, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        config = translator.configure({**plain, "beam_size": width, "num_hypotheses": width})
        trace = BeamTrace(1) if config.beam_size > 1 else None
        code = translator.direction.code
        prefix = torch.tensor([code], device=run.device) if code else None
        sources = Sources(*pad_sources([ids], run.device), prefix, n_given=len(code))
        best = search([run.model], sources, config, tree=trace)[0][0]
        tree: list[BeamNode] = []
        if trace is not None:
            nodes, path = trace.nodes[0], set(trace.path(0, best))
            tokens = run.tgt_tokenizer.tokens([node.word for node in nodes])
            texts = path_texts(run.tgt_tokenizer, [(node.word, node.parent) for node in nodes])
            for i, (node, token, shown) in enumerate(zip(nodes, tokens, texts, strict=True)):
                log_prob = round(node.log_prob, 5)
                tree.append(
                    BeamNode(node.step, node.parent, token, log_prob, node.status, node.score, i in path, *shown)
                )
        text = masked.restore(run.tgt_tokenizer.decode([best.ids])[0])
        facts = {"score": round(best.score, 4), "log_prob": round(best.log_prob, 4), "beam_size": config.beam_size}
        yield ForcedTarget(source, text, ids, list(best.ids), best.finished, tree, facts)


@torch.inference_mode()
def attention_maps(run: LoadedRun, line: ForcedTarget) -> list[AttentionMap]:
    """Return the attention maps of a sentence pair, cross-attention first."""
    # If the search found no tokens, EOS alone is shown.
    written = [*line.target_ids, EOS_ID] if line.ends else line.target_ids or [EOS_ID]
    inputs = [BOS_ID, *written[:-1]]
    src, mask = pad_sources([line.source_ids], run.device)
    weights = run.model.attention_weights(src, mask, torch.tensor([inputs], device=run.device))
    sources = (run.src_tokenizer, [*line.source_ids, EOS_ID])
    outputs, earlier = (run.tgt_tokenizer, written), (run.tgt_tokenizer, inputs)
    sides = {"cross": (outputs, sources), "encoder": (sources, sources), "decoder": (outputs, earlier)}
    names = head_names(run)
    heads = names if len(set(names)) > 1 else []
    maps = []
    for kind in sorted(weights, key=lambda kind: kind != "cross"):
        queries, keys = (tokenizer.tokens(ids) for tokenizer, ids in sides[kind])
        query_runs, key_runs = (token_runs(*side) for side in sides[kind])
        found = weights[kind][0].float().cpu().numpy()  # (L, H, T, S)
        maps.append(AttentionMap(kind, queries, keys, found, heads, query_runs=query_runs, key_runs=key_runs))
    return maps


def head_names(run: LoadedRun) -> list[str]:
    """Return the alignment and distribution function of each head, as text."""
    model: Any = run.config.model
    n_heads = getattr(model, "n_heads", 1)
    alignments: tuple[AlignmentName, ...] = per_head(model.alignment, n_heads)
    distributions: tuple[DistributionName, ...] = per_head(model.distribution, n_heads)
    return [f"{align} x {distribute}" for align, distribute in zip(alignments, distributions, strict=True)]
