"""A run of an imported M2M100, NLLB-200 or mBART-50 translates in all of its directions, as if imported for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import torch
from directions import MODELS, Imported, import_twice, write_lines
from translators import marian_folder, sentences

import attnkit
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.errors import UsageError
from attnkit.protocols import EOS_ID, PAD_ID
from attnkit.serving.calls import translate_documents
from attnkit.serving.limits import Limits
from attnkit.serving.models import Models
from attnkit.serving.specs import choose_languages, split_spec
from attnkit.tasks.translation.directions import LanguagePair
from attnkit.tasks.translation.engines import Engine
from attnkit.tasks.translation.loading import load_run, open_run
from attnkit.tasks.translation.pair_scorer import open_pair_scorer
from attnkit.tasks.translation.score import score_pairs
from attnkit.tasks.translation.segmenting import Segmenter
from attnkit.tasks.translation.translator import TranslationPipeline, load_translator
from attnkit.text.tags import find_code
from attnkit.text.tokenizer import Tokenizer

SETTINGS: dict[str, Any] = {"max_length": 20, "length_penalty": 1.0, "beam_size": 4}
Call = Callable[..., tuple[int, str, str]]
ENGINES: tuple[Engine, ...] = ("torch", "compiled")


@pytest.fixture(scope="module", params=MODELS)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    return import_twice(tmp_path_factory.mktemp("directions"), request.param)


def ids_of(translator: TranslationPipeline, lines: list[str]) -> list[list[list[int]]]:
    return [one.outputs[0].ids for one in translator.stream(lines, translator.configure(SETTINGS))]


def test_ids_are_those_of_a_run_imported_for_the_direction(imported: Imported) -> None:
    lines = sentences()[:60]
    for engine in ENGINES:
        translator = load_translator([imported.run], engine=engine)
        expected = ids_of(load_translator([imported.run_of_other], engine=engine), lines)
        usual = ids_of(translator, lines)
        translator.set_languages(imported.other)
        assert ids_of(translator, lines) == expected != usual
        translator.set_languages(imported.usual)
        assert ids_of(translator, lines) == usual
        # One language may be left as it is.
        translator.set_languages(LanguagePair(tgt=imported.other.tgt))
        half = ids_of(translator, lines)
        translator.set_languages(LanguagePair(imported.usual.src, imported.other.tgt))
        assert ids_of(translator, lines) == half
        assert half not in (usual, expected)


def test_beams_are_those_of_transformers(imported: Imported) -> None:
    translator, lines = load_translator([imported.run], engine="compiled"), sentences()[:60]
    translator.set_languages(imported.other)
    pieces = translator.runs[0].src_tokenizer.pieces
    assert pieces is not None
    codes = [code if "_" in code else f"__{code}__" for code in map(str, imported.other)]
    src, tgt = (pieces.vocabulary[code] for code in codes)  # their ids
    plain = [pieces.parts(line)[-1][0] for line in lines]
    rows = [[src, *(pieces.order[id] for id in ids), 2] for ids in pieces.encode(plain)]
    width = max(map(len, rows))
    inputs = torch.tensor([[*row, *[1] * (width - len(row))] for row in rows])
    options = {"num_beams": 4, "max_length": 21, "early_stopping": True, "forced_eos_token_id": None}
    options |= {"bad_words_ids": [[0], [1]], "forced_bos_token_id": tgt}
    found = imported.theirs.generate(input_ids=inputs, attention_mask=(inputs != 1).long(), **options)
    numbers = {id: number for number, id in enumerate(pieces.order)}
    for (ids,), row in zip(ids_of(translator, lines), found.tolist(), strict=True):
        assert ids == [numbers[id] for id in row[1:] if numbers[id] not in (PAD_ID, EOS_ID)]


def test_a_tokenizer_with_another_code_is_the_imported_one(imported: Imported) -> None:
    run, other = open_run(imported.run), open_run(imported.run_of_other)
    for ours, theirs in ((run.src_tokenizer, other.src_tokenizer), (run.tgt_tokenizer, other.tgt_tokenizer)):
        assert theirs.pieces is not None and theirs.pieces.code is not None
        before = ours.encode(["ba be"])
        changed = ours.with_code(theirs.pieces.code)
        assert changed.to_json() == theirs.to_json() and changed.fingerprint == theirs.fingerprint
        assert changed.encode(["ba be", ""]) == theirs.encode(["ba be", ""])
        assert Tokenizer.from_json(changed.to_json()).code_ids == theirs.code_ids
        assert ours.encode(["ba be"]) == before and ours.with_code(str(ours.pieces and ours.pieces.code)) is ours
        with pytest.raises(ValueError, match="not in the vocabulary"):
            ours.with_code("xx")


def test_tokenizers_of_all_codes_share_one_bounded_cache(imported: Imported, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = open_run(imported.run).src_tokenizer
    codes = tokenizer.language_codes[:5]
    expected = [open_run(imported.run).src_tokenizer.with_code(code).encode(["ba be"]) for code in codes]
    others = [tokenizer.with_code(code) for code in codes]
    assert [other.with_code(codes[0]) for other in others] == [others[0]] * len(codes), "one tokenizer per code"
    assert [tokenizer.with_code(code) for code in codes] == others
    assert [other.encode(["ba be"]) for other in others] == expected
    assert [other.encode(["ba be"]) for other in others] == expected, "ids of one code are not those of another"
    monkeypatch.setattr("attnkit.text.tokenizer.MAX_CACHED", 100)
    for number in range(40):
        for other in others:
            other.encode([f"ba be {number}"])
    assert sum(map(len, tokenizer._known.by_code.values())) < 20


def test_the_library_takes_languages_when_it_loads_and_for_each_call(imported: Imported) -> None:
    lines, (src, tgt) = sentences()[:20], imported.other
    expected = attnkit.Translator.load(imported.run_of_other, device="cpu", threads=1)
    loaded = attnkit.load(imported.run, device="cpu", threads=1, src_lang=src, tgt_lang=tgt)
    usual = attnkit.Translator.load(imported.run, device="cpu", threads=1)
    assert isinstance(loaded, attnkit.Translator)
    texts = [one.text for one in expected.translate(lines)]
    assert [one.text for one in loaded.translate(lines)] == texts
    assert [one.text for one in loaded.replicate().translate(lines)] == texts
    assert loaded.summary.languages == (f"{src}:{tgt}",) and usual.summary.languages == (":".join(imported.usual),)
    assert loaded.src_tokenizer.code_ids == expected.src_tokenizer.code_ids
    assert [one.text for one in usual.translate(lines)] != texts
    assert [one.text for one in usual.translate(lines, src_lang=src, tgt_lang=tgt)] == texts
    assert [one.text for one in usual.translate_stream(lines, src_lang=src, tgt_lang=tgt)] == texts
    assert [text for (text,) in usual.translate_texts(lines, src_lang=src, tgt_lang=tgt)] == texts
    assert [text for (text,) in usual.translate_texts(lines, tgt_lang=tgt)] != texts
    scores = [one.log_prob for one in expected.score(lines, texts)]
    assert [one.log_prob for one in loaded.score(lines, texts)] == scores
    assert [one.log_prob for one in usual.score(lines, texts)] != scores
    assert [one.log_prob for one in usual.score(lines, texts, src_lang=src, tgt_lang=tgt)] == scores
    assert [one.log_prob for one in usual.score_stream(lines, texts, src_lang=src, tgt_lang=tgt)] == scores
    assert [one.log_prob for one in usual.score(lines, texts, tgt_lang=tgt)] != scores
    sentence = lines[0]
    page = expected.translate_document(sentence, "markdown").text
    assert usual.translate_document(sentence, "markdown", src_lang=src, tgt_lang=tgt).text == page
    protected = [one.text for one in expected.translate_protected(lines)]
    assert [one.text for one in usual.translate_protected(lines, src_lang=src, tgt_lang=tgt)] == protected


def test_parts_of_a_long_line_have_their_codes(imported: Imported) -> None:
    line = " ".join(sentences()[:60])
    found = []
    for run, languages in ((imported.run, imported.other), (imported.run_of_other, LanguagePair())):
        translator = load_translator([run])
        translator.set_languages(languages)
        (parts,) = translator.segment([line], None, 0)
        assert len(parts) > 1
        found.append([(part.ids, part.prefix) for part in parts])
    assert found[0] == found[1]


def test_a_code_at_the_start_of_a_line_is_that_of_all_its_parts(imported: Imported) -> None:
    translator = load_translator([imported.run])
    translator.segmenter.policy = "sentences"
    pieces = translator.src_tokenizer.pieces
    assert pieces is not None
    codes = [find_code(pieces.language_codes, str(language)) for language in (imported.usual.src, imported.other.src)]
    usual, other = (pieces.vocabulary[str(code)] for code in codes)
    long = " ".join(one.strip(".!") for one in sentences()[:60])

    def found(line: str) -> list[tuple[int, list[str]]]:
        """Return code and further tokens of each part."""
        (parts,) = translator.segment([line], None, 0)
        ids = [(pieces.order[part.ids[0]], translator.src_tokenizer.tokens(part.ids[1:])) for part in parts]
        assert all(len(part.ids) <= translator.segmenter.max_length for part in parts)
        return ids

    assert len(found(long)) > 2
    for line in (long, "Ba be. Bo bi. Du ba."):
        plain = found(line)
        assert len(plain) > 2 and {code for code, _ in plain} == {usual}
        for begin in (f"{codes[1]} ", f"  {codes[1]} "):
            coded = found(begin + line)
            assert {code for code, _ in coded} == {other}
            assert [token for _, tokens in coded for token in tokens] == [token for _, row in plain for token in row]


def test_pairs_of_a_line_with_a_code_are_scored_with_it(imported: Imported) -> None:
    run, parts = load_run(imported.run, device="cpu"), ["Ba be.", "Bo bi.", "Du ba."]
    segmenter = Segmenter(run.src_tokenizer, 100, None, "sentences")
    code = find_code(run.src_tokenizer.language_codes, str(imported.other.src))

    def score(*pairs: tuple[str, str]) -> float:
        """Return the log-probability of all pairs together."""
        found = score_pairs(run, run.model, run.device, pairs, segmenter=segmenter)
        return sum(one.log_prob for one in found)

    expected = score(*[(f"{code} {src}", tgt) for src, tgt in zip(parts, parts[::-1], strict=True)])
    line, target = " ".join(parts), " ".join(parts[::-1])
    assert score((f"{code} {line}", target)) == pytest.approx(expected)
    assert score((line, target)) != pytest.approx(expected)


def test_a_code_of_a_marian_is_that_of_all_parts(tmp_path: Path) -> None:
    marian_folder(tmp_path / "hub")
    translator = load_translator([import_huggingface(tmp_path / "hub", tmp_path / "run").path])
    translator.segmenter.policy = "sentences"
    code = translator.src_tokenizer.token_id(">>fr<<")
    long = " ".join(one.strip(".!") for one in sentences()[:300])
    for line in (f">>fr<< {long}", ">>fr<<Ba be. Bo bi."):
        (parts,) = translator.segment([line], None, 0)
        assert len(parts) > 1 and {part.ids[0] for part in parts} == {code}
        assert all(len(part.ids) <= translator.segmenter.max_length for part in parts)


def test_pages_name_the_language_of_the_code(imported: Imported, call: Call, tmp_path: Path) -> None:
    page = '<html lang="xx"><p lang="xx">ba be</p></html>'
    usual, other = (str(pair.tgt).replace("_", "-") for pair in (imported.usual, imported.other))
    translator = attnkit.Translator.load(imported.run, device="cpu", threads=1)
    for chosen, named in ((None, usual), (imported.other.tgt, other)):
        found = translator.translate_document(page, "html", tgt_lang=chosen).text
        assert found.startswith(f'<html lang="{named}"><p lang="{named}">')
    path = write_lines(tmp_path / "page.html", [page])
    (code,) = {find_code(translator.src_tokenizer.language_codes, str(imported.other.tgt))}
    for options, named in (([], usual), (["--tgt-lang", code], other)):
        status, out, err = call("translate", imported.run, "-i", path, "--format", "html", *options)
        assert status == 0, err
        assert out.startswith(f'<html lang="{named}"><p lang="{named}">')


def test_imports_for_other_directions_translate_together(imported: Imported) -> None:
    lines, options = sentences()[:20], {"device": "cpu", "threads": 1, "engine": "torch"}
    (src, tgt), usual = imported.other, attnkit.Translator.load(imported.run, **options)
    both = attnkit.Translator.load(imported.run, imported.run_of_other, **options)
    # Both runs have the same weights.
    assert both.translate_texts(lines) == usual.translate_texts(lines)
    texts = [one.text for one in both.translate(lines, src_lang=src, tgt_lang=tgt)]
    assert texts == [one.text for one in usual.translate(lines, src_lang=src, tgt_lang=tgt)]
    assert texts != [one.text for one in usual.translate(lines)]


def test_attention_is_that_of_the_direction(imported: Imported) -> None:
    lines, (src, tgt) = sentences()[:2], imported.other
    found = attnkit.attend(imported.run, lines, src_lang=src, tgt_lang=tgt, device="cpu")
    expected = attnkit.attend(imported.run_of_other, lines, device="cpu")
    assert found.to_dict()["examples"] == expected.to_dict()["examples"]
    (code,) = load_run(imported.run_of_other, device="cpu").tgt_tokenizer.code_ids
    texts = load_translator([imported.run_of_other], engine="torch").translate(lines)
    for one, text in zip(found.examples, texts, strict=True):
        assert one.target == text, "attention is that to the translation"
        assert one.maps[0].queries[0] == load_run(imported.run, device="cpu").tgt_tokenizer.tokens([code])[0]


def test_runs_are_compared_in_one_direction(imported: Imported, tmp_path: Path) -> None:
    lines = sentences()[:30]
    src, tgt = (write_lines(tmp_path / name, text) for name, text in (("a", lines), ("b", lines[::-1])))
    runs = [imported.run, imported.run_of_other]
    (found,) = attnkit.compare(runs, [(src, tgt)], src_lang=imported.other.src, tgt_lang=imported.other.tgt)
    assert all(score.baseline == score.system for score in found.scores)
    (found,) = attnkit.compare(runs, [(src, tgt)])
    assert any(score.baseline != score.system for score in found.scores)


def test_one_run_writes_pairs_of_both_directions(imported: Imported, tmp_path: Path) -> None:
    (src, tgt), lines = imported.other, sentences()[:60]
    quick: dict[str, Any] = {"device": "cpu", "threads": 1, "max_length": 12, "min_length": 4, "quiet": True}
    translator = attnkit.Translator.load(imported.run, device="cpu", threads=1, src_lang=tgt, tgt_lang=src)
    texts = [text for (text,) in translator.translate_texts(lines, max_length=12, min_length=4)]
    right = attnkit.Translator.load(imported.run_of_other, device="cpu", threads=1).score(texts, lines)
    wrong = attnkit.Translator.load(imported.run, device="cpu", threads=1, tgt_lang=tgt).score(texts, lines)
    both = [tuple(one.log_prob / one.n_tokens for one in pair) for pair in zip(right, wrong, strict=True)]
    # A limit between the scores of a line by the right code of the source and by the usual one, and near no other.
    limits = [(a + b) / 2 for a, b in sorted(both, key=lambda pair: -abs(pair[0] - pair[1]))]
    least = next(limit for limit in limits if min(abs(a - limit) for a, _ in both) > 1e-4)
    assert any((a > least) != (b > least) for a, b in both)
    pairs = zip(texts, lines, both, strict=True)
    expected = [(text, line) for text, line, (score, _) in pairs if score > least and text.strip()]
    settings = {"keep_flagged": True, "min_round_trip": 0.0, "min_forward_log_prob": least, "tag": ""}
    mono = write_lines(tmp_path / "mono", lines)
    for name, other in (("one", imported.run), ("two", imported.run_of_other)):
        options = {"settings": settings, "tgt_lang": src, "mono_lang": tgt, **quick}
        attnkit.back_translate(imported.run, mono, tmp_path / name, forward=other, **options)
        sides = [(tmp_path / name / f"pairs.{side}").read_text().split("\n")[:-1] for side in ("src", "tgt")]
        assert list(zip(*sides, strict=True)) == expected
    corpus = [write_lines(tmp_path / name, text) for name, text in (("a", lines[::-1]), ("b", lines))]
    attnkit.augment(
        *corpus, tmp_path / "more", forward=imported.run, backward=imported.run, settings={"keep_flagged": True},
        src_lang=src, tgt_lang=tgt, **quick,
    )  # fmt: skip
    sides = [(tmp_path / "more" / f"pairs.{side}").read_text().split("\n")[:-1] for side in ("src", "tgt")]
    forward = attnkit.Translator.load(imported.run_of_other, device="cpu", threads=1)
    written = [text for (text,) in forward.translate_texts(lines[::-1], max_length=12, min_length=4)]
    made = {(line, text) for line, text in zip(lines[::-1], written, strict=True) if text.strip()}
    made |= {(f"<bt> {text}", line) for text, line in zip(texts, lines, strict=True) if text.strip()}
    assert set(zip(*sides, strict=True)) == made
    with pytest.raises(UsageError, match="cannot translate both ways"):
        attnkit.back_translate(
            imported.run, mono, tmp_path / "x", forward=imported.run, settings=settings, tgt_lang=src, mono_lang=src
        )
    with pytest.raises(UsageError, match="the model has no language 'xx'") as caught:
        attnkit.back_translate(imported.run, mono, tmp_path / "x", tgt_lang=src, mono_lang="xx", **quick)
    assert caught.value.where == "--mono-lang"


def test_a_filter_scores_pairs_of_the_direction(imported: Imported) -> None:
    sources, targets = sentences()[:20], sentences()[20:40]
    score, name = open_pair_scorer(imported.run, imported.other, print)
    of_other, other = open_pair_scorer(imported.run_of_other, LanguagePair(), print)
    usual, plain = open_pair_scorer(imported.run, LanguagePair(), print)
    assert score(sources, targets) == of_other(sources, targets) != usual(sources, targets)
    assert name == f"{plain} {':'.join(imported.other)}"
    assert other
    language = imported.other.src
    names = [open_pair_scorer(imported.run, LanguagePair(*pair), print)[1] for pair in ((language,), (None, language))]
    assert len({plain, name, *names}) == 4, "a finished folder is not taken for that of other languages"
    assert names[1] == f"{plain} {language}", "as in earlier versions"


def test_a_service_takes_codes_as_directions(imported: Imported) -> None:
    config = open_run(imported.run).config
    src, tgt = map(str, imported.other)
    assert config.vocabulary.language_codes == open_run(imported.run).src_tokenizer.language_codes
    assert choose_languages(config, split_spec(f"{src}:{tgt}=run")) == {"src_lang": src, "tgt_lang": tgt}
    assert choose_languages(config, split_spec("xx:yy=run")) == {}, "names that are only those of requests"
    assert choose_languages(config, split_spec(f"{src}:yy=run"))["tgt_lang"] == "yy", "refused when it is loaded"
    specs = [f"{src}:{tgt}={imported.run}", f"xx:yy={imported.run}"]
    models = Models(specs, Limits(), device="cpu", precision="float32", threads=1)
    pairs, page = ((src, tgt), ("xx", "yy")), '<html lang="en">ba be</html>'
    found = [models.translator(*pair).model.translate_texts(sentences()[:9]) for pair in pairs]
    for pair in pairs:
        (answer,) = asyncio.run(translate_documents(models.translator(*pair), [page]))
        assert answer.startswith(f'<html lang="{pair[1].replace("_", "-")}">'), "the name in requests"
    models.close(1.0)
    of_runs = [attnkit.Translator.load(run, device="cpu") for run in (imported.run_of_other, imported.run)]
    assert found == [one.translate_texts(sentences()[:9]) for one in of_runs]
    with pytest.raises(UsageError, match="the model has no language 'yy'"):
        Models([f"{src}:yy={imported.run}"], Limits(), device="cpu", precision="float32", threads=1)


def test_unknown_languages_are_refused_with_similar_ones(imported: Imported, call: Call, tmp_path: Path) -> None:
    mono, known = write_lines(tmp_path / "mono", ["ba be"]), str(imported.other.tgt)
    misspelt = known[:-1] + "x"
    for option in ("--src-lang", "--tgt-lang"):
        code, out, err = call("translate", imported.run, "-i", mono, option, misspelt)
        assert (code, out) == (2, "")
        lines = err.strip().split("\n")
        assert len(lines) <= 3 and f"the model has no language '{misspelt}'" in lines[0] and option in err
        if imported.usual.src != "en":  # of the hundred of M2M100, others are as similar
            assert known in lines[-1]
    for command in (["score", imported.run, mono, mono], ["attend", imported.run, "ba be"]):
        code, _, err = call(*command, "--src-lang", "xx")
        assert code == 2 and "the model has no language 'xx'" in err


def test_other_runs_have_no_source_language(tmp_path: Path, call: Call) -> None:
    marian_folder(tmp_path / "hub")
    run = import_huggingface(tmp_path / "hub", tmp_path / "run").path
    config = open_run(run).config
    assert config.vocabulary.symbols and not config.vocabulary.language_codes
    data = config.data.model_copy(update={"directions": ("en:de",)})
    assert config.model_copy(update={"data": data}).language_options == ("--tgt-lang", "de")
    with pytest.raises(UsageError, match="no source languages to choose from") as caught:
        attnkit.load(run, device="cpu", src_lang="en")
    assert caught.value.where == "--src-lang"
    with pytest.raises(UsageError, match="this run has one target language, which has no tag"):
        attnkit.load(run, device="cpu", tgt_lang="de")
