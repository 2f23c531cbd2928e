"""Demo: generate a corpus, train a small Transformer on it, and evaluate it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from attnkit.config import Tree, load_yaml, validate
from attnkit.data.prepared_dir import StatusEvent
from attnkit.engine.trainer import Event, TrainRequest, train
from attnkit.errors import UsageError
from attnkit.io import atomic
from attnkit.metrics.bleu import MetricScore, corpus_bleu
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.tasks.translation.translated_line import TranslatedLine
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.toy.corpus import NOTES_SENTENCES, Corpus, as_files, make_corpus
from attnkit.text.toy.lexicon import translate_word_for_word

SIZES = (24_000, 500, 1000)  #: pairs for training, validation and test

CONFIG: Tree = {
    "vocabulary": {"kind": "bpe", "size": 1600},
    "model": {
        "kind": "transformer",
        "d_model": 192,
        "n_heads": 4,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "d_ff": 768,
        "norm": "pre",
        "positions": "rotary",
        "dropout": 0.0,
        "tie_embeddings": "all",
    },
    "optimization": {
        "learning_rate": 3e-3,
        "schedule": "cosine",
        "warmup_steps": 200,
        "batch_tokens": 2500,
        "label_smoothing": 0.0,
        "ema_decay": 0.995,
    },
    "limits": {"max_epochs": 4.5},
    "evaluation": {"every_epochs": 1.5, "n_samples": 2},
    "checkpoints": {"keep_last": 1},
    "decoding": {"beam_size": 4},
}
"""Trains in two minutes on two laptop cores, and translates nearly all test sentences correctly."""


@dataclass(frozen=True)
class DemoResults:
    """Evaluation of the trained demo model."""

    bleu: MetricScore
    n_test: int
    word_by_word: MetricScore  #: BLEU of translating word by word with the corpus's own lexicon
    examples: list[tuple[str, str, str]]
    """(source, reference, translation) of test sentences with pairs of words that never co-occur in training."""
    notes: list[TranslatedLine]  #: translations of the sentences of the lecture notes, with attention


def write_corpus(folder: Path, seed: int) -> Corpus:
    """Generate the corpus and write its three parts as line-aligned files."""
    corpus = make_corpus(seed, *SIZES)
    atomic.make_dirs(folder)
    for name, lines in as_files(corpus.parts, ("en", "fr")).items():
        atomic.write_text(folder / name, "".join(f"{line}\n" for line in lines))
    return corpus


def demo(
    folder: Path, seed: int, stop: Callable[[], bool], report_progress: Callable[[str], None] = lambda text: None
) -> Iterator[Event | DemoResults]:
    """Generate the corpus, train and evaluate; resume if called again.

    Raises:
        UsageError: the folder contains a demo with another seed, whose corpus would be overwritten.
    """
    begun = folder / "run" / "config.yaml"
    if begun.exists() and (other := load_yaml(begun).get("seed")) != seed:
        raise UsageError(
            f"the folder contains a demo with seed {other}",
            where=str(folder),
            help="choose another -o, or use that seed",
        )
    yield StatusEvent(f"generating {SIZES[0]:,} English sentences with French translations")
    corpus = write_corpus(folder / "corpus", seed)
    data = {
        "src": [str(folder / "corpus" / "train.en")],
        "tgt": [str(folder / "corpus" / "train.fr")],
        "valid_src": [str(folder / "corpus" / "valid.en")],
        "valid_tgt": [str(folder / "corpus" / "valid.fr")],
    }
    config = validate(TranslationConfig, {**CONFIG, "data": data, "seed": seed})
    yield from train(TrainRequest(config, folder / "run", stop=stop, report_progress=report_progress))
    yield StatusEvent(f"translating {len(corpus.test):,} unseen sentences, half of them with unseen word combinations")
    translator = load_translator([folder / "run"])
    sources, references = [en for en, _ in corpus.test], [fr for _, fr in corpus.test]
    hypotheses = translator.translate(sources)
    novel = [i for i, source in enumerate(sources) if source in corpus.novel]
    yield DemoResults(
        bleu=corpus_bleu(hypotheses, [references]),
        n_test=len(sources),
        word_by_word=corpus_bleu([translate_word_for_word(source) for source in sources], [references]),
        examples=[(sources[i], references[i], hypotheses[i]) for i in novel[:4]],
        notes=list(translator.stream(NOTES_SENTENCES, record=True)),
    )
