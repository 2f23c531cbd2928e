"""Attention of a run: translate lines or score given translations, and return all weights and the search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from attnkit.analysis.attention_request import AttentionQuery, AttentionReport, pair_lines
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.decoding.beam import BeamTrace
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.search import Hypothesis, Sources, search
from attnkit.engine.checkpoint_metadata import read_tree
from attnkit.engine.loading import load_model
from attnkit.engine.seq2seq import LocalSearch, pad_sources
from attnkit.errors import DataError, RunError, UsageError
from attnkit.models.attention.config import AlignmentName, DistributionName, per_head
from attnkit.plotting.attention_maps import AttentionExample, AttentionMap, BeamNode
from attnkit.protocols import BOS_ID, EOS_ID
from attnkit.tasks.text_classification.predict import DocumentClassifier, DocumentPrediction
from attnkit.tasks.translation.loading import LoadedRun, load_run
from attnkit.tasks.translation.score import check_lengths
from attnkit.tasks.translation.translator import Translator


def look_at_documents(question: AttentionQuery) -> AttentionReport:
    """Load a classifier and return the weights of its documents, a document a line.

    Raises:
        UsageError: what only a translation has was asked for.
        DataError: a document is blank.
    """
    if question.targets or question.beam_size is not None:
        raise UsageError(
            "a document classifier writes nothing", where=str(question.run), help="leave out --target and --beam-size"
        )
    opened = load_model(question.run, "text-classification", device=question.device, checkpoint=question.checkpoint)
    facts = {
        "run": str(opened.path),
        "checkpoint": opened.checkpoint.name,
        "model": "hierarchical attention over words and sentences",
    }
    classifier = DocumentClassifier(opened)
    return AttentionReport(facts, _documents(classifier, question), opened.warnings, classifier.warnings)


def _documents(classifier: DocumentClassifier, question: AttentionQuery) -> Iterator[AttentionExample]:
    for number, document, _ in pair_lines(question):
        encoded = classifier.reader.encode([document])
        (found,) = classifier.classify_encoded(encoded)
        if not found.sentences:
            raise DataError("this document is blank: there is nothing to look at", where=f"source:{number}")
        maps = _maps(found, classifier.reader.tokenizer.decode(encoded[0]))
        facts = {"probability": round(max(found.probabilities), 4)}
        yield AttentionExample(document, found.label, maps, facts=facts, sides=("Document", "Label"))


def _maps(found: DocumentPrediction, texts: Sequence[str]) -> list[AttentionMap]:
    """Return the words' map, a row a sentence and a column for every word of the document, and the sentences'."""
    words = [word for sentence in found.sentences for word in sentence]
    weights = np.zeros((1, 1, len(found.sentences), len(words)), np.float32)
    first = 0
    for row, of_words in enumerate(found.word_weights):
        weights[0, 0, row, first : first + len(of_words)] = of_words
        first += len(of_words)
    names = [f"{number}. {text}" for number, text in enumerate(texts, 1)]
    over_sentences = np.array(found.sentence_weights, np.float32)[None, None, None]
    return [AttentionMap("word", names, words, weights), AttentionMap("sentence", ["document"], names, over_sentences)]


def extract_attention(question: AttentionQuery) -> AttentionReport:
    """Load the run and return every weight of its sentences.

    Raises:
        RunError: the run is missing, damaged or has no attention.
        DataError: a line is blank, or longer than the model takes at once.
        UsageError: there are not as many targets as sources.
    """
    checkpoint, _ = RunFolder(question.run).checkpoint(question.checkpoint)
    model = read_tree(checkpoint).get("model")
    if isinstance(model, dict) and model.get("kind") == "han":
        return look_at_documents(question)
    run = load_attending(question)
    return AttentionReport(run_summary(run), _sentences(translator_of(run), question), run.warnings)


def load_attending(question: AttentionQuery) -> LoadedRun:
    """Load the run. Raises ``RunError`` also where its model has no attention."""
    run = load_run(question.run, device=question.device, checkpoint=question.checkpoint)
    if not run.has_attention:
        raise RunError(
            "this model has no attention to show", where=str(run.path), help="train one with model.alignment=additive"
        )
    return run


def translator_of(run: LoadedRun) -> Translator:
    """Return a translator that searches in this process."""
    return Translator([run], LocalSearch([run.model], run.device))


def run_summary(run: LoadedRun) -> dict[str, str]:
    """Return what makes a run's maps, in words."""
    model = run.config.model
    return {
        "run": str(run.path),
        "checkpoint": run.checkpoint,
        "model": f"{model.kind}, encoder layers: {model.encoder_layers}, decoder layers: {model.decoder_layers}",
        "attention": ", ".join(dict.fromkeys(head_names(run))),
    }


@dataclass(frozen=True)
class ForcedTarget:
    """A line and what is written for it, to be looked at while that is written once more."""

    source: str
    target: str
    ids: list[int]
    """Of the source."""
    written: list[int]
    ends: bool
    """Whether the end is written too: a search may be cut off before."""
    tree: Sequence[BeamNode] = ()
    facts: dict[str, Any] = field(default_factory=dict)


def written_lines(translator: Translator, question: AttentionQuery) -> Iterator[ForcedTarget]:
    """Yield each line with the translation that is given, or else found."""
    for number, source, target in pair_lines(question):
        if target is None:
            yield _translated(translator, source, number, question.beam_size)
        else:
            ids, written = encode_source(translator, source, number), encode_target(translator, target, number)
            yield ForcedTarget(source, target, ids, written, ends=True)


def _sentences(translator: Translator, question: AttentionQuery) -> Iterator[AttentionExample]:
    for line in written_lines(translator, question):
        maps = attention_maps(translator.runs[0], line.ids, line.written, ends=line.ends)
        yield AttentionExample(line.source, line.target, maps, line.tree, line.facts)


def _translated(translator: Translator, source: str, number: int, beam_size: int | None) -> ForcedTarget:
    run = translator.runs[0]
    ids = encode_source(translator, source, number)
    config = search_of(translator, beam_size)
    tree = BeamTrace(1) if config.beam_size > 1 else None
    found = search([run.model], Sources(*pad_sources([ids], run.device)), config, tree=tree)[0]
    facts: dict[str, Any] = {
        "score": round(found[0].score, 4),
        "log_prob": round(found[0].log_prob, 4),
        "beam_size": config.beam_size,
    }
    return ForcedTarget(
        source=source,
        target=run.tgt_tokenizer.decode([found[0].ids])[0],
        ids=ids,
        written=list(found[0].ids),
        ends=found[0].finished,
        tree=() if tree is None else search_tree_nodes(run, tree, found),
        facts=facts,
    )


def encode_source(translator: Translator, source: str, number: int) -> list[int]:
    """Return a line's ids. Raises ``DataError`` for one that is blank or too long to be looked at as one."""
    if not source.strip():
        raise DataError("this line is blank: there is nothing to look at", where=f"source:{number}")
    ids = translator.src_tokenizer.encode([source])[0]
    if len(ids) > translator.max_source:
        raise DataError(
            f"this line has {len(ids):,} tokens, more than the {translator.max_source:,} that are translated as one",
            where=f"source:{number}",
            help="give it in parts",
        )
    return ids


def encode_target(translator: Translator, target: str, number: int) -> list[int]:
    """Return a given translation's ids. Raises ``DataError`` where the model has no positions for them."""
    ids = translator.tgt_tokenizer.encode([target])
    check_lengths(translator.runs[0], ids, "target", number)
    return ids[0]


def search_of(translator: Translator, beam_size: int | None) -> SearchConfig:
    """Return the run's search as a beam search that gives all its hypotheses."""
    width = beam_size or translator.search.beam_size
    plain = {"sampling": False, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    return translator.configure({**plain, "beam_size": width, "num_hypotheses": width})


@torch.inference_mode()
def attention_maps(run: LoadedRun, source: list[int], target: list[int], *, ends: bool) -> list[AttentionMap]:
    """Return the weights of writing a target, its end included where it ``ends``; attention to the source first."""
    written = [*target, EOS_ID] if ends else target
    if not written:  # a search that found nothing
        written = [EOS_ID]
    given = [BOS_ID, *written[:-1]]
    src, mask = pad_sources([source], run.device)
    seen = run.model.attention_weights(src, mask, torch.tensor([given], device=run.device))
    words = run.src_tokenizer.tokens([*source, EOS_ID])
    rows = run.tgt_tokenizer.tokens(written)
    tokens = {"cross": (rows, words), "encoder": (words, words), "decoder": (rows, run.tgt_tokenizer.tokens(given))}
    names = head_names(run)
    heads = names if len(set(names)) > 1 else []
    kinds = sorted(seen, key=lambda kind: kind != "cross")
    return [AttentionMap(kind, *tokens[kind], seen[kind][0].float().cpu().numpy(), heads) for kind in kinds]


def head_names(run: LoadedRun) -> list[str]:
    """Return what each head computes with."""
    model: Any = run.config.model
    n_heads = getattr(model, "n_heads", 1)
    alignments: tuple[AlignmentName, ...] = per_head(model.alignment, n_heads)
    distributions: tuple[DistributionName, ...] = per_head(model.distribution, n_heads)
    return [f"{align} x {distribute}" for align, distribute in zip(alignments, distributions, strict=True)]


def search_tree_nodes(run: LoadedRun, tree: BeamTrace, found: Sequence[Hypothesis]) -> list[BeamNode]:
    """Return the tree of one sentence with its words as text."""
    nodes, best = tree.nodes[0], set(tree.path(0, found[0]))
    tokens = run.tgt_tokenizer.tokens([node.word for node in nodes])
    return [
        BeamNode(node.step, node.parent, token, round(node.log_prob, 5), node.status, node.score, number in best)
        for number, (node, token) in enumerate(zip(nodes, tokens, strict=True))
    ]
