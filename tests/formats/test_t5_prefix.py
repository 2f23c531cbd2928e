"""Text before the sources of an imported T5, wherever a run is used."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import torch
from readme_example import readme_functions
from t5_folders import t5_folder
from test_t5_import import ImportedT5
from translators import sentences, tokenizer_of

import attnkit
from attnkit.conversion.export_ctranslate2 import export_ctranslate2
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.resolve import inherited, resolve
from attnkit.errors import UsageError
from attnkit.protocols import UNK_ID
from attnkit.serving.limits import Limits
from attnkit.serving.models import Models
from attnkit.tasks.translation.loading import LoadedRun, load_run
from attnkit.tasks.translation.score import score_pairs
from attnkit.tasks.translation.segmenting import Segmenter
from attnkit.tasks.translation.task import TrainRequest, train
from attnkit.text.tags import source_prefix, with_source_prefix, without_side

WORDS = 'baing "lo" do:'
QUICK = {"max_length": 12, "beam_size": 2}
LINES = [f"{line.strip('.!').capitalize()}." for line in sentences()[:30] if line.strip(".!")]
SETS = ["optimization.batch_tokens=400", "data.max_length=60", "data.held_out=5", "limits.max_steps=1", "device=cpu"]
SETS += ["precision=float32", "threads=1", "confidence=false"]


class BothRuns:
    """Runs of one T5: one puts words before sources, one does not."""

    def __init__(self, place: Path) -> None:
        self.told = ImportedT5(place / "told", "t5", WORDS, odd=True)
        self.plain = ImportedT5(place / "plain", "t5", odd=True)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> BothRuns:
    return BothRuns(tmp_path_factory.mktemp("both"))


def spelled(lines: list[str]) -> list[str]:
    return [f"{WORDS} {line}" for line in lines]


def test_the_program_of_an_export_to_ctranslate2_puts_the_prefix_before_texts(both: BothRuns, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    made = export_ctranslate2(both.told.path, tmp_path / "told")
    assert [WORDS in warning and "README.md" in warning for warning in made.warnings] == [True]
    other = export_ctranslate2(both.plain.path, tmp_path / "plain")
    assert other.warnings == ()
    length = ("max_decoding_length=256", "max_decoding_length=12")
    found, plain = (readme_functions(one.path, length)["translate"] for one in (made, other))
    assert found(LINES, 1) == plain(spelled(LINES), 1) != plain(LINES, 1)


def test_the_program_of_an_export_to_transformers_holds_quotes(both: BothRuns, tmp_path: Path) -> None:
    folder = export_huggingface(both.told.path, tmp_path / "back").path
    found = readme_functions(folder, ("num_beams=5", "num_beams=1, max_new_tokens=3"))
    assert found["lines"] == spelled(["A dog runs."])


def test_each_sentence_of_a_document_has_the_prefix(both: BothRuns) -> None:
    translator, plain = (attnkit.Translator.load(one.path, device="cpu") for one in (both.told, both.plain))
    expected = plain.translate_texts(spelled(LINES[:6]), **QUICK)
    page = "".join(f"<p>{line}</p>" for line in LINES[:6])
    passages = translator.translate_document(page, "html", **QUICK).passages
    assert [[one.text for one in passage.sentences] for passage in passages] == expected and len(expected) == 6


def test_the_service_puts_the_prefix_before_texts(both: BothRuns) -> None:
    models = Models([f"en:de={both.told.path}"], Limits(), device="cpu", precision="float32", threads=1)
    try:
        (served,) = models.translators()
        expected = attnkit.Translator.load(both.plain.path, device="cpu").translate_texts(spelled(LINES[:6]))
        assert served.model.translate_texts(LINES[:6]) == expected
    finally:
        models.close(1.0)


def test_the_prefix_is_no_unknown_character_of_a_line(both: BothRuns, tmp_path: Path) -> None:
    made = import_huggingface(both.told.folder, tmp_path / "run", source_prefix="☃ 翻譯:")
    assert ["☃ 翻譯:" in text and "unknown" in text for text in made.warnings] == [True]
    run = load_run(made.path, device="cpu")
    assert UNK_ID in run.src_tokenizer.code_ids
    scores = list(score_pairs(run, run.model, run.device, [("ba be", "do"), ("ba ☃ be", "do")]))
    assert [one.line is not None and "unknown" in one.line.signs for one in scores] == [False, True]


def test_parts_of_a_long_line_are_as_long_as_without_a_prefix(both: BothRuns) -> None:
    """But for its tokens: each part has them."""
    told, plain = both.told.run.src_tokenizer, both.plain.run.src_tokenizer
    n, line = len(told.code_ids), " ".join(" ".join(sentences()).replace(".", "").replace("!", "").split()[:200])
    assert n > 5
    parts = Segmenter(told, 30 + n, None).split(line, told.encode([line])[0])
    expected = Segmenter(plain, 30, None).split(line, plain.encode([line])[0])
    assert [part.text for part in parts] == [part.text for part in expected] and len(parts) > 5
    assert [part.ids for part in parts] == [[*told.code_ids, *part.ids] for part in expected]


def test_a_prefix_that_leaves_no_room_for_sources_is_refused(tmp_path: Path) -> None:
    t5_folder(tmp_path / "hub")
    with pytest.raises(UsageError, match="tokens of this model, more than 256") as caught:
        import_huggingface(tmp_path / "hub", tmp_path / "run", source_prefix="☃日" * 260)
    assert caught.value.where == "--source-prefix" and not (tmp_path / "run").exists()


def trained(both: BothRuns, place: Path, **flags: object) -> LoadedRun:
    for name, lines in (("src", LINES), ("tgt", LINES[::-1])):
        (place / name).write_text("".join(f"{line}\n" for line in lines))
    given = {"data.src": [str(place / "src")], "data.tgt": [str(place / "tgt")], **flags}
    resolved = resolve(given, sets=SETS, preset_name="tiny", fixed=inherited(both.told.path, place / "run"))
    for _ in train(TrainRequest(resolved.config, place / "run", init_from=both.told.path)):
        pass
    return load_run(place / "run", device="cpu", checkpoint="last")


def test_training_keeps_the_prefix(both: BothRuns, tmp_path: Path) -> None:
    run, old = trained(both, tmp_path), both.told.run
    assert run.config.model == old.config.model
    assert (source_prefix(run.src_tokenizer), source_prefix(run.tgt_tokenizer)) == (WORDS, "")
    assert run.vocabularies == old.vocabularies


def test_added_symbols_and_pieces_keep_the_prefix(both: BothRuns, tmp_path: Path) -> None:
    (tmp_path / "more").write_text("Snowman snowman snowmen.\n" * 40)
    more = {"extension.symbols": ["<medical>"], "extension.files": [str(tmp_path / "more")], "extension.entries": 5}
    run, old = trained(both, tmp_path, **more), both.told.run
    src, tgt = run.src_tokenizer, run.tgt_tokenizer
    assert source_prefix(src) == WORDS and without_side(src).fingerprint == tgt.fingerprint
    assert tgt.token_id("<medical>") is not None and len(set(tgt.names) - set(old.tgt_tokenizer.names)) == 6
    assert src.encode(["do <medical> lo"])[0] == [*src.code_ids, *tgt.encode(["do <medical> lo"])[0]]
    assert src.tokens(src.code_ids) == old.src_tokenizer.tokens(old.src_tokenizer.code_ids)
    state = run.model.state_dict()
    assert torch.equal(state["encoder.embedding.words.weight"], state["decoder.embedding.words.weight"])
    assert len(state["encoder.embedding.words.weight"]) == src.vocab_size
    again = with_source_prefix(with_source_prefix(src, ""), WORDS)
    assert again.fingerprint == src.fingerprint
    back = export_huggingface(run.path, tmp_path / "back").path
    theirs, pieces = tokenizer_of(back), src.pieces
    assert pieces is not None
    for line in [*LINES, "do <medical> lo", "Snowman<medical>", "ba <extra_id_3> be <medical>"]:
        assert theirs(f"{WORDS} {line}").input_ids[:-1] == [pieces.order[id] for id in src.encode([line])[0]], line
    again = load_run(import_huggingface(back, tmp_path / "again", source_prefix=WORDS).path, device="cpu")
    assert again.src_tokenizer.names == src.names
    assert all(torch.equal(one, state[name]) for name, one in again.model.state_dict().items())
