"""``attnkit.Word2Vec`` as a program uses it, and as a user of gensim guesses it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnkit
from attnkit.errors import DataError, UsageError
from attnkit.tasks.word2vec.config import WordTextConfig
from attnkit.tasks.word2vec.fit import count_words, encode_sentences

TINY: dict[str, Any] = {"vector_size": 20, "window": 2, "negative": 2, "sg": 1, "workers": 1, "min_count": 1}
SENTENCES = [f"{a} {v} {p}".split() for a in "abcd" for v in ("runs", "sleeps") for p in ("home", "away")] * 8


@pytest.fixture(scope="module")
def model() -> attnkit.Word2Vec:
    return attnkit.Word2Vec(SENTENCES, **TINY)


def same(found: attnkit.Vectors, expected: attnkit.Vectors) -> bool:
    words = expected.index_to_key
    return found.index_to_key == words and np.array_equal(found[words], expected[words])


def test_names_that_gensim_has(model: attnkit.Word2Vec) -> None:
    assert isinstance(model.wv, attnkit.Vectors)
    assert model.wv["a"].shape == (model.wv.vector_size,) == (20,)
    assert model.wv.index_to_key[:2] == ["runs", "home"]  # as often as others, and first
    assert len(model.wv.most_similar("a", topn=3)) == 3
    assert len(model.wv) == 8 and "zebra" not in model.wv


def test_the_steps_that_gensim_users_take(model: attnkit.Word2Vec) -> None:
    steps = attnkit.Word2Vec(**TINY)
    steps.build_vocab(SENTENCES)
    assert (steps.corpus_count, steps.corpus_total_words) == (len(SENTENCES), sum(map(len, SENTENCES)))
    with pytest.raises(UsageError, match="no vectors yet"):
        _ = steps.wv
    steps.train(SENTENCES, total_examples=steps.corpus_count, epochs=steps.epochs)
    assert same(steps.wv, model.wv)
    other = attnkit.Word2Vec(**TINY)
    other.build_vocab(corpus_iterable=[["a", "runs", "home"], ["only", "here", "a"]])
    other.train(corpus_iterable=SENTENCES, epochs=1)  # which says more words, that get no vector
    assert other.wv.index_to_key == ["a", "runs", "home", "only", "here"] and other.epochs == 1


def test_a_vocabulary_may_be_of_another_text_file(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("a runs home\nb sleeps away\n" * 30)
    model = attnkit.Word2Vec(**TINY)
    model.build_vocab(corpus_file=path)
    assert (model.corpus_count, model.corpus_total_words) == (60, 180)
    model.train(corpus_file=str(path), epochs=1)
    assert same(model.wv, attnkit.Word2Vec(corpus_file=path, **{**TINY, "epochs": 1}).wv)


def test_arguments_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="negative: invalid value 0"):
        attnkit.Word2Vec(**{**TINY, "negative": 0})
    assert attnkit.Word2Vec(**{**TINY, "negative": 0}, hs=1).config.loss == "hierarchical"
    assert not attnkit.Word2Vec(**TINY, shrink_windows=False).config.dynamic_window
    with pytest.raises(UsageError, match="sentences and corpus_file cannot be combined"):
        attnkit.Word2Vec(SENTENCES, corpus_file="text.txt", **TINY)
    for no_text in (attnkit.Word2Vec(**TINY).train, attnkit.Word2Vec(**TINY).build_vocab):
        with pytest.raises(UsageError, match="no text"):
            no_text()


@pytest.mark.parametrize("settings", [{"data.phrases.passes": 1}, {"data.tokenizer": "vocab.json"}])
def test_what_only_text_files_are_cut_by_is_not_left_out_silently(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="require corpus_file"):
        attnkit.Word2Vec(SENTENCES, **TINY, settings=settings)


@pytest.mark.parametrize(
    ("word", "why"), [("a\tb", "tab"), ("a\nb", "line feed"), ("", "is empty"), ("a\ud800", "lone surrogate")]
)
def test_words_that_could_not_be_saved_are_refused(word: str, why: str) -> None:
    with pytest.raises(DataError, match=why):
        attnkit.Word2Vec([[word, "b", "c"]] * 9, **TINY)


def test_a_failed_fit_leaves_the_model_as_it_was(model: attnkit.Word2Vec) -> None:
    own = attnkit.Word2Vec(SENTENCES, **TINY)
    with pytest.raises(DataError):
        own.fit([["a"]])
    assert same(own.wv, model.wv)


def test_sentences_texts_and_files_give_the_same(model: attnkit.Word2Vec, tmp_path: Path) -> None:
    texts = [" ".join(sentence) for sentence in SENTENCES]
    path = tmp_path / "text.txt"
    path.write_text("\n".join(texts) + "\n")
    for given in ({"sentences": texts}, {"sentences": str(path)}, {"sentences": path}, {"corpus_file": str(path)}):
        other = attnkit.Word2Vec(**given, **TINY)
        assert other.wv.index_to_key == model.wv.index_to_key
        assert same(other.wv, model.wv)
    assert same(attnkit.Word2Vec(**TINY).fit(SENTENCES).wv, model.wv)


def test_what_can_be_gone_through_once_is_refused_untouched() -> None:
    given = iter(SENTENCES)
    for once in (given, (sentence for sentence in given), map(list, given)):
        with pytest.raises(UsageError, match="can be iterated only once") as refused:
            attnkit.Word2Vec(once, **TINY)
        assert "a generator is exhausted after one pass" in str(refused.value.help)
    assert next(given) == SENTENCES[0]
    with pytest.raises(UsageError, match="lists of words, not int"):
        attnkit.Word2Vec(**TINY).fit(5)  # type: ignore[arg-type]


def test_an_object_that_begins_anew_is_taken(model: attnkit.Word2Vec) -> None:
    class Corpus:
        def __iter__(self) -> Iterator[list[str]]:
            return iter(SENTENCES)

    assert same(attnkit.Word2Vec(Corpus(), **TINY).wv, model.wv)


@pytest.mark.parametrize(
    ("sentences", "words"),
    [
        ([], "there are no words"),
        ([["a"], ["b"]], "no sentence contains two in-vocabulary words"),
        ([["a", 1]], "sentence 1 contains an item that is not text"),
    ],
)
def test_sentences_that_cannot_be_trained_on(sentences: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        attnkit.Word2Vec(sentences, **TINY)
    with pytest.raises(UsageError, match="no vectors yet"):
        _ = attnkit.Word2Vec(**TINY).wv


def test_counting_equals_a_naive_count(tmp_path: Path) -> None:
    drawn = np.random.default_rng(3)
    sentences = [[f"W{n}" for n in drawn.zipf(1.5, size=drawn.integers(1, 9)) if n < 30] for _ in range(300)]
    config = WordTextConfig(files=("-",), min_count=3, max_vocab=12, lower=True)
    words, n_raw, n_sentences = count_words(sentences, config)
    flat = [word.lower() for sentence in sentences for word in sentence]
    counts = {word: flat.count(word) for word in flat}
    ranked = sorted((word for word in counts if counts[word] >= 3), key=lambda w: (-counts[w], flat.index(w)))[:12]
    assert (words.words, words.counts.tolist(), n_raw) == (ranked, [counts[word] for word in ranked], len(flat))
    assert n_sentences == 300
    encoded = encode_sentences(tmp_path / "store", sentences, words, config)
    kept = [[ranked.index(w.lower()) for w in sentence if w.lower() in ranked] for sentence in sentences]
    assert [encoded.store[i].tolist() for i in range(len(encoded.store))] == [row for row in kept if row]
    assert encoded.n_raw == len(flat)


def test_a_saved_model_is_a_run_and_goes_on(model: attnkit.Word2Vec, tmp_path: Path) -> None:
    run = tmp_path / "run"
    model.save(run)
    again = attnkit.Word2Vec.load(run)
    assert same(again.wv, model.wv)
    assert same(attnkit.Vectors.load(run), model.wv)
    with pytest.raises(UsageError, match="already contains a run"):
        model.save(run)
    model.save(run, overwrite=True)
    before = again.wv["a"].copy()
    again.train([["a", "runs", "unheard"]] * 50, epochs=2, total_examples=50)
    assert not np.array_equal(again.wv["a"], before) and np.array_equal(again.wv["b"], model.wv["b"])
    assert "unheard" not in again.wv


def test_settings_reach_what_has_no_argument() -> None:
    model = attnkit.Word2Vec(**TINY, hs=1, cbow_mean=0, settings={"subwords.min_n": 2, "subwords.buckets": 50})
    assert model.config.loss == "hierarchical" and model.config.subwords is not None
    bag = attnkit.Word2Vec(vector_size=8, cbow_mean=0)
    assert (bag.config.method, bag.config.context, bag.config.dim) == ("cbow", "sum", 8)
    with pytest.raises(UsageError, match="unknown key 'windw'"):
        attnkit.Word2Vec(settings={"windw": 3})


def test_the_library_imports_no_torch() -> None:
    code = "import sys, attnkit; attnkit.Word2Vec; attnkit.Vectors; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
