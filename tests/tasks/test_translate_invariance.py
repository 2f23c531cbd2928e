"""In float32 a line's translation depends on the line alone: not on batch sizes, batch mates, order or threads.

Compiled loops promise this exactly. Products of torch round differently for different shapes on some processors (MKL
without AVX-512), so in hundreds of lines a tie of two hypotheses within 1e-6 may end the other way.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from attnkit.checkpoints.weights import tensors_of
from attnkit.compiled.packed_transformer import PackedTransformer
from attnkit.compiled.search import CompiledSearch
from attnkit.data.loader import Batching
from attnkit.decoding.config import SearchConfig
from attnkit.engine.search_backend import WholeSearch
from attnkit.engine.seq2seq import LocalSearch
from attnkit.tasks.translation.translated_line import TranslatedLine
from attnkit.tasks.translation.translator import TranslationPipeline, load_translator

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("transformer", {}),
    "transformer-pre-rotary": ("transformer", {"model__norm": "pre", "model__positions": "rotary"}),
    "transformer-relative": ("transformer", {"model__positions": "relative"}),
    "transformer-alibi": ("transformer", {"model__positions": "alibi", "model__norm": "pre"}),
    "transformer-learned": ("transformer", {"model__positions": "learned"}),
    "rnn-additive": ("rnn", {}),
    "rnn-additive-current": ("rnn", {"model__attention_query": "current"}),
    "rnn-dot-current": ("rnn", {"model__alignment": "dot", "model__attention_query": "current"}),
    "rnn-lstm-general-feeding": (
        "rnn",
        {
            "model__cell": "lstm",
            "model__alignment": "general",
            "model__attention_query": "current",
            "model__input_feeding": True,
        },
    ),
    "transformer-no-positions": ("transformer", {"model__positions": "none"}),
    "rnn-start-last": ("rnn", {"model__decoder_init": "last", "model__decoder_layers": 2}),
    "rnn-start-layers": (
        "rnn",
        {"model__decoder_init": "layers", "model__encoder_layers": 2, "model__decoder_layers": 2},
    ),
    "rnn-plain-none": ("rnn", {"model__cell": "rnn", "model__alignment": "none", "model__bidirectional": False}),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, workshop: Any, trained: Path) -> tuple[str, TranslationPipeline]:
    kind, changes = MODELS[request.param]
    run = workshop.random_run(trained, kind, **changes)
    translator = TranslationPipeline([run], LocalSearch([run.model], run.device))
    translator.search = translator.configure({"no_repeat_ngram_size": 2})  # random weights like to repeat themselves
    return request.param, translator


def make_lines(n: int) -> list[str]:
    """Return short strings of digits, some of them blank, odd or unknown to the vocabulary."""
    rng = random.Random(3)
    lines = [" ".join(rng.choices("0123456789", k=rng.randint(1, 7))) for _ in range(n)]
    for place, odd in ((5, ""), (6, "   "), (17, "1\u20282"), (40, "été 中 😀"), (41, "\t7\t")):
        lines[place] = odd
    return lines


def facts(found: list[TranslatedLine]) -> tuple[list[str], list[float]]:
    outputs = [output for translation in found for output in translation.outputs]
    return [output.text for output in outputs], [output.score for output in outputs]


def assert_batches_change_nothing(
    translator: TranslationPipeline, lines: list[str], alone: int, config: SearchConfig, ties: int = 0
) -> None:
    """Compare batches of 64 with smaller ones and shuffled lines; the first ``alone`` lines also by themselves."""
    expected = facts(list(translator.stream(lines, config)))
    assert len(expected[0]) == len(lines) and len(set(expected[0])) > len(lines) // 20
    batchings = [(Batching(1), lines[:alone]), (Batching(7), lines), (Batching(90, "tokens"), lines)]
    for batching, given in batchings:
        assert_same(facts(list(translator.stream(given, config, batching))), expected, str(batching), ties)
    places = list(range(len(lines)))
    random.Random(1).shuffle(places)
    found = facts(list(translator.stream([lines[i] for i in places], config)))
    assert_same(found, tuple([values[i] for i in places] for values in expected), "shuffled", ties)


def assert_same(found: Any, expected: Any, what: str, ties: int) -> None:
    """Compare texts and scores of lines; at most ``ties`` lines may have another text."""
    pairs = list(zip(zip(*found, strict=True), zip(*expected, strict=False), strict=False))
    same = [(score, other) for (text, score), (other_text, other) in pairs if text == other_text]
    differing = [f"{text!r} for {other!r}" for (text, _), (other, _) in pairs if text != other]
    assert len(pairs) == len(found[0]) and len(differing) <= ties, f"{what}: {differing}"
    assert [score for score, _ in same] == pytest.approx([score for _, score in same], abs=1e-4), what


@pytest.mark.sample(2)
def test_beam_search_ignores_how_lines_are_batched(model: tuple[str, TranslationPipeline]) -> None:
    _, translator = model
    assert_batches_change_nothing(translator, make_lines(45), 20, translator.search)  # a thousand: the slow test below


@pytest.mark.sample(3)
def test_greedy_search_ignores_how_lines_are_batched(model: tuple[str, TranslationPipeline]) -> None:
    _, translator = model
    assert_batches_change_nothing(translator, make_lines(45), 45, translator.configure({"beam_size": 1}))


@pytest.mark.slow
def test_hundreds_of_lines_of_every_model(model: tuple[str, TranslationPipeline]) -> None:
    name, translator = model
    n = 1000 if name == "transformer" else 300
    assert_batches_change_nothing(translator, make_lines(n), n, translator.configure({"beam_size": 5}), ties=n // 300)


@pytest.mark.sample(3)
def test_samples_are_keyed_by_line_and_seed(model: tuple[str, TranslationPipeline]) -> None:
    _, translator = model
    lines = make_lines(60)
    config = translator.configure({"sampling": True, "seed": 7, "num_hypotheses": 2, "top_k": 5})
    texts, scores = facts(list(translator.stream(lines, config)))
    assert len(texts) == 120
    for batching in (Batching(7), Batching(64, window=30)):
        other_texts, other_scores = facts(list(translator.stream(lines, config, batching)))
        assert other_texts == texts
        assert other_scores == pytest.approx(scores, abs=1e-4)
    reseeded = config.model_copy(update={"seed": 8})
    assert facts(list(translator.stream(lines, reseeded)))[0] != texts
    firsts, seconds = texts[::2], texts[1::2]
    assert firsts != seconds


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("transformer")])
def test_compiled_loops_ignore_how_lines_are_batched(workshop: Any, trained: Path, name: str) -> None:
    """They find what torch finds, in any number of threads."""
    kind, changes = MODELS[name]
    run = workshop.random_run(trained, kind, **changes)
    weights = {key: tensor.numpy() for key, tensor in tensors_of(run.model).items()}
    n_words = run.tgt_tokenizer.vocab_size - run.tgt_tokenizer.n_unused
    packed = PackedTransformer(run.config.model, weights, n_words)  # type: ignore[arg-type]
    threads = (WholeSearch(CompiledSearch(packed, n_threads=n)) for n in (1, 3))
    one, several = (TranslationPipeline([run], searcher) for searcher in threads)
    torch = TranslationPipeline([run], LocalSearch([run.model], run.device))
    lines = make_lines(150 if name == "transformer" else 45)
    for options in ({"beam_size": 1}, {"beam_size": 3}):
        for translator in (one, several):
            assert_batches_change_nothing(translator, lines, 45, translator.configure(options))
        config = one.configure({**options, "num_hypotheses": options["beam_size"]})
        expected, *others = (facts(list(translator.stream(lines, config))) for translator in (one, several, torch))
        for texts, scores in others:
            assert texts == expected[0]
            assert scores == pytest.approx(expected[1], abs=1e-4)


def test_an_ensemble_of_one_run_twice_is_that_run(trained: Path) -> None:
    lines = make_lines(50)
    one, two = load_translator([trained], device="cpu"), load_translator([trained, trained], device="cpu")
    expected, found = facts(list(one.stream(lines))), facts(list(two.stream(lines)))
    assert found[0] == expected[0]
    assert found[1] == pytest.approx(expected[1], abs=1e-4)
