"""Results of calls: each is plain data by ``to_dict``, as JSON has it."""

from __future__ import annotations

import ast
import inspect
import json
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from sacrebleu.metrics import CHRF
from test_library_arguments import CALLS

import attnkit
from attnkit.decoding.stopping import StopFlags
from attnkit.errors import DataError, RunError, UsageError
from attnkit.tasks.translation.documents import PassageTranslation
from attnkit.tasks.translation.stream import TranslateRequest, load_translator, translate_source
from attnkit.text.tokenizer import Tokenizer

PLAIN = {str, float, int, list, dict, tuple, Path, type(None), np.ndarray, np.float32, np.dtype, Any, Tokenizer}
"""Results that are plain, arrays or vocabularies (``to_json``); loaded runs have a ``summary``."""


def names_for_types(module: Any) -> dict[str, Any]:
    """Return the names of a module, with those that it imports for type checking alone."""
    found = dict(vars(module))
    for block in ast.parse(inspect.getsource(module)).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for line in block.body:
                if isinstance(line, ast.ImportFrom):
                    source = import_module(str(line.module))
                    names = (
                        vars(source)
                        if all(hasattr(source, one.name) for one in line.names)
                        else names_for_types(source)
                    )
                    found |= {one.name: names[one.name] for one in line.names}
                elif isinstance(line, ast.Import):
                    found |= {one.name: import_module(one.name) for one in line.names}
                else:
                    exec(ast.unparse(line), found)
    return found


def leaves(hint: Any) -> set[Any]:
    """Return the classes in a type."""
    parts = get_args(hint)
    return set().union(*map(leaves, parts)) if parts else {hint}


def result_types() -> dict[str, set[Any]]:
    found = {}
    for name, (call, _) in CALLS.items():
        annotation = inspect.signature(call).return_annotation
        names = names_for_types(inspect.getmodule(call))
        hint = get_type_hints(SimpleNamespace(__annotations__={"x": annotation}), names)["x"]
        found[name] = {one for one in leaves(hint) if inspect.isclass(one)} - PLAIN
    return found


def test_every_result_can_be_plain_data() -> None:
    found = result_types()
    classes = {getattr(attnkit, name) for name in attnkit.__all__ if inspect.isclass(getattr(attnkit, name))}
    results = set().union(*found.values()) - classes
    assert len(results) > 20 and all(map(is_dataclass, results))
    assert {one.__name__ for one in results if not callable(getattr(one, "to_dict", None))} == set()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_plain_data_of_results_is_json(trained: Path, workshop: Any, tmp_path: Path) -> None:
    sides = workshop.file("train.src"), workshop.file("train.tgt")
    checked = attnkit.check(*sides)
    results: list[Any] = [checked, attnkit.score_bleu(["a b c d e"], ["a b c d e"]), attnkit.verify(trained)]
    results += [*attnkit.list_runs(trained), attnkit.align(*sides), attnkit.clean(*sides, tmp_path / "clean")]
    plain = [one.to_dict() for one in results]
    assert json.loads(json.dumps(plain, allow_nan=False)) == json.loads(json.dumps(plain))
    found, bleu, verified, row, aligned, cleaned = plain
    assert found["verdict"] == checked.verdict and [one["text"] for one in found["findings"]] == [
        one.described for one in checked.findings
    ]
    assert bleu["score"] == pytest.approx(100) and verified["good"] and verified["things"][0]["good"]
    assert row["path"] == str(trained) and len(aligned["links"]) == aligned["report"]["pairs"]
    assert cleaned["kept"] + sum(cleaned["dropped"].values()) == cleaned["n_src"]


def test_a_document_has_the_scores_and_signs_of_its_passages(trained: Path) -> None:
    translator = attnkit.Translator.load(trained, device="cpu")
    found = translator.translate_document("<h1>1 2</h1><p>Ein Hund. 3 4</p><p></p>", "html", beam_size=2)
    assert str(found) == found.text and found.text.startswith("<h1>") and len(found.passages) == 2
    title, text = found.passages
    assert isinstance(title, PassageTranslation) and title.source == "1 2" and "unlike" in text.signs
    assert "unlike" in found.signs and text.score == pytest.approx(sum(one.score for one in text.sentences))
    assert [one.source for one in text.sentences] == ["Ein Hund.", "3 4"]
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["passages"][1]["signs"] == text.signs and plain["text"] == found.text
    flags = StopFlags(1)
    flags.set_all()
    translator.set_stops(flags)  # nothing is found, hence no attention to place tags by
    assert translator.translate_document("<p>1 <b>2</b> 3</p>", "html").text.count("<b>") == 1
    translator.set_stops(None)
    broken = translator.translate_document("<p>1 <b>2</p>", "html")
    assert len(broken.notes) == 1 and "without a partner" in broken.notes[0]
    assert translator.translate_document("1 2\n", "markdown", suppress=["9"]).text.endswith("\n")


def test_scores_of_sentences_are_those_of_sacrebleu() -> None:
    hyps, refs = ["the dog runs fast", "a cat"], ["the dog runs very fast", "a cat sleeps"]
    found = attnkit.score_bleu(hyps, refs, metric="chrf", chrf_word_order=2, sentences=True)
    reference = CHRF(word_order=2, eps_smoothing=False)
    assert found.sentences == pytest.approx(
        [reference.sentence_score(hyp, [ref]).score for hyp, ref in zip(hyps, refs, strict=True)]
    )
    assert found.score == pytest.approx(reference.corpus_score(hyps, [refs]).score) and found.name == "chrF2++"
    assert attnkit.score_bleu(hyps, refs).to_dict()["sentences"] is None


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_options_of_checks_and_cleanings(trained: Path, workshop: Any, tmp_path: Path) -> None:
    src, tgt = workshop.file("train.src"), workshop.file("train.tgt")
    attnkit.vocab(src, tmp_path / "vocabulary.json", settings={"kind": "char"})
    checked = attnkit.check(src, tgt, valid_src=src, valid_tgt=tgt, vocab=tmp_path / "vocabulary.json")
    assert checked.src_unknown_rate is not None
    assert [one.name for one in checked.findings if "overlap" in one.name or "validation" in one.text]
    with pytest.raises(UsageError, match="valid_tgt needs valid_src"):
        attnkit.check(src, tgt, valid_tgt=tgt)
    with pytest.raises(UsageError, match="unknown language code 'english'"):
        attnkit.check(src, tgt, src_lang="english")
    with pytest.raises(UsageError, match="exclude each other"):
        attnkit.check(src, tgt, train_src=src, valid_src=src)
    lines = src.read_text().splitlines()
    (tmp_path / "test").write_text("\n".join(lines[:5]) + "\n")
    plain = attnkit.clean(src, tgt, tmp_path / "plain")
    without = attnkit.clean(src, tgt, tmp_path / "without", test=[tmp_path / "test"])
    assert without.kept < plain.kept and sum(without.dropped.values()) > sum(plain.dropped.values())
    with pytest.raises(DataError, match="no pair is left") as error:
        attnkit.clean(src, tgt, tmp_path / "scored", run=trained, settings={"min_log_prob": -1e-6})
    assert "dropped as low_log_prob" in str(error.value.help)
    with pytest.raises(UsageError, match="require each other"):
        attnkit.clean(src, tgt, tmp_path / "none", run=trained)
    attnkit.align(src, tgt, output=tmp_path / "all")
    attnkit.align(src, tgt, output=tmp_path / "one", best=1)
    words = [(tmp_path / name).read_text().splitlines() for name in ("all", "one")]
    assert len({line.split("\t")[0] for line in words[1]}) == len(words[1]) < len(words[0])


def test_options_of_loading(trained: Path, workshop: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a dictionary requires replace_unknowns"):
        attnkit.Translator.load(trained, dictionary=tmp_path / "words")
    with pytest.raises(RunError, match="no such run folder"):
        attnkit.load(trained, device="cpu", adapter=tmp_path / "none")
    attnkit.align(workshop.file("train.src"), workshop.file("train.tgt"), output=tmp_path / "lexicon", run=trained)
    lines = ["1 2 3", "4 5"]
    plain, short = (
        attnkit.Translator.load(trained, device="cpu", shortlist=path) for path in (None, tmp_path / "lexicon")
    )
    assert short._pipeline.shortlist is not None and plain._pipeline.shortlist is None
    assert [len(found) for found in short.translate_texts(lines)] == [1, 1]
    assert short.replicate().translate_texts(lines) == short.translate_texts(lines)


def test_protected_lines_are_those_of_the_command(trained: Path, tmp_path: Path) -> None:
    translator = attnkit.Translator.load(trained, device="cpu")
    lines = ["1 2 https://example.org/a", "", "<b>3</b> 4"]
    found = translator.translate_protected(lines)
    assert [one.source for one in found] == lines and [one.line for one in found] == [1, 2, 3]
    assert "https://example.org/a" in found[0].text and found[0].sentences[0].restored and found[1].text == ""
    assert found[2].text.count("<b>") == found[2].text.count("</b>") == 1
    request = TranslateRequest([trained], tmp_path / "lines", protect=True, device="cpu")
    opened = load_translator(request, print)
    (tmp_path / "lines").write_text("\n".join(lines) + "\n")
    groups = translate_source(opened, request, print, lambda n: None)
    assert [text for _, texts in groups for text in texts] == [one.text for one in found]
