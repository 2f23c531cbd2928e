"""``attnkit attend``: what it prints and writes, that its numbers are the model's, and what it refuses."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.cells import cell_len

from attnkit.engine.loading import load_model
from attnkit.engine.predict import PredictRequest
from attnkit.models.attention.config import ALIGNMENT_NAMES
from attnkit.models.layers import PackedLayout
from attnkit.protocols import BOS_ID, EOS_ID
from attnkit.tasks.finetuning.text_classification import TextClassificationPredictor
from attnkit.tasks.language_modeling.fill_mask import FillMaskPipeline
from attnkit.tasks.text_classification.predict import HanPredictor
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.masked_lines import encode_masked

Call = Callable[..., tuple[int, str, str]]
LINE = "1 2 3 4"


@pytest.fixture(scope="session")
def recurrent(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("recurrent") / "run"
    workshop.train(workshop.configure("rnn", limits__max_steps=1), run)
    return run


@pytest.fixture(scope="session")
def blind(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("blind") / "run"
    workshop.train(workshop.configure("rnn", limits__max_steps=1, model__alignment="none"), run)
    return run


@pytest.fixture(scope="session")
def documents(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("documents") / "run"
    workshop.train(workshop.configure_task("documents", limits__max_steps=1), run)
    return run


@pytest.fixture(scope="session")
def mixed(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers, of which each head has a function of its own."""
    run = tmp_path_factory.mktemp("mixed") / "run"
    layers = {"model__encoder_layers": 2, "model__decoder_layers": 2, "model__alignment": ["scaled_dot", "additive"]}
    workshop.train(workshop.configure(limits__max_steps=3, **layers), run)
    return run


def refused(answer: tuple[int, str, str], code: int, *words: str) -> None:
    found, out, err = answer
    assert (found, out) == (code, ""), err
    assert err.splitlines()[0].startswith("error: ") and len(err.splitlines()) <= 3, err
    assert [word for word in words if word not in err] == [], err


def feed(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_json_holds_the_models_weights(call: Call, trained: Path, recurrent: Path, kind: str) -> None:
    path = trained if kind == "transformer" else recurrent
    code, out, err = call("attend", path, LINE, "--target", "4 3", "--json", "--device", "cpu")
    assert (code, err) == (0, "")
    found = json.loads(out)
    run = load_run(path, device="cpu")
    source, target = run.src_tokenizer.encode([LINE])[0], run.tgt_tokenizer.encode(["4 3"])[0]
    seen = run.model.attention_weights(torch.tensor([[*source, EOS_ID]]), None, torch.tensor([[BOS_ID, *target]]))
    assert [map["kind"] for map in found["attention"]] == (
        ["cross", "encoder", "decoder"] if kind == "transformer" else ["cross"]
    )
    for map in found["attention"]:
        np.testing.assert_array_equal(np.array(map["weights"], np.float32), seen[map["kind"]][0].numpy())
        assert (map["layers"], map["heads"]) == seen[map["kind"]].shape[1:3]
    words, rows = run.src_tokenizer.tokens([*source, EOS_ID]), run.tgt_tokenizer.tokens([*target, EOS_ID])
    assert (found["attention"][0]["queries"], found["attention"][0]["keys"]) == (rows, words)
    if kind == "transformer":
        assert found["attention"][2]["keys"] == run.tgt_tokenizer.tokens([BOS_ID, *target])
    assert (found["source"], found["target"], found["checkpoint"]) == (LINE, "4 3", run.checkpoint)


def test_what_it_translates_is_what_translate_does(call: Call, trained: Path) -> None:
    code, out, _ = call("attend", trained, LINE, "5 6", "--json", "--beam-size", "3", "--device", "cpu")
    found = [json.loads(line) for line in out.splitlines()]
    translations = load_translator([trained], device="cpu").stream([LINE, "5 6"])
    assert code == 0
    for each, translation in zip(found, translations, strict=True):
        output = translation.outputs[0]
        assert (each["target"], each["score"]) == (output.text, round(output.score, 4))
        tree = each["tree"]
        words = [node["token"] for node in tree if node["best"]]
        assert [word for word in words if word != "</s>"] == output.tokens[0]
        ends = [node for node in tree if node["score"] is not None]
        assert max(ends, key=lambda node: node["score"])["best"]
        # Of greedy steps the weights are those that translate itself records: the last layer's, over all heads.
        weights = np.array(each["attention"][0]["weights"], np.float32)[-1].mean(0)
    assert json.loads(call("attend", trained, LINE, "--json", "--beam-size", "1", "--device", "cpu")[1])["tree"] == []
    recorded = next(load_translator([trained], device="cpu").stream(["5 6"], record=True)).outputs[0].attention
    assert recorded is not None
    np.testing.assert_allclose(weights[: len(recorded[0])], recorded[0], atol=1e-5)


def test_the_map_in_the_terminal(call: Call, trained: Path) -> None:
    code, out, err = call(
        "attend", trained, "1 2 3 4 5 6 7 8 9 0 " * 3, "--layer", "all", "--head", "all", "--device", "cpu"
    )
    assert (code, err) == (0, "") and "\x1b" not in out
    assert max(map(cell_len, out.splitlines())) <= 80
    assert "Cross-attention, layer 1, head 1" in out and "Cross-attention, layer 1, head 2" in out
    assert "entropy" in out and "rows: target tokens, columns: source tokens; weights in percent" in out
    kinds = call("attend", trained, LINE, "--kind", "encoder", "--head", "2", "--device", "cpu")[1]
    assert "Encoder self-attention, layer 1, head 2" in kinds


def test_lines_come_from_standard_input(call: Call, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, b"1 2\r\n3\xff 4\n")
    code, out, _ = call("attend", trained, "9", "-", "--json", "--device", "cpu")
    assert code == 0
    assert [json.loads(line)["source"] for line in out.splitlines()] == ["9", "1 2", "3\ufffd 4"]


def test_the_files_it_writes(call: Call, trained: Path, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("page.html", "map.svg", "map.png", "map.pdf")]
    flags = [text for path in paths for text in (f"--{path.suffix[1:]}", path)]
    code, out, err = call("attend", trained, LINE, *flags, "--head", "all", "--device", "cpu")
    assert (code, out) == (0, "")
    assert [line.split()[-1] for line in err.splitlines()] == [str(path) for path in paths]
    page = paths[0].read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and "Content-Security-Policy" in page and 'id="weights-2"' in page
    texts = [element.text for element in ET.parse(paths[1]).iter("{http://www.w3.org/2000/svg}text")]
    assert "Cross-attention, layer 1, head 1" in texts and "Cross-attention, layer 1, head 2" in texts
    assert paths[2].read_bytes().startswith(b"\x89PNG") and paths[3].read_bytes().startswith(b"%PDF")
    assert sorted(tmp_path.iterdir()) == sorted(paths), "nothing else is left"
    code, _, err = call("attend", trained, LINE, "", "--html", tmp_path / "no.html")
    assert code == 3 and "blank" in err and "source:2" in err and not (tmp_path / "no.html").exists()
    again = call("attend", trained, LINE, "5 6", "--html", paths[0], "--json", "--device", "cpu")
    assert (again[0], again[1].count("\n")) == (0, 2)


def test_signs_without_a_letter_in_the_png_are_told(call: Call, trained: Path, tmp_path: Path) -> None:
    given = ["attend", trained, "\U0001f9ff", "--target", "1", "--device", "cpu"]
    code, _, err = call(*given, "--png", tmp_path / "a.png")
    assert code == 0 and "warning: no installed font has \U0001f9ff" in err and "or use --svg" in err
    assert "warning" not in call(*given, "--svg", tmp_path / "a.svg")[2]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, ["no run or text given", "--example cat"]),
        (["{run}"], 2, ["no text given"]),
        (["{run}", LINE, "--png", "a.jpg"], 2, ["a.jpg has the ending of another format than PNG", "name it a.png"]),
        (["{run}", LINE, "--svg", "a.PDF"], 2, ["--svg", "name it a.svg"]),
        (["{run}", LINE, "-i", "text"], 2, ["it is an argument: attnkit attend RUN TEXT"]),
        (["missing", LINE], 4, ["no such run folder"]),
        (["{blind}", LINE], 4, ["no attention", "model.alignment"]),
        (["{run}", "  "], 3, ["blank", "source:1"]),
        (["{run}", "1 " * 200], 3, ["tokens, more than", "source:1"]),
        (["{run}", LINE, "--layer", "2"], 2, ["no layer 2", "--layer", "1 to 1"]),
        (["{run}", LINE, "--head", "3"], 2, ["no head 3", "--head"]),
        (["{run}", LINE, "--head", "0"], 2, ["'0' is not a layer or head", "--head"]),
        (["{run}", LINE, "--layer", "-1"], 2, ["'-1' is not a layer or head"]),
        (["{run}", LINE, "--kind", "crosss"], 2, ["unknown kind 'crosss'", "cross, encoder, decoder"]),
        (["{run}", LINE, "--target", "1", "--target", "2"], 2, ["2 targets for 1 source lines"]),
        (["{run}", LINE, "5", "--target", "1"], 2, ["1 targets for more source lines"]),
        (["{run}", LINE, "5", "--svg", "a.svg"], 2, ["one line, not 2"]),
        (["{run}", LINE, "--svg", "a", "--png", "./a"], 2, ["two output files have the same name"]),
        (["{run}", LINE, "--html", "{run}/config.yaml"], 2, ["is inside the run folder"]),
        (["{run}", LINE, "--html", "/dev/full"], 5, ["cannot write /dev/full", "space"]),
        (["{run}", LINE, "--png", "/dev/full"], 5, ["cannot write /dev/full"]),
        (["{run}", LINE, "--html", "no/such/a.html"], 5, ["no/such"]),
        (["{run}", LINE, "--html", "."], 5, ["name a file"]),
        (["{run}", LINE, "--beam-size", "0"], 2, ["--beam-size"]),
        (["{run}", LINE, "--alignment", "dot"], 2, ["--example cat or --compare"]),
        (["{run}", LINE, "--distribution", "softmax"], 2, ["--distribution cannot be used"]),
        (["{run}", LINE, "--seed", "0"], 2, ["--seed cannot be used", "--example cat or --compare"]),
        (["{run}", LINE, "--target", "1", "--beam-size", "9"], 2, ["--beam-size cannot be combined"]),
        (["{run}", LINE, "--html", "p.html", "--svg", "p.svg", "--layer", "9"], 2, ["no layer 9"]),
        (["{run}", LINE, "--html", "p.html", "--layer", "9"], 2, ["no layer 9"]),
        (["{run}", LINE, "--html", "p.html", "--json", "--kind", "zzz"], 2, ["unknown kind 'zzz'"]),
        (["{run}", LINE, "--json", "--layer", "99"], 2, ["no layer 99"]),
        (["{run}", LINE, "--json", "--compare", "--head", "99"], 2, ["no head 99"]),
        (["{run}", LINE, "5", "--html", "p.html", "--svg", "a.svg"], 2, ["one line, not 2"]),
        *[
            (["--example", "cat", *given], 2, [f"{given[0]} cannot be used with --example cat"])
            for given in (
                ["--layer", "9"],
                ["--head", "mean"],
                ["--kind", "zzz"],
                ["--beam-size", "3"],
                ["--checkpoint", "step-7"],
                ["--target", "q"],
                ["--device", "cpu"],
            )
        ],
        (["{run}", LINE, "--example", "cat"], 2, ["the example takes no run"]),
        (["--example", "dog"], 2, ["dog"]),
        (["--example", "cat", "--alignment", "dott"], 2, ["dott"]),
        (["--example", "cat", "--alignment", "dot", "--distribution", "normalize"], 2, ["cannot be combined"]),
        (["{run}", LINE, "--compare", "--layer", "2"], 2, ["--layer", "1 to 1"]),
        (["{run}", LINE, "--compare", "--alignment", "dot", "--distribution", "normalize"], 2, ["cannot be combined"]),
    ],
    ids=lambda given: " ".join(given)[:60] if isinstance(given, list) else None,
)
def test_what_it_refuses(
    call: Call,
    trained: Path,
    blind: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    words: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [text.replace("{run}", str(trained)).replace("{blind}", str(blind)) for text in arguments]
    refused(call("attend", *given), code, *words)
    assert list(tmp_path.iterdir()) == []


def test_the_text_that_is_read_is_not_written_over(
    call: Call, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lines"
    path.write_text("1 2\n")
    with path.open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        refused(call("attend", trained, "-", "--html", path), 2, "is also an input file")
    assert path.read_text() == "1 2\n"


def test_odd_text_is_shown_as_text(call: Call, trained: Path, tmp_path: Path) -> None:
    """NUL, escapes, bytes that are not UTF-8 as a shell hands them over, and markup."""
    odd = "1\0 2\x1b[2J \udcff </script><img src=x onerror=alert(1)>"
    code, out, _ = call("attend", trained, odd, "--target", odd, "--device", "cpu")
    assert code == 0 and not re.search(r"[\0\x1b\ud800-\udfff]", out)
    code, out, _ = call(
        "attend", trained, odd, "--target", odd, "--json", "--html", tmp_path / "a.html", "--device", "cpu"
    )
    assert code == 0 and json.loads(out)["source"] == odd.replace("\udcff", "\ufffd")
    assert "<img" not in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_the_example_as_json(call: Call) -> None:
    code, out, _ = call("attend", "--example", "cat", "--json")
    found = json.loads(out)
    assert code == 0
    assert [round(weight, 3) for weight in found["weights"]] == [0.12, 0.12, 0.213, 0.12, 0.213, 0.213]
    assert [round(part, 3) for part in found["context"]] == [0.453, 0.453, 0.64]
    code, out, _ = call("attend", "--example", "cat", "--alignment", "additive", "--seed", "3")
    assert code == 0 and "Random parameters, seed 3" in out and "keys.weight" in out and "context" in out


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_functions_are_compared_on_one_models_states(call: Call, trained: Path, recurrent: Path, kind: str) -> None:
    path = trained if kind == "transformer" else recurrent
    code, out, err = call("attend", path, LINE, "--target", "4 3", "--compare", "--json", "--device", "cpu")
    assert (code, err) == (0, "")
    maps = {map["kind"]: map for map in json.loads(out)["attention"]}
    assert list(maps) == ["cross", *ALIGNMENT_NAMES]
    assert "the run's own" in maps["cross"]["note"] and "random parameters, seed 1" in maps["deep"]["note"]
    assert maps["dot"]["note"] == "no parameters"
    own, weights = np.array(maps["cross"]["weights"]), {name: np.array(map["weights"]) for name, map in maps.items()}
    assert {each.shape for each in weights.values()} == {own.shape}
    if kind == "transformer":  # the run's own is scaled dot: the same on the same states, which dot sharpens
        np.testing.assert_allclose(weights["scaled_dot"], own, atol=1e-6)
        width = 16 // 2
        sharper = own ** np.sqrt(width)
        np.testing.assert_allclose(weights["dot"], sharper / sharper.sum(-1, keepdims=True), atol=1e-5)
    text = call("attend", path, LINE, "--target", "4 3", "--compare", "--alignment", "dot", "--alignment", "deep")[1]
    assert "dot attention (no parameters)" in text and "deep attention (random parameters, seed 1)" in text
    assert "additive attention" not in text


def test_what_is_compared_is_the_translation_that_was_found(call: Call, mixed: Path, workshop: Any) -> None:
    """Token for token, an end that was cut off included, with the score and the tree of the search."""
    lines = workshop.file("valid.src").read_text().splitlines()[:3]
    found, compared = (
        [json.loads(line) for line in call("attend", mixed, *lines, "--json", *more, "--device", "cpu")[1].splitlines()]
        for more in ((), ("--compare", "--alignment", "dot"))
    )
    assert len(found) == len(compared) == len(lines)
    assert any(own["attention"][0]["queries"][-1] != "</s>" for own in found), "one at least is cut off"
    for own, other in zip(found, compared, strict=True):
        for name in ("target", "score", "log_prob", "beam_size", "tree"):
            assert own[name] == other[name]
        assert own["tree"]
        for name in ("queries", "keys", "head_names"):
            assert own["attention"][0][name] == other["attention"][0][name]
        np.testing.assert_allclose(own["attention"][0]["weights"][-1:], other["attention"][0]["weights"], atol=1e-6)


@pytest.mark.parametrize("layer", [None, 1, 2])
def test_what_is_compared_names_its_layer(call: Call, mixed: Path, tmp_path: Path, layer: int | None) -> None:
    chosen, number = ([] if layer is None else ["--layer", layer]), layer or 2
    compare = ["attend", mixed, LINE, "--target", "4 3", "--compare", "--alignment", "dot", *chosen, "--device", "cpu"]
    code, out, _ = call(*compare)
    assert code == 0 and re.findall(r"layer \d", out) == [f"layer {number}"] * 2
    code, out, _ = call(*compare, "--json", "--svg", tmp_path / "a.svg", "--html", tmp_path / "a.html")
    found, plain = json.loads(out), json.loads(call("attend", mixed, LINE, "--target", "4 3", "--json")[1])
    assert found["compared"] == f"on queries and keys of layer {number}"
    assert [(map["first_layer"], map["layers"]) for map in found["attention"]] == [(number, 1)] * 2
    np.testing.assert_allclose(
        found["attention"][0]["weights"][0], plain["attention"][0]["weights"][number - 1], atol=1e-6
    )
    assert re.findall(r"layer \d", (tmp_path / "a.svg").read_text()) == [f"layer {number}"] * 2
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert re.findall(r'"firstLayer":(\d)', page) == [str(number)] * 2


def test_an_empty_translation_is_shown_as_one(call: Call, trained: Path) -> None:
    code, out, _ = call("attend", trained, LINE, "--target", "", "--device", "cpu")
    assert code == 0 and out.splitlines()[:2] == [LINE, "  -> ␣"]


def test_comparing_leaves_the_model_as_it_was(trained: Path) -> None:
    from attnkit.analysis.attention import ForcedTarget
    from attnkit.analysis.compare_alignments import record_states

    run = load_run(trained, device="cpu")
    ids = run.src_tokenizer.encode([LINE])[0]
    before = [(name, id(module)) for name, module in run.model.named_modules()]  # type: ignore[attr-defined]
    record_states(run, ForcedTarget(LINE, LINE, ids, ids, ends=True), 1)
    assert [(name, id(module)) for name, module in run.model.named_modules()] == before  # type: ignore[attr-defined]


def test_a_classifiers_words_and_sentences(call: Call, documents: Path) -> None:
    text = "the film was dull. people came back. witty."
    code, out, err = call("attend", documents, text, "--json", "--device", "cpu")
    assert (code, err) == (0, "")
    (expected,) = HanPredictor(
        load_model(documents, "text-classification", device="cpu"), PredictRequest(documents, []), print
    ).classify([text])
    found = json.loads(out)
    word, sentence = found["attention"]
    assert (found["target"], word["kind"], sentence["kind"]) == (expected.label, "word", "sentence")
    assert word["keys"] == [token for tokens in expected.sentences for token in tokens]
    own = [[weight for weight in row if weight] for row in word["weights"][0][0]]
    assert own == expected.word_weights and len(own) == len(word["queries"]) > 1
    assert np.count_nonzero(word["weights"]) == len(word["keys"]), "no sentence looks at another's words"
    assert sentence["weights"] == [[[expected.sentence_weights]]]
    assert found["probability"] == round(max(expected.probabilities), 4)
    assert word["queries"] == sentence["keys"] == ["1. the film was dull .", "2. people came back .", "3. witty ."]
    code, out, _ = call("attend", documents, text, "--kind", "sentence", "--device", "cpu")
    assert code == 0 and "Sentence attention, layer 1, head 1" in out
    refused(call("attend", documents, text, "--target", "1"), 2, "does not generate text", "--target")
    refused(call("attend", documents, " "), 3, "blank")
    refused(call("attend", documents, text, "--compare"), 4, "task 'text-classification'")


def test_a_document_classifier_is_not_exported(call: Call, documents: Path, tmp_path: Path) -> None:
    folder = tmp_path / "hub"
    refused(call("export", documents, folder, "--to", "huggingface"), 4, "classifiers of kind 'han'")
    assert not folder.exists()


def test_the_help_knows_of_classifiers(call: Call) -> None:
    page = call("attend", "--help")[1]
    shown = " ".join(re.sub("[│─╭╮╰╯]", " ", page).split())
    assert "Run of a translator, BERT, GPT or classifier." in shown and "word or sentence" in shown
    assert 'attnkit attend opinions "It rained. Nobody came." --kind sentence' in shown
    assert max(map(cell_len, page.splitlines())) <= 80


def test_a_full_standard_output_is_told(trained: Path) -> None:
    with Path("/dev/full").open("w") as full:
        line = [sys.executable, "-m", "attnkit", "attend", "--example", "cat"]
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, env=dict(os.environ), check=False)
    assert done.returncode == 5 and "cannot write standard output" in done.stderr


@pytest.fixture(scope="session")
def masked(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("masked") / "run"
    workshop.train(workshop.configure_task("pairs, two layers", limits__max_steps=2), run)
    return run


@pytest.fixture(scope="session")
def causal(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("causal") / "run"
    workshop.train(workshop.configure_task("next words", limits__max_steps=2), run)
    return run


@pytest.fixture(scope="session")
def texts(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("texts") / "run"
    workshop.train(workshop.configure_task("texts", limits__max_steps=2), run)
    return run


def shown(call: Call, *arguments: object) -> dict[str, Any]:
    code, out, err = call("attend", *arguments, "--json", "--device", "cpu")
    assert (code, err) == (0, "")
    return dict(json.loads(out))


def test_bert_shows_its_weights_and_fills_the_mask(call: Call, masked: Path) -> None:
    text = "the [MASK] was dull"
    found = shown(call, masked, text)
    opened = load_model(masked, "mlm", device="cpu")
    filler = FillMaskPipeline(opened)
    (filled,) = filler.fill([text])
    assert found["target"] == filled.filled and found["mask"].startswith(filled.masks[0][0].piece)
    ids = [BOS_ID, *encode_masked(filler.tokenizer, text, "[MASK]"), EOS_ID]
    seen = opened.model.attention_weights(torch.tensor([ids]), PackedLayout.unpacked(1))["encoder"][0]
    (map,) = found["attention"]
    np.testing.assert_array_equal(np.array(map["weights"], np.float32), seen.numpy())
    assert (map["kind"], map["layers"], map["heads"]) == ("self", 2, 2)
    assert (map["queries"][0], map["queries"][-1]) == ("[CLS]", "[SEP]") and map["queries"] == map["keys"]
    assert "->" not in call("attend", masked, "the film")[1], "nothing is predicted without a mask"


def test_gpt_reads_in_the_order_of_its_direction(call: Call, causal: Path) -> None:
    """This one reads right to left: in the order of the text it attends to later tokens only."""
    (map,) = shown(call, causal, "people came back")["attention"]
    weights = np.array(map["weights"])
    assert map["kind"] == "causal" and map["keys"][-1] == "<s>"
    np.testing.assert_array_equal(weights, np.triu(weights))
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


def test_a_text_classifier_shows_its_label(call: Call, texts: Path) -> None:
    found = shown(call, texts, "the film was dull")
    classifier = TextClassificationPredictor(
        load_model(texts, "text-classification", device="cpu"), PredictRequest(texts, []), print
    )
    (shares,) = classifier.classify(["the film was dull"], [None])
    assert found["target"] == classifier.labels[int(np.argmax(shares))]
    assert found["probability"] == round(max(shares), 4)
    refused(call("attend", texts, "a", "--pair", "b"), 2, "trained on single texts", "--pair")
    for option in (("--target", "b"), ("--tgt-lang", "de")):
        refused(call("attend", texts, "a", *option), 2, "does not translate", option[0])
    refused(call("attend", texts, "a", "--compare"), 4, "--compare requires a translator", "leave out --compare")


def test_words_are_sums_of_columns_and_means_of_rows(call: Call, masked: Path) -> None:
    text = "people came back, twice."
    (tokens,), (words,) = (shown(call, masked, text, *more)["attention"] for more in ((), ("--unit", "word")))
    assert words["keys"] == ["[CLS]", "people", "came", "back", ",", "twice", ".", "[SEP]"] and words["unit"] == "word"
    whole = np.array(words["weights"])
    np.testing.assert_allclose(whole.sum(-1), 1, atol=1e-5)
    at = [i for i, token in enumerate(tokens["keys"]) if token.startswith("▁")] + [tokens["keys"].index(",")]
    first, second = at[0], at[1]  # the tokens of "people"
    expected = np.array(tokens["weights"])[:, :, first:second, first:second].sum(-1).mean(-1)
    np.testing.assert_allclose(whole[:, :, 1, 1], expected, atol=1e-6)
    plain = shown(call, masked, text, "--unit", "word", "--hide-special")["attention"][0]
    assert plain["keys"] == words["keys"][1:-1]
    np.testing.assert_allclose(plain["weights"], whole[:, :, 1:-1, 1:-1], atol=1e-12)


def test_the_page_of_a_language_model_is_the_translators(call: Call, masked: Path, tmp_path: Path) -> None:
    code, _, err = call(
        "attend", masked, "a [MASK]", "--html", tmp_path / "a.html", "--png", tmp_path / "a.png", "--unit", "word"
    )
    assert (code, len(err.splitlines())) == (0, 2)
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert '"unit":"word"' in page and "Self-attention" in page and 'id="weights-0"' in page
    refused(call("attend", masked, "a", "--pair", "b"), 2, "one text per line", "--pair")
    refused(call("attend", masked, "a", "--kind", "cross"), 2, "choose one of self")
    refused(call("attend", masked, "a " * 8000), 3, "more than the maximum of 512", "source:1")
    refused(call("attend", masked, " "), 3, "blank")
