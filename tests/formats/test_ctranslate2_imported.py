"""Models of transformers that were imported go on to CTranslate2, where they compute what they compute here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import ctranslate2
import transformers
from hub_encoders import ENCODERS as ENCODER_FOLDERS
from hub_runs import TEXT
from readme_example import readme_functions
from test_ctranslate2_language_export import NEAR, check_encoder, check_generator
from test_gpt2_export import LORA, STEADY, gpt2_folder
from test_gpt2_export import SHAPES as GPT2S
from test_huggingface_import import FOLDERS, bert_folder, roberta_folder, roformer_folder
from test_llama_import import SHAPES as LLAMAS
from test_llama_import import llama_folder
from test_mistral_import import PIECES, mistral_folder
from test_mistral_import import SHAPES as MISTRALS

from attnkit.conversion.export_ctranslate2 import export_ctranslate2
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.checkpoint_metadata import read_labels
from attnkit.engine.loading import load_model
from attnkit.engine.predict import PredictRequest
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import RunError
from attnkit.tasks.finetuning.text_classification import TextClassificationPredictor

GENERATORS: dict[str, tuple[Callable[[Path], Any], int]] = {
    **{f"GPT-2, {name}": (lambda hub, name=name: gpt2_folder(hub, **GPT2S[name]), 40) for name in GPT2S},
    **{f"Llama, {name}": (lambda hub, name=name: llama_folder(hub, **LLAMAS[name]), 512) for name in LLAMAS},
    **{f"Mistral, {name}": (lambda hub, name=name: mistral_folder(hub, name), 512) for name in MISTRALS},
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_says_the_same(name: str, tmp_path: Path) -> None:
    write, n_positions = GENERATORS[name]
    write(tmp_path / "hub")
    import_huggingface(tmp_path / "hub", tmp_path / "run")
    check_generator(tmp_path / "run", tmp_path / "out", n_positions)
    file = "sentencepiece.model" if name == f"Mistral, {PIECES}" else "tokenizer.json"
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"model.bin", "config.json", "vocabulary.json", file, "README.md"}


ENCODERS: dict[str, Callable[[Path], Any]] = {
    **{
        name: lambda hub, name=name: FOLDERS[name][0](hub, **FOLDERS[name][1])
        for name in FOLDERS
        if name.startswith(("bert", "ro"))
    },
    **{
        f"{kind} {shape}": lambda hub, kind=kind, shape=shape: ENCODER_FOLDERS[kind](hub, shape)
        for kind in ("xlm-roberta", "distilbert")
        for shape in range(3)
    },
    "electra": lambda hub: ENCODER_FOLDERS["electra"](hub, 2),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_has_the_same_features(name: str, tmp_path: Path) -> None:
    ENCODERS[name](tmp_path / "hub")
    import_huggingface(tmp_path / "hub", tmp_path / "run")
    check_encoder(tmp_path / "run", tmp_path / "out", 40)


@pytest.mark.parametrize(("kind", "where"), [("electra", "model.d_embedding"), ("modernbert", "model.local_window")])
def test_an_encoder_that_it_lacks_is_refused(kind: str, where: str, tmp_path: Path) -> None:
    ENCODER_FOLDERS[kind](tmp_path / "hub")
    import_huggingface(tmp_path / "hub", tmp_path / "run")
    with pytest.raises(RunError, match="CTranslate2 does not support") as caught:
        export_ctranslate2(tmp_path / "run", tmp_path / "out")
    assert where in str(caught.value.where) and "supported: " in str(caught.value.help)
    assert not (tmp_path / "out").exists()


BODIES: dict[str, Callable[..., Any]] = {
    "Bert": bert_folder,
    "Roberta": roberta_folder,
    "RoFormer": roformer_folder,
    "DistilBert": lambda hub, kind, **labels: ENCODER_FOLDERS["distilbert"](hub, 0, kind, **labels),
    "Electra": lambda hub, kind, **labels: ENCODER_FOLDERS["electra"](hub, 2, kind, **labels),
    "XLMRoberta": lambda hub, kind, **labels: ENCODER_FOLDERS["xlm-roberta"](hub, 0, kind, **labels),
}
PAIRS = [("the fox",), ("fox dog", "the dog"), ("the dog the dog",), ("dog", "the quick fox"), ("quick",), ("a", "b")]


def imported(tmp_path: Path, body: str, head: str, **labels: Any) -> Path:
    BODIES[body](tmp_path / "hub", getattr(transformers, f"{body}For{head}"), **labels)
    import_huggingface(tmp_path / "hub", tmp_path / "run")
    return tmp_path / "run"


def outputs(functions: dict[str, Any], rows: list[tuple[str, ...]], pooled: bool) -> np.ndarray:
    """Return the logits that the exported files give."""
    head, (_, output) = functions["head"], functions["forward"](rows)
    features = np.array(output.pooler_output if pooled else output.last_hidden_state)
    found: np.ndarray = features @ head["weight"].T + head["bias"]
    return found


@pytest.mark.parametrize("body", BODIES)
def test_a_classifier_gives_the_same_labels(body: str, tmp_path: Path) -> None:
    run = imported(tmp_path, body, "SequenceClassification", id2label={0: "no", 1: "yes", 2: "who knows"})
    done = export_ctranslate2(run, tmp_path / "out")
    assert not done.warnings
    opened = load_model(run, "text-classification", device="cpu")
    predictor = TextClassificationPredictor(opened, PredictRequest(run, []), print)
    functions = readme_functions(tmp_path / "out")
    logits = torch.from_numpy(outputs(functions, PAIRS, pooled=True)).double()
    for row, found in zip(PAIRS, logits.softmax(-1).tolist(), strict=True):
        expected = predictor.classify([row[0]], [row[1] if len(row) > 1 else None])[0]
        np.testing.assert_allclose(found, expected, **NEAR)
    labels = read_labels(opened.checkpoint).labels
    assert functions["classify"](PAIRS) == [labels[id] for id in logits.argmax(-1).tolist()]
    assert functions["labels"] == list(labels) == ["no", "yes", "who knows"]


@pytest.mark.parametrize("body", BODIES)
def test_a_tagger_gives_the_same_labels(body: str, tmp_path: Path) -> None:
    run = imported(tmp_path, body, "TokenClassification", id2label={0: "O", 1: "B-PER", 2: "I-PER"})
    export_ctranslate2(run, tmp_path / "out")
    opened = load_model(run, "token-classification", device="cpu")
    functions, words = readme_functions(tmp_path / "out"), read_tokenizer(opened.checkpoint)
    names = json.loads((tmp_path / "out" / "vocabulary.json").read_text())
    for text in ("the fox", "the quick dog the fox", "a"):
        ids = words.encode([text])[0]
        row = torch.tensor([[1, *ids, 2]])
        with torch.no_grad():
            expected = opened.model(row, torch.ones_like(row, dtype=torch.bool))[0]
        np.testing.assert_allclose(outputs(functions, [(text,)], pooled=False)[0], expected.numpy(), **NEAR)
        tags = [functions["labels"][tag] for tag in expected.argmax(-1).tolist()][1:-1]
        assert functions["tag"](text) == list(zip([names[id] for id in ids], tags, strict=True))


@pytest.mark.parametrize("body", BODIES)
def test_an_answer_is_the_same_span(body: str, tmp_path: Path) -> None:
    run = imported(tmp_path, body, "QuestionAnswering")
    export_ctranslate2(run, tmp_path / "out")
    opened = load_model(run, "question-answering", device="cpu")
    functions, words = readme_functions(tmp_path / "out"), read_tokenizer(opened.checkpoint)
    for question, context in (("the fox", "the quick dog"), ("dog", "the dog and the fox")):
        first, second = words.encode([question, context])
        begin = [1, *first, *[2] * opened.config.model.separators]
        row = torch.tensor([[*begin, *second, 2]])
        inside = (torch.arange(row.shape[1]) >= len(begin)) & (torch.arange(row.shape[1]) < row.shape[1] - 1)
        segments = (torch.arange(row.shape[1]) >= len(begin)).long()[None] * (opened.config.model.n_segments > 1)
        with torch.no_grad():
            starts, ends = opened.model(row, torch.ones_like(row, dtype=torch.bool), segments, inside[None])[:, 0]
            logits = opened.model.outputs(row, torch.ones_like(row, dtype=torch.bool), segments)[0]
        np.testing.assert_allclose(outputs(functions, [(question, context)], pooled=False)[0], logits.numpy(), **NEAR)
        scores = (starts[:, None] + ends[None, :]).triu()
        scores[~torch.ones_like(scores, dtype=torch.bool).triu()] = -torch.inf
        i, j = divmod(int(scores.argmax()), scores.shape[1])
        found = functions["answer"](question, context).strip().removeprefix("##")  # an answer may begin in a word
        assert found == words.decode([row[0, i : j + 1].tolist()])[0].strip()


def test_an_adapter_leaves_in_the_weights(call: Callable[..., Any], tmp_path: Path) -> None:
    gpt2_folder(tmp_path / "hub")
    import_huggingface(tmp_path / "hub", tmp_path / "base")
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in TEXT))
    begun = ["--init-from", tmp_path / "base", *STEADY, *LORA]
    code, _, err = call("pretrain-clm", tmp_path / "text", "-o", tmp_path / "run", *begun)
    assert code == 0, err
    check_generator(tmp_path / "run", tmp_path / "out", 40)
    code, out, err = call("export", tmp_path / "base", "--to", "ctranslate2", tmp_path / "base-ct2", "--json")
    assert code == 0 and json.loads(out)["path"] == str(tmp_path / "base-ct2"), err
    before, after = ((tmp_path / folder / "model.bin").read_bytes() for folder in ("base-ct2", "out"))
    assert before != after


def test_the_features_are_those_of_transformers(tmp_path: Path) -> None:
    theirs = bert_folder(tmp_path / "hub", transformers.BertForMaskedLM)
    import_huggingface(tmp_path / "hub", tmp_path / "run")
    export_ctranslate2(tmp_path / "run", tmp_path / "out")
    inputs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hub")("the fox jumps", return_tensors="pt")
    with torch.no_grad():
        expected = theirs.bert(**inputs).last_hidden_state[0].numpy()
    np.testing.assert_allclose(readme_functions(tmp_path / "out")["features"](["the fox jumps"])[0], expected, **NEAR)


def test_the_logits_are_those_of_transformers(tmp_path: Path) -> None:
    theirs = llama_folder(tmp_path / "hub", **LLAMAS["as Llama 3.1"])
    import_huggingface(tmp_path / "hub", tmp_path / "run")
    export_ctranslate2(tmp_path / "run", tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hub")
    text = "the quick brown fox jumps over the lazy dog"
    with torch.no_grad():
        logits = theirs(tokenizer(text, return_tensors="pt").input_ids).logits[0]
    words = read_tokenizer(load_model(tmp_path / "run", "clm", device="cpu").checkpoint)
    assert words.origin is not None
    places = [(here, there) for here, there in enumerate(words.origin.order) if there is not None]
    generator = ctranslate2.Generator(str(tmp_path / "out"), compute_type="float32", intra_threads=1)
    found = np.array(generator.forward_batch([[1, *words.encode([text])[0]]]))[0]
    expected = logits[:, [there for _, there in places]].numpy()
    np.testing.assert_allclose(found[:, [here for here, _ in places]], expected, **NEAR)
