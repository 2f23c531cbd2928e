"""What is imported computes what it computed in transformers, and cuts text as its tokenizer did there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")  # which needs Python 3.11

import safetensors.torch
import transformers
from hub_encoders import byte_pair_entries
from hub_runs import ODD, TEXT, check_refusal, configure, save_run, shaken, vocabulary
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Engine

from attnkit.analysis.verify import verify_run
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.conversion.import_vocabulary import read_vocabulary
from attnkit.engine.loading import load_model
from attnkit.engine.resolve import inherited, resolve
from attnkit.engine.trainer import TrainingFinished, TrainRequest, train
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import AttnkitError, DataError, RunError, UsageError
from attnkit.models.bert import Bert
from attnkit.models.gpt import Gpt
from attnkit.models.layers import PackedLayout
from attnkit.tasks.language_modeling.compare import compare
from attnkit.tasks.language_modeling.fill_mask import FillMaskPipeline

NEAR: dict[str, Any] = {"rtol": 0, "atol": 1e-5}
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
WORDS = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyzé,.!?'", "the", "fox"]
WORDS += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"] + ["dog", "##ing", "日", "本", "ß", "ü", "É", "The"]


def bert_tokenizer(folder: Path, **options: Any) -> Any:
    return transformers.BertTokenizer(vocab={word: i for i, word in enumerate(WORDS)}, **options)


def roberta_tokenizer() -> Any:
    vocab, merges = byte_pair_entries(["<s>", "<pad>", "</s>", "<unk>"], TEXT)
    mask = AddedToken("<mask>", lstrip=True, special=True)  # as the published ones have it
    return transformers.RobertaTokenizer(vocab={**vocab, "<mask>": len(vocab)}, merges=merges, mask_token=mask)


def gpt2_tokenizer() -> Any:
    vocab, merges = byte_pair_entries([], TEXT)
    return transformers.GPT2Tokenizer(vocab={**vocab, "<|endoftext|>": len(vocab)}, merges=merges)


def saved(folder: Path, model: Any, tokenizer: Any) -> Any:
    """Save a model with random numbers everywhere, and its tokenizer."""
    torch.manual_seed(1)
    shaken(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def bert_folder(folder: Path, kind: Any = transformers.BertForPreTraining, **changes: Any) -> Any:
    tokenizer = bert_tokenizer(folder, do_lower_case=changes.pop("do_lower_case", True))
    config = transformers.BertConfig(vocab_size=len(WORDS) + 3, max_position_embeddings=40, **SHAPE, **changes)
    return saved(folder, kind(config), tokenizer)


def roberta_folder(folder: Path, kind: Any = transformers.RobertaForMaskedLM, **changes: Any) -> Any:
    tokenizer = roberta_tokenizer()
    config = transformers.RobertaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=42,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        **SHAPE,
        **changes,
    )
    return saved(folder, kind(config), tokenizer)


def roformer_folder(folder: Path, kind: Any = transformers.RoFormerForMaskedLM, **changes: Any) -> Any:
    tokenizer = bert_tokenizer(folder, do_lower_case=True)
    shape = {**SHAPE, "max_position_embeddings": 40, **changes}
    return saved(folder, kind(transformers.RoFormerConfig(vocab_size=len(WORDS) + 3, **shape)), tokenizer)


def gpt2_folder(folder: Path, kind: Any = transformers.GPT2LMHeadModel, **changes: Any) -> Any:
    tokenizer = gpt2_tokenizer()
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_positions=40, n_embd=32, n_layer=2, n_head=4, **changes
    )
    return saved(folder, kind(config), tokenizer)


FOLDERS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "bert": (bert_folder, {}),
    "bert without next sentence": (bert_folder, {"kind": transformers.BertForMaskedLM}),
    "bert untied, cased": (bert_folder, {"tie_word_embeddings": False, "do_lower_case": False, "hidden_act": "relu"}),
    "roberta": (roberta_folder, {}),
    "roberta untied": (roberta_folder, {"tie_word_embeddings": False}),
    "roformer": (roformer_folder, {}),
    "roformer untied": (roformer_folder, {"tie_word_embeddings": False, "hidden_act": "relu"}),
    "gpt2": (gpt2_folder, {}),
    "gpt2 untied": (gpt2_folder, {"tie_word_embeddings": False, "activation_function": "relu", "n_inner": 48}),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_logits_and_ids_are_the_same(name: str, tmp_path: Path) -> None:
    make, changes = FOLDERS[name]
    hub, run = tmp_path / "hub", tmp_path / "run"
    theirs = make(hub, **changes)
    done = import_huggingface(hub, run)
    assert not done.warnings
    assert done.command == ("generate" if "gpt2" in name else "fill-mask")
    opened = load_model(run, "clm" if "gpt2" in name else "mlm", device="cpu")
    order = read_vocabulary(hub, name.split()[0], theirs.config.vocab_size).order
    tokenizer, other = read_tokenizer(opened.checkpoint), transformers.AutoTokenizer.from_pretrained(hub)
    lines = [line for line in [*ODD, *TEXT[:5]] if "<s>" not in line]
    translated = [[order[id] for id in ids] for ids in tokenizer.encode(lines)]
    assert translated == other(lines, add_special_tokens=False).input_ids
    places = [id for id in order if id is not None]
    mine = torch.tensor([i for i, id in enumerate(order) if id is not None])
    ids = torch.randint(4, len(order), (2, 33))
    given = torch.tensor(order)[ids] if None not in order else torch.tensor([id or 0 for id in order])[ids]
    with torch.no_grad():
        model = opened.model
        logits = model.head(model.hidden(ids, PackedLayout.unpacked(2)))[..., mine]
        found = theirs(input_ids=given, attention_mask=torch.ones_like(given))
    expected = found.prediction_logits if "prediction_logits" in found else found.logits
    torch.testing.assert_close(logits, expected[..., places], **NEAR)
    assert expected.std() > 0.3, "the test needs a model that says something"
    if "seq_relationship_logits" in found:
        with torch.no_grad():
            judged = model.next_sentence(model.hidden(ids, PackedLayout.unpacked(2)))
        torch.testing.assert_close(judged, found.seq_relationship_logits, **NEAR)
    assert verify_run(run).n_bad == 0, verify_run(run).things


def test_entries_that_they_lack_are_never_likely(tmp_path: Path) -> None:
    theirs = gpt2_folder(tmp_path / "hub")
    with torch.no_grad():  # all logits are far below zero, as GPT-2's are
        theirs.transformer.wte.weight += 1
        theirs.transformer.ln_f.bias -= 3
    theirs.save_pretrained(tmp_path / "hub")
    import_huggingface(tmp_path / "hub", tmp_path / "run")
    model = load_model(tmp_path / "run", "clm", device="cpu").model
    ids = torch.randint(4, model.output.weight.shape[0], (4, 30))
    with torch.no_grad():
        shares = model.head(model.hidden(ids, PackedLayout.unpacked(4))).softmax(-1)
    assert shares[..., [0, 3]].max() <= 1 / shares.shape[-1]
    torch.testing.assert_close(shares[..., 1], shares[..., 2])  # GPT-2's one entry begins and ends texts


@pytest.mark.parametrize("place", [".", "new", "deep/er", "empty", "locked", "link"])
def test_a_run_is_made_where_nothing_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """In a folder that is there already, too: with a lock that a killed process left, or by a link."""
    bert_folder(tmp_path / "hub")
    (tmp_path / "here/empty").mkdir(parents=True)
    (tmp_path / "here/locked").mkdir()
    (tmp_path / "here/locked/lock").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here/link").symlink_to(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path / "here")
    if place == ".":
        monkeypatch.chdir(tmp_path / "here/empty")
    import_huggingface(tmp_path / "hub", Path(place))
    assert verify_run(Path(place)).n_bad == 0
    assert list(tmp_path.rglob(".tmp-*")) == []
    name = "empty" if place == "." else Path(place).name
    assert (Path(place) / "README.md").read_text().startswith(f"# {name}\n")


def test_a_text_of_which_the_vocabulary_leaves_nothing_is_refused(tmp_path: Path) -> None:
    bert_folder(tmp_path / "bert-hub")
    gpt2_folder(tmp_path / "gpt-hub")
    for name in ("bert", "gpt"):
        import_huggingface(tmp_path / f"{name}-hub", tmp_path / name)
    with pytest.raises(DataError, match="the text has no tokens in this vocabulary"):
        compare((tmp_path / "bert", tmp_path / "gpt"), "\u200b", device="cpu")


def older(folder: Path) -> None:
    """Turn a folder into one as they were written years ago: gamma and beta, buffers, a list of words."""
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load(path.read_bytes())
    turned = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): tensor for name, tensor in tensors.items()}
    turned = {name.replace("LayerNorm.bias", "LayerNorm.beta"): tensor for name, tensor in turned.items()}
    turned["bert.embeddings.position_ids"] = torch.arange(40)[None]
    turned["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    path.write_bytes(safetensors.torch.save(turned, metadata={"format": "pt"}))
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))


def test_older_files_give_the_same_run(tmp_path: Path) -> None:
    bert_folder(tmp_path / "hub")
    import_huggingface(tmp_path / "hub", tmp_path / "new")
    older(tmp_path / "hub")
    assert not import_huggingface(tmp_path / "hub", tmp_path / "old").warnings
    new, old = (RunFolder(tmp_path / name).checkpoint()[0] for name in ("new", "old"))
    assert new.read("model.safetensors") == old.read("model.safetensors")
    assert read_tokenizer(new).fingerprint == read_tokenizer(old).fingerprint, "the vocabulary, without its files"


def test_merges_in_files_of_their_own_give_the_same_run(tmp_path: Path) -> None:
    gpt2_folder(tmp_path / "hub")
    import_huggingface(tmp_path / "hub", tmp_path / "new")
    model = json.loads((tmp_path / "hub/tokenizer.json").read_text())["model"]
    (tmp_path / "hub/tokenizer.json").unlink()
    (tmp_path / "hub/vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [" ".join(merge) for merge in model["merges"]]
    (tmp_path / "hub/merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
    import_huggingface(tmp_path / "hub", tmp_path / "old")
    new, old = (RunFolder(tmp_path / name).checkpoint()[0] for name in ("new", "old"))
    assert new.read("model.safetensors") == old.read("model.safetensors")
    assert read_tokenizer(new).fingerprint == read_tokenizer(old).fingerprint, "the vocabulary, without its files"


def test_a_body_alone_comes_with_a_warning(tmp_path: Path) -> None:
    bert_folder(tmp_path / "hub", transformers.BertModel)
    done = import_huggingface(tmp_path / "hub", tmp_path / "run")
    assert any("no masked-LM head" in text for text in done.warnings)
    assert done.command == "embed", "its predictions would be random"
    bert_folder(tmp_path / "labels", transformers.BertForMultipleChoice)
    done = import_huggingface(tmp_path / "labels", tmp_path / "tagger")
    assert any("the head 'classifier' was not imported" in text for text in done.warnings)
    bodies = [load_model(tmp_path / name, "mlm", device="cpu").model.state_dict() for name in ("run", "tagger")]
    assert bodies[0].keys() == bodies[1].keys()


def test_half_precision_is_read(tmp_path: Path) -> None:
    theirs = gpt2_folder(tmp_path / "hub")
    theirs.to(torch.bfloat16).save_pretrained(tmp_path / "hub")
    import_huggingface(tmp_path / "hub", tmp_path / "run")
    model = load_model(tmp_path / "run", "clm", device="cpu").model
    assert torch.equal(model.norm.weight, theirs.transformer.ln_f.weight.float())


@pytest.mark.parametrize(
    ("task", "changes"),
    [("mlm", {"positions": "learned"}), ("mlm", {}), ("mlm", {"n_segments": 1}), ("clm", {})],
    ids=str,
)
def test_there_and_back_changes_no_bit(task: str, changes: dict[str, Any], tmp_path: Path) -> None:
    words = vocabulary()
    config = configure(task, words, **changes)
    torch.manual_seed(6)
    model: Any = shaken((Bert if task == "mlm" else Gpt)(config.model, words.vocab_size))  # type: ignore[arg-type]
    save_run(tmp_path / "run", config, model, words)
    export_huggingface(tmp_path / "run", tmp_path / "hub")
    assert not import_huggingface(tmp_path / "hub", tmp_path / "back").warnings
    back = load_model(tmp_path / "back", task, device="cpu")
    mine = model.state_dict()
    assert all(torch.equal(tensor, mine[name]) for name, tensor in back.model.state_dict().items())
    assert back.config.model == config.model
    assert read_tokenizer(back.checkpoint).encode(ODD) == words.encode(ODD)


@pytest.mark.parametrize("name", [name for name in FOLDERS if "gpt2" not in name])
def test_what_was_imported_is_exported_as_it_was(name: str, tmp_path: Path) -> None:
    make, changes = FOLDERS[name]
    theirs = make(tmp_path / "hub", **changes)
    with torch.no_grad():  # attnkit adds the vector of a single segment to positions, and keeps no unused positions
        embeddings = next(part for part in theirs.modules() if hasattr(part, "token_type_embeddings"))
        if theirs.config.type_vocab_size == 1:
            embeddings.token_type_embeddings.weight.zero_()
            embeddings.position_embeddings.weight[:2] = 0
    theirs.save_pretrained(tmp_path / "hub")
    import_huggingface(tmp_path / "hub", tmp_path / "run")
    folder = export_huggingface(tmp_path / "run", tmp_path / "again").path
    files = [safetensors.torch.load((path / "model.safetensors").read_bytes()) for path in (tmp_path / "hub", folder)]
    unused = ("cls.predictions.bias", "lm_head.bias") if "untied" in name else ()
    assert all(torch.equal(tensor, files[1][key]) for key, tensor in files[0].items() if key not in unused)
    for path in (tmp_path / "hub").glob("*token*"):
        assert (folder / path.name).read_bytes() == path.read_bytes()
    again = getattr(transformers, json.loads((folder / "config.json").read_text())["architectures"][0])
    assert again is type(theirs)
    again = again.from_pretrained(folder)
    ids = torch.randint(4, theirs.config.vocab_size, (2, 30))
    with torch.no_grad():
        assert torch.equal(again(input_ids=ids)[0], theirs(input_ids=ids)[0])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rotary_value": True}, "unsupported rotary_value True for roformer"),
        ({"embedding_size": 16}, "unsupported embedding_size 16 for roformer"),
        ({"type_vocab_size": 1}, "one non-zero segment embedding"),
    ],
    ids=str,
)
def test_a_roformer_that_is_none_of_ours_is_refused(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    roformer_folder(tmp_path / "hub", **changes)
    with pytest.raises(RunError, match=said):
        import_huggingface(tmp_path / "hub", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_roformer_whose_words_jieba_finds_is_refused(tmp_path: Path) -> None:
    roformer_folder(tmp_path / "hub")
    rewrite(tmp_path / "hub", "tokenizer_config.json", tokenizer_class="RoFormerTokenizer")
    with pytest.raises(RunError, match="tokenizer needs jieba"):
        import_huggingface(tmp_path / "hub", tmp_path / "run")


def rewrite(folder: Path, name: str = "config.json", **changes: Any) -> None:
    tree = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**tree, **changes}))


def tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    path = folder / "model.safetensors"
    found = dict(safetensors.torch.load(path.read_bytes()))
    change(found)
    path.write_bytes(safetensors.torch.save(found, metadata={"format": "pt"}))


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def deep(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000)


def sentence_pieces(folder: Path) -> None:
    engine = Engine(models.Unigram([("<unk>", 0.0), ("▁the", -1.0)], unk_id=0))
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    engine.post_processor = processors.ByteLevel()
    engine.save(str(folder / "tokenizer.json"))


BIG = 1 << 19
BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda hub: (hub / "config.json").unlink(), "no config.json"),
    "no weights": (lambda hub: (hub / "model.safetensors").unlink(), "no model.safetensors"),
    "no tokenizer": (lambda hub: (hub / "tokenizer.json").unlink(), "no tokenizer"),
    "a safetensors file as a pickle": (pickled, "this is not a file of torch"),
    "several files": (
        lambda hub: (hub / "model.safetensors").rename(hub / "model.safetensors.index.json"),
        "the list of shards cannot be used",
    ),
    "another architecture": (lambda hub: rewrite(hub, model_type="bart"), "unsupported model_type 'bart'"),
    "no architecture": (lambda hub: (hub / "config.json").write_text("{}"), "model_type is missing"),
    "a list": (lambda hub: (hub / "config.json").write_text("[]"), "is not a JSON object"),
    "brackets": (deep, "config.json cannot be used"),
    "a width that is not a number": (lambda hub: rewrite(hub, hidden_size="wide"), "hidden_size"),
    "more layers than there are": (lambda hub: rewrite(hub, num_hidden_layers=3), "the weights lack '.*layer.2"),
    "fewer layers than there are": (lambda hub: rewrite(hub, num_hidden_layers=1), "unexpected weight '.*layer.1"),
    "another width": (
        lambda hub: rewrite(hub, hidden_size=64),
        r"has shape \[\d+, 32\], but config.json implies \[\d+, 64\]",
    ),
    "enormous": (lambda hub: rewrite(hub, vocab_size=BIG, hidden_size=1 << 16), "config.json implies"),
    "odd heads": (lambda hub: rewrite(hub, num_attention_heads=5), "must be a multiple"),
    "a decoder": (lambda hub: rewrite(hub, is_decoder=True), "is_decoder"),
    "relative positions": (
        lambda hub: rewrite(hub, position_embedding_type="relative_key"),
        "position_embedding_type relative_key",
    ),
    "another activation": (lambda hub: rewrite(hub, hidden_act="mish"), "unsupported activation 'mish'"),
    "not finite": (
        lambda hub: tensors(hub, lambda found: found["bert.embeddings.LayerNorm.bias"].fill_(float("nan"))),
        "are not finite",
    ),
    "a tensor missing": (
        lambda hub: tensors(hub, lambda found: found.pop("bert.embeddings.LayerNorm.bias")),
        "the weights lack 'bert.embeddings.LayerNorm.bias'",
    ),
    "whole numbers": (
        lambda hub: tensors(hub, lambda found: found.update({"bert.embeddings.LayerNorm.bias": torch.ones(32).long()})),
        "has the unsupported dtype I64",
    ),
    "a strange tensor": (
        lambda hub: tensors(hub, lambda found: found.update({"bert.adapter.weight": torch.ones(2)})),
        "unexpected weight 'bert.adapter.weight'",
    ),
    "text for weights": (lambda hub: (hub / "model.safetensors").write_text("x" * 99), "not a safetensors file"),
    "cut off": (
        lambda hub: (hub / "model.safetensors").write_bytes((hub / "model.safetensors").read_bytes()[:-9]),
        "the weights cannot be used",
    ),
    "another kind of tokenizer": (sentence_pieces, "not one of BERT, GPT-2, Llama 2 or Llama 3"),
    "two added tokens with one id": (
        lambda hub: rewrite(
            hub, "tokenizer.json", added_tokens=[{"id": 5, "content": name} for name in ("[MASK]", "[ODD]")]
        ),
        "duplicate id 5: '\\[MASK\\]' and '\\[ODD\\]'",
    ),
    "no mask": (lambda hub: rewrite(hub, "tokenizer_config.json", mask_token="[HIDE]"), "it has no mask_token"),
    "fewer rows than entries": (
        lambda hub: (
            rewrite(hub, vocab_size=20),
            tensors(hub, lambda found: found.update({k: v[:20].clone() for k, v in found.items() if len(v) == V})),
        ),
        "but the model has 20",
    ),
}
V = len(WORDS) + 3


@pytest.mark.parametrize("value", [{}, {"[PAD]": 0, "[UNK]": 2}, None, [], 0, {"a": 6}, {"[MASK]": 5, "a": 700}])
def test_a_mutated_vocabulary_fills_masks_or_is_refused(value: Any, tmp_path: Path) -> None:
    """Entries that are missing end in an ``AttnkitError``: of importing, or of filling masks where no text is left."""
    bert_folder(tmp_path / "hub")
    path = tmp_path / "hub/tokenizer.json"
    tree = json.loads(path.read_text())
    tree["model"]["vocab"] = value
    path.write_text(json.dumps(tree))
    try:
        import_huggingface(tmp_path / "hub", tmp_path / "run")
    except RunError as error:
        assert "the tokenizer cannot be imported" in str(error)
        return
    opened = load_model(tmp_path / "run", "mlm", device="cpu")
    if not value or set(value) <= {"[PAD]", "[UNK]"}:
        with pytest.raises(RunError, match="only special tokens"):
            FillMaskPipeline(opened)
    else:
        assert FillMaskPipeline(opened).fill(["a [MASK]"])[0].masks[0]


@pytest.mark.parametrize("value", [1, None, {}, "a b", [1], [["a"]]])
def test_mutated_merges_are_refused(value: Any, tmp_path: Path) -> None:
    roberta_folder(tmp_path / "hub")
    path = tmp_path / "hub/tokenizer.json"
    tree = json.loads(path.read_text())
    tree["model"]["merges"] = value
    path.write_text(json.dumps(tree))
    with pytest.raises(RunError, match=r"the tokenizer cannot be imported: .* merge"):
        import_huggingface(tmp_path / "hub", tmp_path / "run")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("broken") / "hub"
    bert_folder(folder)
    return folder


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_with_a_folder_is_said(name: str, hub: Path, tmp_path: Path) -> None:
    import shutil

    folder = Path(shutil.copytree(hub, tmp_path / "hub"))
    change, said = BROKEN[name]
    change(folder)
    with pytest.raises(RunError, match=said) as caught:
        import_huggingface(folder, tmp_path / "run")
    check_refusal(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_run_is_never_overwritten(hub: Path, tmp_path: Path) -> None:
    import_huggingface(hub, tmp_path / "run")
    with pytest.raises(UsageError, match="the output folder already contains a run"):
        import_huggingface(hub, tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/mine").touch()
    with pytest.raises(AttnkitError, match="contains other files"):
        import_huggingface(hub, tmp_path / "other")
    with pytest.raises(RunError, match="no such folder"):
        import_huggingface(tmp_path / "none", tmp_path / "third")
    with pytest.raises(RunError, match=r"config\.json is not a folder") as caught:
        import_huggingface(hub / "config.json", tmp_path / "third")
    assert "the folder that holds config.json" in str(caught.value.help)
    with pytest.raises(RunError, match="no such folder: Helsinki-NLP/opus-mt-en-de") as caught:
        import_huggingface(Path("Helsinki-NLP/opus-mt-en-de"), tmp_path / "third")
    assert "hf download Helsinki-NLP/opus-mt-en-de --local-dir opus-mt-en-de" in str(caught.value.help)


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2"])
def test_what_was_imported_is_pretrained_further(name: str, tmp_path: Path) -> None:
    make, changes = FOLDERS[name]
    make(tmp_path / "hub", **changes)
    import_huggingface(tmp_path / "hub", tmp_path / "run")
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in TEXT * 3))
    task, other = ("clm", "mlm") if name == "gpt2" else ("mlm", "clm")
    flags = {"task": task, "data.files": [str(tmp_path / "text")], "device": "cpu", "limits.max_steps": 2}
    given = resolve(
        {**flags, "data.sequence_length": 24}, preset_name="tiny", fixed=inherited(tmp_path / "run", tmp_path / "more")
    )
    done = list(train(TrainRequest(given.config, tmp_path / "more", init_from=tmp_path / "run")))[-1]
    begun, ended = (load_model(tmp_path / run, task, device="cpu") for run in ("run", "more"))
    assert isinstance(done, TrainingFinished) and done.metrics.keys() >= {"loss", "accuracy"}
    assert ended.config.model == begun.config.model
    assert read_tokenizer(ended.checkpoint).to_json() == read_tokenizer(begun.checkpoint).to_json()
    moved = ended.model.embedding.weight - begun.model.embedding.weight
    assert 0 < float(moved.detach().abs().max()) < 0.05, "two steps from there, and not from elsewhere"
    with pytest.raises(RunError, match=f"'{task}', not a (masked )?language model"):
        resolve({**flags, "task": other}, fixed=inherited(tmp_path / "run", tmp_path / "third"))
