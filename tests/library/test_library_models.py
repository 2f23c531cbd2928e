"""Each class of the library against the command line's own parts, and against a definition."""

from __future__ import annotations

import ast
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import finetuned
import numpy as np
import pytest
import torch
from hub_runs import configure, save_run, shaken, vocabulary

import attnkit
import attnkit.models
from attnkit.data.config import DataConfig, TextConfig
from attnkit.engine.loading import load_model
from attnkit.engine.run_summary import describe_model, find_languages
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError, RunError, UsageError
from attnkit.models.bert import Bert
from attnkit.models.gpt import Gpt
from attnkit.models.layers import PackedLayout
from attnkit.protocols import BOS_ID, EOS_ID

LINES = ["the lazy dog sleeps", "", "the quick brown fox jumps over the lazy dog", "who?"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    found = {}
    for name, task, options in (
        ("bert", "mlm", {}),
        ("gpt", "clm", {}),
        ("back", "clm", {"direction": "right-to-left"}),
    ):
        torch.manual_seed(6)
        words = vocabulary("bpe")
        config = configure(task, words, **options)
        model = (Bert if task == "mlm" else Gpt)(config.model, words.vocab_size)
        found[name] = save_run(folder / name, config, shaken(model), words)
    return found


def log_prob(model: Any, row: list[int], place: int, id: int) -> float:
    """Return the log-probability of an id at a place of a row, by a pass of its own."""
    with torch.no_grad():
        logits = model.head(model.hidden(torch.tensor([row]), PackedLayout.unpacked(1))[0, place]).double()
    return float(logits.log_softmax(-1)[id])


def test_scores_of_bert_mask_each_token_in_turn(runs: dict[str, Path]) -> None:
    opened = load_model(runs["bert"], "mlm", device="cpu")
    tokenizer = read_tokenizer(opened.checkpoint)
    mask = tokenizer.token_id("[MASK]")
    assert mask is not None
    for line, score in zip(LINES, attnkit.MaskedLM.load(runs["bert"], device="cpu").score(LINES), strict=True):
        ids = tokenizer.encode([line])[0]
        expected = [
            log_prob(opened.model, [BOS_ID, *ids[:i], mask, *ids[i + 1 :], EOS_ID], i + 1, id)
            for i, id in enumerate(ids)
        ]
        assert score.tokens == tokenizer.tokens(ids)
        assert score.token_log_probs == pytest.approx(expected, abs=1e-4)
        assert score.log_prob == pytest.approx(sum(expected), abs=1e-3)


@pytest.mark.parametrize("name", ["gpt", "back"])
def test_scores_of_gpt_read_each_text_once(runs: dict[str, Path], name: str) -> None:
    opened = load_model(runs[name], "clm", device="cpu")
    tokenizer = read_tokenizer(opened.checkpoint)
    for line, score in zip(LINES, attnkit.CausalLM.load(runs[name], device="cpu").score(LINES), strict=True):
        ids = tokenizer.encode([line])[0]
        read = ids[::-1] if name == "back" else ids
        expected = [log_prob(opened.model, [BOS_ID, *read[:i]], -1, id) for i, id in enumerate(read)]
        assert score.token_log_probs == pytest.approx(expected[::-1] if name == "back" else expected, abs=1e-4)


def test_scores_do_not_depend_on_other_lines(runs: dict[str, Path]) -> None:
    for model in (attnkit.MaskedLM.load(runs["bert"], device="cpu"), attnkit.CausalLM.load(runs["gpt"], device="cpu")):
        together = model.score(LINES * 3)
        assert together == [model.score([line])[0] for line in LINES] * 3


def test_masks_are_filled(runs: dict[str, Path]) -> None:
    model = attnkit.MaskedLM.load(runs["bert"], device="cpu")
    lines = ["the lazy [MASK] sleeps", "[MASK]?"]
    found = model.fill(lines, top=3)
    assert [len(one.masks[0]) for one in found] == [3, 3]
    assert list(model.fill_stream(iter(lines), top=3)) == found
    assert list(model.score_stream(iter(LINES * 99))) == model.score(LINES * 99), "more than a window"
    assert np.array_equal(list(model.embed_stream(iter(LINES), what="cls")), model.embed(LINES, what="cls"))
    assert found[0].to_dict()["filled"] == found[0].filled
    with pytest.raises(DataError, match=r"no \[MASK\]"):
        model.fill(["no mask"])
    with pytest.raises(DataError, match=r"contains \[MASK\]"):
        model.score(["a [MASK]"])
    assert "MaskedLM" in repr(model) and "cpu, float32" in repr(model)


def test_vectors_of_lines(runs: dict[str, Path]) -> None:
    bert = attnkit.MaskedLM.load(runs["bert"], device="cpu")
    opened = load_model(runs["bert"], "mlm", device="cpu")
    ids = read_tokenizer(opened.checkpoint).encode(LINES[:1])[0]
    with torch.no_grad():
        states = opened.model.hidden(torch.tensor([[BOS_ID, *ids, EOS_ID]]), PackedLayout.unpacked(1))[0]
    np.testing.assert_allclose(bert.embed(LINES)[0], states[1:-1].mean(0), atol=1e-5)
    np.testing.assert_allclose(bert.embed(LINES, what="cls")[0], states[0], atol=1e-5)
    assert not bert.embed(LINES)[1].any(), "a blank line has no tokens"
    assert attnkit.CausalLM.load(runs["gpt"], device="cpu").embed(LINES).shape == bert.embed(LINES).shape
    with pytest.raises(UsageError, match="no layer 9"):
        bert.embed(LINES, layer=9)


def test_a_text_streams_as_it_is_generated(runs: dict[str, Path]) -> None:
    model = attnkit.CausalLM.load(runs["gpt"], device="cpu")
    whole = model.generate(["the lazy"], max_new_tokens=12)[0]
    pieces = list(model.stream("the lazy", max_new_tokens=12))
    assert "".join(pieces) == whole.text and len(pieces) > 3
    assert model.summary.engine in repr(model)
    sampled = model.generate(["the", "a"], n=2, temperature=0.9, seed=3, max_new_tokens=6)
    prompts = ["the", "a", "who"] * 100
    given: Any = {"n": 2, "seed": 3, "max_new_tokens": 2}
    assert list(model.generate_stream(iter(prompts), **given)) == model.generate(prompts, **given), "numbered through"
    assert list(model.score_stream(iter(LINES))) == model.score(LINES)
    assert np.array_equal(list(model.embed_stream(iter(LINES))), model.embed(LINES))
    assert len(sampled) == 4 and sampled == model.generate(["the", "a"], n=2, temperature=0.9, seed=3, max_new_tokens=6)


def test_a_stream_that_is_left_ends_its_thread(runs: dict[str, Path]) -> None:
    model = attnkit.CausalLM.load(runs["gpt"], device="cpu")
    before = threading.active_count()
    stream = model.stream("the lazy", max_new_tokens=1000)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert model.generate(["the lazy"], max_new_tokens=2), "the generator is free again"


def test_errors_in_a_stream_reach_the_caller(runs: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="right-to-left"):
        attnkit.CausalLM.load(runs["back"], device="cpu").stream("the")
    model = attnkit.CausalLM.load(runs["gpt"], device="cpu")
    with pytest.raises(UsageError, match="temperature"):
        model.stream("the", temperature=-1.0)


def test_a_text_classifier_gives_what_predict_gives(tmp_path: Path) -> None:
    run = finetuned.random_run(tmp_path / "run", "text-classification", ["bad", "good"])
    model = attnkit.TextClassifier.load(run, device="cpu")
    found = model.predict(LINES)
    predictor: Any = finetuned.predicting(run)
    for one, row in zip(found, predictor.classify(LINES, [None] * len(LINES)), strict=True):
        assert one.probability == max(row) and one.label == ["bad", "good"][row.index(max(row))]
        assert list(one.probabilities.values()) == sorted(row, reverse=True)
    assert list(model.predict_stream(iter(LINES))) == found
    assert set(found[0].to_dict()) == {"label", "probability", "probabilities"}
    assert "labels bad, good" in repr(model)
    with pytest.raises(DataError, match="4 texts, but 1 pairs"):
        model.predict(LINES, ["a"])
    with pytest.raises(RunError, match="of task 'text-classification', not of token-classification"):
        attnkit.TokenClassifier.load(run, device="cpu")


def test_a_tagger_tags_words_and_texts(tmp_path: Path) -> None:
    labels = ["B-LOC", "B-PER", "I-PER", "O"]
    run = finetuned.random_run(tmp_path / "run", "token-classification", labels)
    model = attnkit.TokenClassifier.load(run, device="cpu")
    found = model.predict(["ada lives in london", ["ada", "lives", "in", "london"], ""])
    assert found[0] == found[1] and found[2].tags == []
    assert len(found[0].tags) == len(found[0].probabilities) == 4
    entities = found[0].to_dict()["entities"]
    assert [one["text"] for one in entities] == [" ".join(found[0].words[e.begin : e.end]) for e in found[0].entities]


def test_answers_are_spans_of_the_context(tmp_path: Path) -> None:
    model = attnkit.QuestionAnswering.load(finetuned.random_run(tmp_path / "run", "question-answering"), device="cpu")
    context = "ada lives in london, paris sleeps"
    (answer,) = model.predict(["who sleeps?"], [context])
    found = list(model.predict_stream(iter(["who sleeps?"] * 300), iter([context] * 300)))
    # A product of another number of rows may be rounded differently.
    near = pytest.approx(answer.probability, rel=1e-5)
    assert len(found) == 300
    assert {(one.text, one.begin, one.end) for one in found} == {(answer.text, answer.begin, answer.end)}
    assert all(one.probability == near for one in found)
    assert answer.begin is not None and context[answer.begin : answer.end] == answer.text
    with pytest.raises(DataError, match="1 questions, but 0 contexts"):
        model.predict(["who?"], [])


def test_load_knows_every_task(runs: dict[str, Path], trained: Path) -> None:
    assert type(attnkit.load(runs["bert"], device="cpu")) is attnkit.MaskedLM
    assert type(attnkit.load(runs["gpt"], device="cpu", engine="torch")) is attnkit.CausalLM
    assert type(attnkit.load(trained, device="cpu")) is attnkit.Translator
    with pytest.raises(UsageError, match="no choice of engine"):
        attnkit.load(runs["bert"], engine="torch")
    with pytest.raises(UsageError, match="only translators can be an ensemble"):
        attnkit.load(runs["bert"], runs["bert"])
    with pytest.raises(RunError, match="this is a run of task 'mlm'"):
        attnkit.CausalLM.load(runs["bert"])


def test_texts_alone_are_those_of_translations(trained: Path) -> None:
    model = attnkit.Translator.load(trained, device="cpu")
    lines = ["1 2 3", "", " 4 5", "6. 7."]
    found = model.translate(lines, beam_size=3, num_hypotheses=2)
    expected = [[one.text, *(other.text for other in one.alternatives)] for one in found]
    assert model.translate_texts(lines, beam_size=3, num_hypotheses=2) == expected
    with pytest.warns(UserWarning, match="not trained to read terms"):
        model.translate(["1"], suppress=["9"], glossary={"1": "2"})  # of that call alone
    assert model.translate_texts(lines) == [[one.text] for one in model.translate(lines)]
    with pytest.raises(DataError, match="a int, not a text") as error:
        list(model.translate_stream(["1", 5]))  # type: ignore[list-item]
    assert error.value.where == "line 2"
    with pytest.raises(DataError, match="a line break within a line"):
        model.translate(["1", "2\n3"])


def test_what_a_run_is(trained: Path) -> None:
    translator = attnkit.Translator.load(trained, device="cpu", engine="torch")
    summary, lines = translator.summary, ["1 2", "3", ""]
    assert list(translator.score_stream(iter(lines), iter(lines))) == translator.score(lines, lines)
    (prefixed,) = translator.translate_stream(["1 2"], prefixes=iter(["9"]))
    assert prefixed == translator.translate(["1 2"], prefixes=["9"])[0]
    opened = load_model(trained, "translation", device="cpu")
    assert summary.n_parameters == sum(p.numel() for p in opened.model.parameters())
    assert (summary.task, summary.engine, summary.precision) == ("translation", "torch", "float32")
    assert summary.checkpoint == opened.checkpoint.name and set(summary.scores) == set(opened.config.metrics)
    assert summary.to_dict()["path"] == str(trained)


def test_a_repr_says_what_a_run_is(trained: Path, runs: dict[str, Path], tmp_path: Path) -> None:
    """Task, languages if the names of files tell them, model, size, checkpoint, scores, device, precision, engine."""
    torch.manual_seed(6)
    words = vocabulary("bpe")
    config = configure("mlm", words)
    config = config.model_copy(update={"data": config.data.model_copy(update={"files": ("a/train.de.gz", "x.txt")})})
    run = save_run(tmp_path / "german", config, shaken(Bert(config.model, words.vocab_size)), words)
    found = attnkit.MaskedLM.load(run, device="cpu")
    size = f"{found.summary.n_parameters / 1000:.1f}k parameters, {words.vocab_size:,} tokens"
    assert repr(found) == f"MaskedLM({run}: mlm de, {describe_model(config)}, {size}; {found.summary.checkpoint}; " + (
        "cpu, float32, torch)"
    )
    shown = repr(attnkit.Translator.load(trained, device="cpu"))
    assert f"{trained}: translation, transformer" in shown and "; step-" in shown, "train.src names no language"
    assert "BLEU" in shown and shown.endswith("; cpu, float32, compiled)")


def test_the_module_of_a_run_has_its_weights(runs: dict[str, Path], trained: Path) -> None:
    for run, task, kind in ((runs["bert"], "mlm", attnkit.models.Bert), (trained, "translation", torch.nn.Module)):
        module = attnkit.load_module(run, kind)
        expected = load_model(run, task, device="cpu").model.state_dict()
        assert module.state_dict().keys() == expected.keys() and not module.training
        assert all(torch.equal(tensor, expected[name]) for name, tensor in module.state_dict().items())
    with pytest.raises(RunError, match="the model of this run is a Bert, not a Gpt") as error:
        attnkit.load_module(runs["bert"], Gpt)
    assert error.value.help == "give attnkit.models.Bert"


def test_names_of_models_are_those_that_types_know() -> None:
    assert sorted(name for names in attnkit.models._MODULES.values() for name in names) == sorted(
        attnkit.models.__all__
    )
    for module, names in attnkit.models._MODULES.items():
        for name in names:
            assert getattr(attnkit.models, name) is getattr(import_module(f"attnkit.models.{module}"), name)
    tree = ast.parse(Path(str(attnkit.models.__file__)).read_text())
    (typed,) = (node for node in tree.body if isinstance(node, ast.If))
    found = [alias.name for line in typed.body if isinstance(line, ast.ImportFrom) for alias in line.names]
    assert sorted(found) == sorted(attnkit.models.__all__)
    with pytest.raises(ImportError, match="cannot import name 'Lstm'"):
        from attnkit.models import Lstm  # type: ignore[attr-defined]  # noqa: F401


def test_languages_are_those_of_directions_and_of_names_of_files() -> None:
    assert find_languages(DataConfig(src=("a.en",), tgt=("a.pt-BR.gz",))) == ("en:pt-BR",)
    assert find_languages(DataConfig(src=("a.en",), tgt=("a.tgt",))) == ()
    both = DataConfig(src=("a.en", "b.en"), tgt=("a.de", "b.fr"), directions=("en:de", "en:fr"), bidirectional=True)
    assert find_languages(both) == ("en:de", "en:fr", "de:en", "fr:en")
    assert find_languages(TextConfig(files=("a.en", "b.en", "c.jsonl:fr", "d.txt"))) == ("en", "fr")


def test_a_repr_of_vectors(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("the dog and a cat sleep\n" * 30)
    vectors = attnkit.word2vec(tmp_path / "a.en", tmp_path / "run", settings={"dim": 4, "data.min_count": 1})
    assert vectors.summary is not None and vectors.summary.vocab_size == len(vectors) == 6
    shown = f"Vectors({tmp_path / 'run'}: word2vec en, skip-gram, vectors of 4, "
    assert repr(vectors).startswith(shown) and repr(vectors).endswith("cpu, float32, numpy)")
    vectors.save(tmp_path / "v.txt")
    assert repr(attnkit.Vectors.load(tmp_path / "v.txt")) == f"Vectors({tmp_path / 'v.txt'}: 6 words, vectors of 4)"
