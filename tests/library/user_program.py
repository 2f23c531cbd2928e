"""A program of a user: every public name of attnkit, with the types that its documentation promises.

It is checked by type checkers and not run (``test_user_types.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import assert_type

import attnkit
from attnkit.decoding.stopping import StopFlags
from attnkit.errors import AttnkitError, DataError, DivergedError, RunError, StoppedError, SystemFailure, UsageError
from attnkit.models import Bert, PackedLayout, RnnConfig, RnnTranslator, Transformer, TransformerConfig


def trained(folder: Path) -> attnkit.Translator:
    """Corpora, vocabularies, translators."""
    attnkit.toy_corpus("english-french", folder, pairs=200)
    report = attnkit.check(folder / "train.en", folder / "train.fr")
    n_usable: int = report.n_usable
    verdict: str = report.verdict
    kept: int = attnkit.clean(folder / "train.en", folder / "train.fr", folder / "clean").kept
    tokenizer = attnkit.vocab([folder / "train.en"], settings={"size": 500})
    ids: list[int] = tokenizer.encode(["A dog runs."])[0]
    print(n_usable, verdict, kept, ids)
    model = attnkit.train(
        folder / "train.en", folder / "train.fr", folder / "run", preset="tiny", max_steps=20, seed=1, quiet=True
    )
    assert_type(model, attnkit.Translator)
    return model


def translated(model: attnkit.Translator, lines: Sequence[str]) -> Iterator[str]:
    """Translations and their parts."""
    for translation in model.translate(lines, beam_size=5, attention=True, token_scores=True):
        text: str = translation.text
        score: float = translation.score
        tokens: list[str] = translation.tokens
        signs: Sequence[str] = translation.signs
        if translation.attention is not None:
            weights: list[list[float]] = translation.attention[0]
            print(weights, translation.attention.source_tokens)
        print(score, tokens, signs, translation.to_dict())
        yield text
    for texts in model.translate_texts(lines, num_hypotheses=2, beam_size=2):
        best: str = texts[0]
        print(best)
    for one in model.translate_stream(iter(lines)):
        yield one.text
    scores = model.score(list(lines), list(lines))
    total: float = sum(one.log_prob for one in scores)
    print(total, model.summary, repr(model))


def synthetic_pairs(folder: Path) -> None:
    """Training pairs that a translator makes."""
    made = attnkit.back_translate(folder / "run", folder / "mono.en", folder / "more", sampling=True, seed=3)
    kept: int = made.kept
    dropped: dict[str, int] = made.dropped
    taught = attnkit.distill(
        folder / "run", folder / "train.en", folder / "taught", tgt=folder / "train.fr", beam_size=4
    )
    more = attnkit.augment(
        folder / "train.en",
        folder / "train.fr",
        folder / "both-sides",
        forward=[folder / "run"],
        backward=folder / "back",
        sampling=True,
        num_hypotheses=2,
    )
    kept += more.kept
    bleu: float | None = taught.reference_bleu
    print(kept, dropped, bleu)


def language_models(folder: Path) -> None:
    """BERT and GPT."""
    bert = attnkit.pretrain_mlm(folder / "train.en", folder / "bert", preset="tiny", max_steps=20)
    assert_type(bert, attnkit.MaskedLM)
    gpt = attnkit.pretrain_clm([folder / "train.en"], folder / "gpt", preset="tiny", max_steps=20)
    assert_type(gpt, attnkit.CausalLM)
    filled: str = bert.fill(["The cat sat on the [MASK]."], top=3)[0].filled
    vectors: npt.NDArray[np.float32] = bert.embed(["A dog runs."])
    for piece in gpt.stream("A dog"):
        text: str = piece
        print(text)
    print(filled, vectors.shape, gpt.generate(["A dog"], max_new_tokens=5)[0].text)
    print(bert.score(["A dog."])[0].log_prob, gpt.embed(["A dog."]).shape)
    files = [(folder / "test.src", folder / "test.tgt")]
    for one in attnkit.compare([folder / "run", folder / "run"], files):
        system: float = one.scores[0].system
        groups: list[str] = [group.property for group in one.groups or []]
        print(groups)
        print(system)
    hours: float = attnkit.plan(task="clm", tokens=1e6, preset="tiny", rate=1000.0).hours
    print(hours)
    finished: list[str] = attnkit.sweep(folder / "sweep.yaml", folder / "sweep", quiet=True).finished
    print(finished)
    page: str = attnkit.report(folder / "run", texts=["A dog."], quiet=True).page()
    print(len(page))
    print(attnkit.compare_lm(folder / "bert", folder / "gpt", "A dog runs."))


def classifiers(folder: Path) -> None:
    """Fine-tuned models and those trained from scratch."""
    model = attnkit.TextClassifier.load(folder / "labels", device="cpu", threads=1)
    found = model.predict(["Good."])[0]
    label, probability = found.label, found.probability
    assert_type(label, str)
    assert_type(probability, float)
    tagger = attnkit.TokenClassifier.load(folder / "tagger")
    print([entity.type for entity in tagger.predict(["A dog in Paris."])[0].entities])
    reader = attnkit.QuestionAnswering.load(folder / "reader")
    print(reader.predict(["Who?"], ["A dog."])[0].text)
    codes = attnkit.train_autoencoder(folder / "train.en", folder / "codes", max_steps=20)
    assert_type(codes, attnkit.AutoEncoder)
    print(codes.embed(["A dog."]).shape, codes.reconstruct(["A dog."]))
    document = attnkit.train_classifier(folder / "train.tsv", folder / "han", max_steps=20)
    fine = attnkit.finetune(folder / "bert", "text-classification", folder / "train.tsv", folder / "fine", max_steps=9)
    print(document, fine)
    for each in model.predict_stream(iter(["Good."])):
        print(each.to_dict())


def word_vectors(folder: Path) -> None:
    """Word vectors, from files and from memory."""
    vectors = attnkit.word2vec(folder / "train.en", folder / "vectors", settings={"dim": 16})
    assert_type(vectors, attnkit.Vectors)
    for word, cosine in vectors.most_similar("dog", topn=3):
        assert_type(word, str)
        print(word, cosine + 1.0, vectors["dog"].shape, vectors.similarity("dog", "cat"))
    vectors.save(folder / "vectors.bin")
    model = attnkit.Word2Vec([["a", "dog"], ["a", "cat"]], vector_size=4, min_count=1, epochs=1)
    print(model.wv.most_similar("dog"))
    print(attnkit.project(vectors, n_words=20).points.shape)


def about_runs(folder: Path) -> None:
    """What is done with runs, and what a notebook shows."""
    loaded = attnkit.load(folder / "run")
    print(loaded)
    best: float | None = attnkit.list_runs(folder, sort="best")[0].best
    print(best)
    averaged = attnkit.average(folder / "run", 2)
    print(averaged.path, attnkit.verify(folder / "run").n_bad)
    print(attnkit.export(folder / "run", folder / "out", to="huggingface").path)
    print(attnkit.import_run(folder / "out", folder / "again"))
    print(attnkit.curves(folder / "run").steps)
    print(attnkit.confusion(["a", "b"], ["a", "a"]).counts)
    links: list[tuple[int, int]] = attnkit.align(folder / "train.en", folder / "train.fr").links[0]
    bleu: float = attnkit.score_bleu(["a dog"], ["a dog"]).score
    maps = attnkit.attend(folder / "run", ["A dog."])
    others = attnkit.compare_alignments(folder / "run", ["A dog."], alignments=["dot", "additive"])
    print(links, bleu, maps.page(), others.to_dict(), attnkit.__version__)


def streams(folder: Path, lines: Sequence[str]) -> None:
    """Calls that take any iterable, and what stops them."""
    translator = attnkit.Translator.load(folder / "run", adapter=folder / "adapter", split="lines")
    document = translator.translate_document("<p>A dog.</p>", "html", tgt_lang="de")
    kept: list[str] = [one.text for one in translator.translate_protected(lines)]
    print(document.text, document.passages[0].signs, document.notes, kept, str(document))
    pairs = translator.score_stream(iter(lines), iter(lines), src_lang="en", tgt_lang="de")
    total: float = sum(one.log_prob for one in pairs)
    translator.set_threads(2)
    translator.set_stops(StopFlags(1))
    print(total, translator.replicate().tgt_tokenizer.vocab_size, translator.summary.languages)
    bert = attnkit.MaskedLM.load(folder / "bert")
    bert.set_stops(None)
    filled: list[str] = [one.filled for one in bert.fill_stream(iter(lines))]
    print(filled, next(bert.score_stream(iter(lines))).tokens, next(bert.embed_stream(iter(lines))).shape)
    gpt = attnkit.CausalLM.load(folder / "gpt", window=64)
    gpt.set_stops(None)
    made: list[str] = [one.text for one in gpt.generate_stream(iter(lines), n=2, seed=1)]
    print(made, next(gpt.score_stream(iter(lines))).log_prob, next(gpt.embed_stream(iter(lines))).shape)
    coder = attnkit.AutoEncoder.load(folder / "codes")
    print(next(coder.embed_stream(iter(lines))).shape, list(coder.reconstruct_stream(iter(lines))))
    reader = attnkit.QuestionAnswering.load(folder / "reader")
    answers: list[str] = [one.text for one in reader.predict_stream(iter(lines), iter(lines))]
    tags: list[list[str]] = [one.tags for one in attnkit.TokenClassifier.load("tagger").predict_stream(iter(lines))]
    print(answers, tags)


def more_vectors(vectors: attnkit.Vectors) -> None:
    """The other queries of word vectors."""
    row: npt.NDArray[np.float32] = vectors.get_vector("dog", norm=True)
    print(vectors.cosines(row[None]).shape, vectors.unit(np.array([0])).shape, vectors.get_index("dog"))
    far: float = vectors.distance("dog", "cat") + vectors.n_similarity(["dog"], ["cat", "cow"])
    odd: str = vectors.doesnt_match(["dog", "cat", "box"])
    print(far, odd, vectors.most_similar_cosmul(["dog"], ["cat"]), vectors.rank_by_centrality(["dog", "cat"]))
    print(vectors.table(top=3).words, vectors.unknown("dgo").help)
    scores = attnkit.evaluate_vectors(vectors, "questions.txt", method="mul").to_dict()
    classes: dict[str, int] = attnkit.cluster(vectors, 3, n_words=20).classes
    cosine: float | None = attnkit.compare_context("bert", ["a dog", "the dog"], "dog").cosines[0].contextual
    n_words: int = attnkit.phrases("a.txt", "joined.txt", settings={"passes": 2}).n_written
    print(scores, classes, cosine, n_words)
    model = attnkit.Word2Vec(vector_size=4, min_count=1)
    model.build_vocab([["a", "dog"]])
    model.train([["a", "dog"]], total_examples=model.corpus_count, epochs=1)
    print(model.fit([["a", "dog"]]).wv)
    model.save("model")
    print(attnkit.Word2Vec.load("model"))


def own_loop(folder: Path) -> torch.Tensor:
    """Models without files, and the weights of a run."""
    config = RnnConfig(d_model=16, d_hidden=16, alignment="dot")
    model = RnnTranslator(config, 10, 10)
    bert = attnkit.load_module(folder / "bert", Bert)
    assert_type(bert, Bert)
    ids = torch.tensor([[1, 5, 2]])
    features: torch.Tensor = bert.hidden(ids, PackedLayout.unpacked(1))
    print(features.shape, Transformer(TransformerConfig(), 9, 9).attention_weights(ids, None, ids)["cross"])
    return model.head(model.hidden(ids, None, ids))


def lessons(folder: Path) -> list[str]:
    """Lessons, the demo, licences, one-hot vectors and the service."""
    picture: bytes = attnkit.explain_positions(shift=5).picture("pdf")
    mask = attnkit.explain_mask("a dog runs", pattern="window", size=2)
    widths: list[float | None] = [fit.w for fit in attnkit.explain_pooling(seed=2).contents.fits]
    print(picture, mask.contents.causal, mask.text(colour=True), widths)
    demo = attnkit.run_demo(folder / "demo", seed=2, quiet=True)
    score: float = demo.bleu.score
    print(score, attnkit.Translator.load(demo.run), demo.notes[0].text)
    print(attnkit.compare_one_hot(folder / "vectors", ["motel", "hotel"]).pairs[0].cosine)
    attnkit.serve([str(folder / "run")], port=0, api_key="key", precision="int8")
    return [one.license for one in attnkit.licenses()]


def guarded(folder: Path) -> int:
    """Errors have an exit code, a text and a hint."""
    try:
        trained(folder)
    except (UsageError, DataError, RunError, SystemFailure, DivergedError, StoppedError) as error:
        print(error.what, error.where, error.help)
        return error.exit_code
    except AttnkitError as error:
        return error.exit_code
    return 0
