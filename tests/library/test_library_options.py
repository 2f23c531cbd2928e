"""Each option of the command line has a keyword of the matching call, or a reason why not."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from test_library_training import CALLS

import attnkit
from attnkit.cli.main import LazyGroup, app
from attnkit.config import has_key
from attnkit.config.arguments import _hints
from attnkit.engine.registry import TASKS
from attnkit.quality.config import CleanConfig
from attnkit.tasks.translation.synthetic_config import SyntheticConfig
from attnkit.text.config import CheckConfig, PhrasesConfig, VocabularyConfig

VECTORS = {
    "train": "word2vec",
    "similar": "Vectors.most_similar",
    "analogy": "Vectors.most_similar Vectors.most_similar_cosmul",
    "odd-one": "Vectors.doesnt_match",
    "distance": "Vectors.distance",
    "convert": "Vectors.load Vectors.save Vectors.table",
    "project": "project",
    "evaluate": "evaluate_vectors",
    "cluster": "cluster",
    "phrases": "phrases",
    "compare-context": "compare_context",
    "one-hot": "compare_one_hot",
}
"""Subcommand of word2vec -> calls."""
SETTINGS = {
    "check": (CheckConfig, {}),
    "clean": (CleanConfig, {"keep_copies": "drop_copies", "any_language": "check_languages"}),
    "vocab": (VocabularyConfig, {"symbol": "symbols"}),
    "back-translate": (SyntheticConfig, {}),
    "augment": (SyntheticConfig, {}),
    "distill": (SyntheticConfig, {}),
    "word2vec phrases": (PhrasesConfig, {"connector": "connectors"}),
}
"""Command -> model of its ``settings``, and options whose key has another name."""
KEYS = {
    "bidirectional": "data.bidirectional",
    "weight": "data.weights",
    "accept_data": "data.accept",
    "average": "checkpoints.average",
    "vocab": "vocabulary_files",
    "add_symbols": "extension.symbols",
    "extend_vocab": "extension.files",
    "mix": "data.mix_src",
    "units": "masking.mask_unit",
    "direction": "direction",
    "from_scratch": "finetuning.from_scratch",
    "patience": "limits.early_stopping_patience",
    "phrases": "data.phrases.passes",
    "subwords": "subwords",
    **{name: f"data.{name}" for name in ("lower", "min_count", "max_vocab", "tokenizer")},
    **{name: f"subwords.{name}" for name in ("min_n", "max_n", "buckets")},
    **{name: name for name in ("method", "context", "loss", "dim", "window", "negative", "sample", "alpha")},
    **{
        name: name
        for name in ("min_alpha", "ns_exponent", "epochs", "dynamic_window", "exact", "deterministic", "save_every")
    },
}
"""Option of training -> key of ``settings``."""
TRAINED = {
    "pretrain-mlm": "mlm",
    "pretrain-clm": "clm",
    "finetune": "text-classification",
    "word2vec train": "word2vec",
}
"""Command -> a task that it trains, if not translation."""
RENAMED = {
    "fill-mask": {"texts": "lines"},
    "vocab": {"paths": "files"},
    "train": {"output": "run", "data": "src", "valid_data": "valid_src"},
    "pretrain-mlm": {"output": "run"},
    "pretrain-clm": {"output": "run"},
    "finetune": {"train": "files", "dev": "valid", "output": "run", "run": "pretrained"},
    "predict": {"inputs": "texts"},
    "translate": {"input": "lines", "target_prefix": "prefixes", "return_attention": "attention"},
    "attend": {"text": "lines", "target": "targets", "pair": "pairs", "alignment": "alignments"},
    "score": {"src": "sources", "tgt": "targets"},
    "score-bleu": {"hyp": "hypotheses", "refs": "references", "sentence": "sentences"},
    "compare": {"src": "tests", "tgt": "tests", "lines": "n_lines"},
    "plan": {"data": "files"},
    "report": {"src": "tests", "tgt": "tests", "text": "texts"},
    "average": {"checkpoint": "checkpoints"},
    "verify": {"runs": "run"},
    "import": {"output": "run"},
    "toy-corpus": {"output": "folder"},
    "word2vec train": {"output": "run"},
    "word2vec similar": {"n": "topn", "top": "restrict_vocab", "words": "positive"},
    "word2vec analogy": {"n": "topn", "top": "restrict_vocab", "words": "positive"},
    "word2vec project": {"run": "vectors", "words": "n_words"},
    "word2vec distance": {"first": "a", "second": "b"},
    "word2vec evaluate": {"path": "vectors", "files": "questions"},
    "word2vec cluster": {"path": "vectors", "k": "n_classes", "top": "n_words"},
    "word2vec phrases": {"paths": "files"},
    "word2vec convert": {"source": "path", "goal": "path", "to": "format"},
    "word2vec one-hot": {"run": "vectors"},
    "serve": {"api_key_file": "api_key"},
}
"""Options whose keyword has another name."""
EVERYWHERE = {
    "json": "results have to_dict",
    "quiet": "a call shows no progress, unless it has the keyword",
    "summary": "results have the counts",
    "strict": "texts are Unicode already; warnings are raised by the filters of the module warnings",
    "sets": "settings",
    "batch_size": "it changes no result, and calls choose it",
    "output": "results are returned",
}
PICTURES = "a notebook shows a result; page() is its HTML"
REASONS = {
    "check": {"export_to": "export refuses before it writes", "settings": "as export_to", "strict": "severity"},
    "train": {"dry_run": "it prints", "task": "train_autoencoder, train_classifier, word2vec", "pair": "data.pairs",
              "valid_pair": "data.valid_pairs", "denoise": "src and tgt are the same files, data.denoise={}"},
    **{name: {"dry_run": "it prints"} for name in ("pretrain-mlm", "pretrain-clm", "finetune", "sweep")},
    "word2vec train": {"dry_run": "it prints"},
    "predict": {"format": "texts are lists", "gold": "confusion(predicted, gold)", "confusion": "confusion",
                "batch_tokens": "it changes no result", "every": "probabilities of each result"},
    "fill-mask": {"fill": "filled of each result"},
    "generate": {"stream": "stream"},
    "translate": {"protect": "translate_protected", "resume": "back_translate and distill resume; lists are in memory",
                  "return_scores": "score", "return_confidence": "confidence", "return_token_scores": "token_scores",
                  "batch_type": "it changes no result"},
    "attend": {**dict.fromkeys(("html", "svg", "png", "pdf", "kind", "head", "unit", "hide_special"), PICTURES),
               "compare": "compare_alignments", "example": "a lesson"},
    "embed": {"reconstruct": "AutoEncoder.reconstruct"},
    "score": {"return_token_scores": "log_probs of each result"},
    "score-bleu": {**dict.fromkeys(("against", "test", "samples", "seed"), "compare, on files of translations"),
                   **dict.fromkeys(("formula", "max_order"), "the formula of the lecture: a lesson")},
    "compare": dict.fromkeys(("seeds", "latex"), "tables of the terminal"),
    "runs": {"seeds": "a table of the terminal"},
    "report": {"pictures": PICTURES, "picture_format": PICTURES},
    "import": {"system": "Hugging Face is the only one"},
    "word2vec analogy": {"method": "most_similar, most_similar_cosmul"},
    "word2vec evaluate": {"sections": "sections of the result", "checkpoint": "Vectors.load"},
    "word2vec cluster": {"by_class": "classes of the result", "checkpoint": "Vectors.load"},
    "word2vec convert": {"space": "word2vec's text format of the terminal"},
    "word2vec project": {"format": PICTURES},
    "explain": {"topic": "a call of each topic", **dict.fromkeys(("svg", "png", "pdf"), "picture of the lesson")},
}  # fmt: skip
"""Options without a keyword, and what takes their place."""


def commands() -> Iterator[tuple[str, Any]]:
    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)
    for name in group.list_commands(None):  # type: ignore[arg-type]
        command = group.get_command(None, name)  # type: ignore[arg-type]
        if isinstance(command, LazyGroup):
            for sub in command.list_commands(None):  # type: ignore[arg-type]
                yield f"{name} {sub}", command.get_command(None, sub)  # type: ignore[arg-type]
        else:
            yield name, command


COMMANDS = dict(commands())


def keywords(name: str) -> set[str]:
    """Return the keywords of the calls of a command, and of loading their class."""
    calls = CALLS.get(name) or VECTORS[name.split()[-1]]
    found: set[str] = set()
    for call in calls.split():
        owner, _, method = call.partition(".")
        thing = getattr(attnkit, owner)
        if inspect.isclass(thing):
            found |= {*_hints(inspect.unwrap(thing.load.__func__))}
        if method:
            thing = inspect.getattr_static(thing, method)
        found |= {*_hints(inspect.unwrap(getattr(thing, "__func__", thing)))} if not inspect.isclass(thing) else set()
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_has_a_keyword_or_a_reason(name: str) -> None:
    known = keywords(name)
    model, keys = SETTINGS.get(name, (None, {}))
    assert known >= {*RENAMED.get(name, {}).values()}
    missing = []
    for option in (str(one.name) for one in COMMANDS[name].params):
        if option in known or RENAMED.get(name, {}).get(option) in known:
            continue
        if model is not None and keys.get(option, option) in model.model_fields:
            continue
        config = TASKS[TRAINED.get(name, "translation")].config
        if "on_event" in known and option in KEYS and has_key(config, {}, KEYS[option]):
            continue
        missing += [] if option in REASONS.get(name, {}) or option in EVERYWHERE else [option]
    assert missing == []


def test_no_reason_is_left_over() -> None:
    """What has a keyword by now needs none."""
    for name, reasons in REASONS.items():
        assert {*reasons} <= {one.name for one in COMMANDS[name].params}, name
        assert {*reasons} & keywords(name) - {"seed", "format", "settings"} == set(), name
    for name, others in RENAMED.items():
        assert {*others} <= {one.name for one in COMMANDS[name].params}, name
    assert {*VECTORS} == {name.split()[1] for name in COMMANDS if " " in name}
