"""Training goes on in several directions of an imported model, with the model's own codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import sacrebleu
import safetensors.torch
import torch
from readme_example import readme_functions
from translators import m2m_folder, mbart_folder, nllb_folder, sentences

import attnkit
from attnkit.conversion.export_ctranslate2 import export_ctranslate2
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.resolve import inherited, resolve
from attnkit.errors import UsageError
from attnkit.serving.limits import Limits
from attnkit.serving.models import Models
from attnkit.serving.specs import parse_spec
from attnkit.tasks.translation.data import open_prepared
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.task import TASK, TrainRequest, train

MODELS: dict[str, tuple[Callable[..., Any], tuple[str, str, str], dict[str, Any]]] = {
    "m2m100": (m2m_folder, ("en", "de", "fr"), {"end": 0.5}),
    "nllb": (nllb_folder, ("eng_Latn", "deu_Latn", "zho_Hans"), {"end": 3.0}),
    "mbart": (mbart_folder, ("en_XX", "de_DE", "ro_RO"), {"end": 2.5}),
}
SETS = ["optimization.batch_tokens=400", "optimization.warmup_steps=1", "optimization.learning_rate=1e-3"]
SETS += ["data.max_length=90", "limits.max_steps=3", "evaluation.every_steps=3", "device=cpu"]
SETS += ["decoding.min_length=4", "decoding.max_length=20"]  # texts that are not empty, and end
SETS += ["precision=float32", "threads=1", "finetuning.freeze=[output]", "model.dropout=0"]


class Imported:
    """A model of transformers, imported, with files of text in three languages."""

    def __init__(self, place: Path, name: str) -> None:
        make, self.languages, changes = MODELS[name]
        self.place, self.hub = place, place / "hub"
        make(self.hub, **changes)
        src, tgt, _ = self.languages
        self.run = self.import_for(src, tgt)
        self.files, self.valid = ({name: place / f"{part}.{name}" for name in self.languages} for part in ("a", "v"))
        for number, name in enumerate(self.languages):
            for path, first, n in ((self.files[name], 60 * number, 60), (self.valid[name], 200 + 20 * number, 20)):
                path.write_text("".join(f"{line}\n" for line in sentences()[first:][:n]))

    def import_for(self, src: str, tgt: str) -> Path:
        return import_huggingface(self.hub, self.place / f"{src} {tgt}", src_lang=src, tgt_lang=tgt).path

    def train(self, name: str, pairs: list[tuple[str, str]], base: Path, *, named: bool) -> Path:
        """Train in directions, which the configuration names or not; return the run."""
        flags: dict[str, Any] = {
            "data.src": [str(self.files[src]) for src, _ in pairs],
            "data.tgt": [str(self.files[tgt]) for _, tgt in pairs],
        }
        flags |= {"data.valid_src": [str(self.valid[src]) for src, _ in pairs]}
        flags |= {"data.valid_tgt": [str(self.valid[tgt]) for _, tgt in pairs]}
        if named:
            directions = [":".join(pair) for pair in pairs]
            flags |= {"data.directions": directions, "data.valid_directions": directions}
        run = self.place / name
        resolved = resolve(flags, sets=SETS, preset_name="tiny", fixed=inherited(base, run))
        for _ in train(TrainRequest(resolved.config, run, init_from=base)):
            pass
        return run


@pytest.fixture(scope="module", params=MODELS)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    return Imported(tmp_path_factory.mktemp("training"), request.param)


@pytest.fixture(scope="module")
def several(imported: Imported) -> Path:
    """A run of two directions that goes on from one of another."""
    first, second, third = imported.languages
    return imported.train("several", [(first, third), (third, second)], imported.run, named=True)


@pytest.fixture(scope="module")
def named(imported: Imported) -> Path:
    """A run of one direction, which is not that of the import."""
    _, second, third = imported.languages
    return imported.train("named", [(third, second)], imported.run, named=True)


@pytest.fixture(scope="module")
def own(imported: Imported) -> Path:
    """A run of the same text as ``named``, from an import for its direction."""
    _, second, third = imported.languages
    return imported.train("own", [(third, second)], imported.import_for(third, second), named=False)


@pytest.fixture(scope="module")
def unnamed(imported: Imported) -> Path:
    """A run of the same text as ``named`` in the usual direction of the import."""
    _, second, third = imported.languages
    return imported.train("unnamed", [(third, second)], imported.run, named=False)


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    (file,) = run.glob("checkpoints/step-3/model.safetensors")
    return safetensors.torch.load_file(file)


def test_a_named_direction_trains_what_a_run_imported_for_it_does(named: Path, own: Path, unnamed: Path) -> None:
    found, expected = weights_of(named), weights_of(own)
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)
    other = weights_of(unnamed)
    assert any(not torch.equal(found[name], other[name]) for name in found), "the usual codes train other weights"
    rows = [json.loads((run / "metrics.jsonl").read_text().split("\n")[-2]) for run in (named, own)]
    assert rows[0]["loss"] == rows[1]["loss"] and rows[0]["bleu"] == rows[1]["bleu"]
    translator = attnkit.Translator.load(named, device="cpu", threads=1)
    expected_texts = attnkit.Translator.load(own, device="cpu", threads=1).translate_texts(sentences()[:20])
    assert translator.translate_texts(sentences()[:20]) == expected_texts, "the only direction needs no choice"


def test_both_sides_are_encoded_behind_their_codes(imported: Imported, several: Path) -> None:
    data, (first, second, third) = open_prepared(several / "data"), imported.languages
    tokenizers = data.vocabularies
    codes = [code if "_" in code else f"__{code}__" for code in (first, second, third)]
    numbers = [tokenizers.src.token_id(code) for code in codes]
    n = data.pairs.corpora[0]
    for rows, (src, tgt) in ((range(n), (0, 2)), (range(n, len(data.pairs)), (2, 1))):
        assert len(rows) > 40
        texts = [tuple(self.read_text().split("\n")[:-1]) for self in imported.files.values()]
        plain = {tuple(tokenizers.src.encode([line])[0][1:]): i for i, side in enumerate(texts) for line in side}
        for row in rows:
            ids, target = data.pairs.src[row].tolist(), data.pairs.tgt[row].tolist()
            assert (ids[0], target[0]) == (numbers[src], numbers[tgt])
            assert (plain[tuple(ids[1:])], plain[tuple(target[1:])]) == (src, tgt)


def test_validation_translates_as_the_run_does(imported: Imported, several: Path) -> None:
    data, run = open_prepared(several / "data"), load_run(several, device="cpu")
    evaluation = TASK.evaluation(run.config, data, torch.device("cpu"), None)
    found = evaluation.translate(run.model)
    translator = attnkit.Translator.load(several, device="cpu", threads=1, engine="torch")
    (row,) = [json.loads(line) for line in (several / "metrics.jsonl").read_text().split("\n")[:-1]][-1:]
    names = dict.fromkeys(data.valid_directions)
    assert len(names) == 2
    for name in names:
        src, tgt = name.split(":")
        own = [i for i, other in enumerate(data.valid_directions) if other == name]
        lines = [data.valid_src[i] for i in own]
        texts = [one.text for one in translator.translate(lines, src_lang=src, tgt_lang=tgt, beam_size=1)]
        assert texts == [found[i] for i in own] and all(texts)
        assert texts != [one.text for one in translator.translate(lines, src_lang=tgt, tgt_lang=src, beam_size=1)]
        expected = sacrebleu.corpus_bleu(texts, [[data.valid_tgt[i] for i in own]]).score
        assert row[f"bleu_{src}_{tgt}"] == pytest.approx(expected)


def test_a_run_of_several_directions_needs_a_choice(imported: Imported, several: Path) -> None:
    first, second, third = imported.languages
    translator = attnkit.Translator.load(several, device="cpu", threads=1)
    assert translator.summary.languages == (f"{first}:{third}", f"{third}:{second}")
    with pytest.raises(UsageError, match=f"no source language is chosen; this run has {first}, {third}") as caught:
        translator.translate(["ba be"])
    assert caught.value.help == f"add --src-lang {first}"
    with pytest.raises(UsageError, match=f"no target language is chosen; this run has {third}, {second}"):
        translator.translate(["ba be"], src_lang=first)
    texts = [
        [one.text for one in translator.translate(sentences()[:20], src_lang=src, tgt_lang=tgt)]
        for src, tgt in ((first, third), (third, second), (second, first))  # the last was not trained
    ]
    assert texts[0] != texts[1] and texts[1] != texts[2] and texts[0] != texts[2]
    card = (several / "README.md").read_text()
    assert f"--src-lang {first} --tgt-lang {third}" in card


def test_it_goes_back_to_transformers_with_its_tokenizer(imported: Imported, several: Path, tmp_path: Path) -> None:
    back = export_huggingface(several, tmp_path / "back").path
    before = export_huggingface(imported.run, tmp_path / "before").path
    names = {path.name for path in before.iterdir()} - {"README.md", "model.safetensors"}
    for name in names - {"config.json", "generation_config.json", "tokenizer_config.json"}:
        assert (back / name).read_bytes() == (before / name).read_bytes(), name
    src, tgt, other = imported.languages
    again = import_huggingface(back, tmp_path / "again", src_lang=src, tgt_lang=tgt).path
    found, expected = load_run(again, device="cpu"), load_run(several, device="cpu")
    assert found.src_tokenizer.fingerprint == expected.src_tokenizer.fingerprint
    state, trained = found.model.state_dict(), expected.model.state_dict()
    assert all(torch.equal(state[name], trained[name]) for name in trained)
    translators = [attnkit.load(run, device="cpu", threads=1, src_lang=src, tgt_lang=other) for run in (again, several)]
    texts = [one.translate_texts(sentences()[:20], beam_size=2, min_length=4, max_length=20) for one in translators]
    assert texts[0] == texts[1]


def test_exports_are_in_the_trained_direction(
    imported: Imported, named: Path, own: Path, several: Path, tmp_path: Path
) -> None:
    found, expected = (export_huggingface(run, tmp_path / run.name).path for run in (named, own))
    assert {path.name for path in found.iterdir()} == {path.name for path in expected.iterdir()}
    for path in expected.iterdir():
        assert (found / path.name).read_bytes() == path.read_bytes(), path.name
    back, (first, _, third) = export_huggingface(several, tmp_path / "several").path, imported.languages
    settings = json.loads((back / "tokenizer_config.json").read_text())
    assert (settings["src_lang"], settings["tgt_lang"]) == (first, third), "the first of several"
    assert f'src_lang="{first}", tgt_lang="{third}"' in (back / "README.md").read_text()


def test_an_export_to_ctranslate2_is_in_the_trained_direction(named: Path, own: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    readmes = [(export_ctranslate2(run, tmp_path / run.name).path / "README.md").read_text() for run in (named, own)]
    assert readmes[0] == readmes[1] and 'target_prefix=[["' in readmes[0]


def test_transformers_translates_as_the_adapted_run(named: Path, tmp_path: Path) -> None:
    back = export_huggingface(named, tmp_path / "back").path
    found, lines = readme_functions(back), sentences()[:40]
    inputs = found["tokenizer"](lines, return_tensors="pt", padding=True)
    options = {"num_beams": 4, "early_stopping": True, "max_length": 21, "forced_bos_token_id": found["first"]}
    ids = found["model"].generate(**inputs, **options)
    texts = found["tokenizer"].batch_decode(ids, skip_special_tokens=True)
    translator = attnkit.Translator.load(named, device="cpu", threads=1)
    search: dict[str, Any] = {"beam_size": 4, "min_length": 0, "max_length": 20, "length_penalty": 1.0}
    assert [text for (text,) in translator.translate_texts(lines, **search)] == texts


def test_a_service_translates_as_the_run(imported: Imported, named: Path, unnamed: Path, several: Path) -> None:
    (first, second, third), lines = imported.languages, sentences()[:9]
    assert parse_spec(str(named)).languages == (third, second)
    assert parse_spec(str(several)).languages == (first, third)
    # Each with the run that is loaded, and its languages.
    specs: dict[str, tuple[Path, dict[str, str]]] = {
        str(named): (named, {}),
        f"xx:yy={named}": (named, {}),
        f"{first}:{second}={named}": (named, {"src_lang": first, "tgt_lang": second}),
        str(unnamed): (unnamed, {}),
        str(several): (several, {"src_lang": first, "tgt_lang": third}),
        f"{third}:{second}={several}": (several, {"src_lang": third, "tgt_lang": second}),
    }
    for spec, (run, languages) in specs.items():
        models = Models([spec], Limits(), device="cpu", precision="float32", threads=1)
        (served,) = models.translators()
        expected = attnkit.Translator.load(run, device="cpu", threads=1, **languages)
        assert served.model.translate_texts(lines) == expected.translate_texts(lines), spec
        models.close(1.0)
    with pytest.raises(UsageError, match="the model has no language 'xx'"):
        Models([f"xx:yy={several}"], Limits(), device="cpu", precision="float32", threads=1)


def test_a_run_of_named_directions_needs_a_name_to_go_on(
    imported: Imported, named: Path, call: Any, tmp_path: Path
) -> None:
    _, second, third = imported.languages
    options = ["--init-from", named, *(text for one in SETS for text in ("--set", one))]
    files = ["--src", imported.files[third], "--tgt", imported.files[second]]
    code, _, err = call("train", *files, "-o", tmp_path / "x", *options)
    assert code == 2
    what = "error: the run to initialize from was trained in named directions\n  at --pair (data.directions)\n"
    assert f"{what}help: name the direction: --pair {third}:{second} SRC TGT\n" in err


def test_the_command_trains_pairs_of_the_codes(imported: Imported, call: Any, tmp_path: Path) -> None:
    first, second, third = imported.languages
    a, b, c = imported.files.values()
    options = ["--init-from", imported.run, *(text for one in SETS for text in ("--set", one))]
    pairs = ["--pair", f"{first}:{second}", a, b, "--pair", f"{third}:{second}", c, b]
    code, out, err = call("train", *pairs, "-o", tmp_path / "run", *options)
    assert code == 0, err
    assert out.rstrip().endswith(f"--src-lang {first} --tgt-lang {second}")
    code, _, err = call("translate", tmp_path / "run", "-i", a)
    assert code == 2 and f"no source language is chosen; this run has {first}, {third}" in err
    code, out, err = call("translate", tmp_path / "run", "-i", a, "--src-lang", first)
    assert code == 0 and out.count("\n") == 60, "the only target language needs no choice"
    # Before the text is read, which these files would not pass.
    shifted = tmp_path / "shifted"
    shifted.write_text("ba be\n")
    checked = {
        "--pair (data.directions)": ["--pair", f"{first}:xx", a, shifted],
        "--valid-pair (data.valid_directions)": [
            "--pair", f"{first}:{second}", a, shifted, "--valid-pair", f"xx:{second}", c, b,
        ],
    }  # fmt: skip
    for option, wrong in checked.items():
        for mode in ([], ["--dry-run"]):
            code, _, err = call("train", *wrong, "-o", tmp_path / "x", *options, *mode)
            assert code == 2 and f"error: the model has no language 'xx'\n  at {option}\nhelp: choose one of " in err
    assert not list(tmp_path.glob("x/checkpoints/*"))
