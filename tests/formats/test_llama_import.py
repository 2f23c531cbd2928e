"""Llama: logits, ids and generated texts are those of transformers, and it leaves as it came."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")  # which needs Python 3.11

import safetensors.torch
import transformers
from hub_encoders import odd_lines
from hub_runs import ODD, TEXT, check_refusal, configure, save_run, shaken, vocabulary
from tokenizers import Regex, decoders, models, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Engine

from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.conversion.import_vocabulary import read_vocabulary
from attnkit.engine.compiled_language_models import compile_generator
from attnkit.engine.loading import load_model
from attnkit.errors import RunError
from attnkit.kernels.jit import is_available
from attnkit.models.gpt import Gpt
from attnkit.models.layers import PackedLayout
from attnkit.tasks.language_modeling.generate import Generator
from attnkit.tasks.language_modeling.generate import search_config as settings

WORDS = "|".join(
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
"""Split of Llama 3, from its published tokenizer.json."""
SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_0|>"]
LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA_3["original_max_position_embeddings"] = 16
LINEAR = {"rope_type": "linear", "factor": 3.0}
SHAPES: dict[str, dict[str, Any]] = {
    "all heads": {},
    "groups, tied": {"num_key_value_heads": 2, "tie_word_embeddings": True, "rope_theta": 500000.0},
    "one head of keys": {"num_key_value_heads": 1, "num_hidden_layers": 3, "rms_norm_eps": 1e-5},
    "biases": {"num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"},
    "wide heads, as Llama 3.2": {"num_key_value_heads": 2, "head_dim": 16, "rope": {**LLAMA_3, "factor": 32.0}},
    "narrow heads": {"num_key_value_heads": 1, "head_dim": 4, "tie_word_embeddings": True, "rope": LINEAR},
    "as Llama 3.1": {"num_key_value_heads": 2, "rope_theta": 500.0, "rope": LLAMA_3},
}


def llama_tokenizer(size: int = 420) -> Any:
    """Return a tokenizer like Llama 3's: bytes, its split, special tokens behind all others."""
    engine = Engine(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(WORDS), "isolated")
    bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_alone])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    engine.train_from_iterator(TEXT + odd_lines(200, 3), trainer)
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens(SPECIALS)
    ids = [(name, engine.token_to_id(name)) for name in SPECIALS]
    engine.post_processor = processors.TemplateProcessing(single=f"{SPECIALS[0]} $A", special_tokens=ids)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=engine, bos_token=SPECIALS[0], eos_token=SPECIALS[1], clean_up_tokenization_spaces=False
    )


def llama_folder(folder: Path, shard: str = "1GB", **changes: Any) -> Any:
    tokenizer = llama_tokenizer()
    rope = {"rope_type": "default", "rope_theta": changes.pop("rope_theta", 10000.0), **changes.pop("rope", {})}
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    shape |= {"max_position_embeddings": 64, **changes}
    special = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = transformers.LlamaConfig(vocab_size=len(tokenizer) + 5, rope_parameters=rope, **special, **shape)
    torch.manual_seed(1)
    model: Any = shaken(transformers.LlamaForCausalLM(config))
    model.save_pretrained(folder, max_shard_size=shard)
    tokenizer.save_pretrained(folder)
    return model


def imported(hub: Path, run: Path) -> Any:
    import_huggingface(hub, run)
    return load_model(run, "clm", device="cpu")


def order_of(hub: Path) -> list[int]:
    vocabulary = read_vocabulary(hub, "llama", json.loads((hub / "config.json").read_text())["vocab_size"])
    return [-1 if id is None else id for id in vocabulary.order]


@pytest.mark.parametrize("name", SHAPES)
def test_logits_are_the_same(name: str, tmp_path: Path) -> None:
    theirs = llama_folder(tmp_path / "hub", **SHAPES[name])
    opened = imported(tmp_path / "hub", tmp_path / "run")
    order = order_of(tmp_path / "hub")
    ours = torch.randint(4, len(order), (3, 30))
    ids = torch.tensor(order)[ours]
    with torch.no_grad():
        expected = theirs(ids).logits
        found = opened.model.head(opened.model.hidden(ours, PackedLayout.unpacked(3)))
    known = [i for i, id in enumerate(order) if id >= 0]
    torch.testing.assert_close(found[..., known], expected[..., [order[i] for i in known]], rtol=0, atol=1e-4)
    assert float(expected.std()) > 0.1, "the test needs logits that differ"


OLDER: dict[str, dict[str, Any]] = {
    "base beside scaling": {"rope_theta": 100.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
    "base beside parameters": {"rope_theta": 100.0, "rope_parameters": {"rope_type": "default"}},
    "two bases": {"rope_theta": 100.0, "rope_parameters": {"rope_theta": 200.0, "rope_type": "default"}},
    "scaling and parameters": {
        "rope_theta": 100.0,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        "rope_parameters": {"rope_theta": 200.0, "rope_type": "default"},
    },
    "empty scaling": {"rope_theta": 100.0, "rope_scaling": {}, "rope_parameters": None},
}


@pytest.mark.parametrize("name", OLDER)
def test_positions_of_older_configurations_are_read_as_transformers_reads_them(name: str, tmp_path: Path) -> None:
    theirs = llama_folder(tmp_path / "hub", num_key_value_heads=2)
    path = tmp_path / "hub/config.json"
    tree = {key: value for key, value in json.loads(path.read_text()).items() if not key.startswith("rope")}
    path.write_text(json.dumps(tree | OLDER[name]))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hub")
    opened, order = imported(tmp_path / "hub", tmp_path / "run"), order_of(tmp_path / "hub")
    ours = torch.randint(5, len(order), (2, 30))
    with torch.no_grad():
        found = opened.model.head(opened.model.hidden(ours, PackedLayout.unpacked(2)))
        expected = theirs(torch.tensor(order)[ours]).logits
    torch.testing.assert_close(found[..., 5:], expected[..., order[5:]], rtol=0, atol=1e-4)


@pytest.mark.parametrize("n_prompts", [12, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["groups, tied", "one head of keys", "wide heads, as Llama 3.2"])
def test_generated_ids_are_the_same(name: str, n_prompts: int, tmp_path: Path) -> None:
    theirs = llama_folder(tmp_path / "hub", **SHAPES[name]).double()
    opened = imported(tmp_path / "hub", tmp_path / "run")
    made = Generator(replace(opened, model=opened.model.double()), settings({"max_length": 15}))
    order, tokenizer = order_of(tmp_path / "hub"), made.tokenizer
    prompts = [line.strip()[:40] or "the" for line in odd_lines(n_prompts, 5)]  # of mixed lengths, in one call
    barred = [
        id for id in range(theirs.config.vocab_size) if id not in order or not tokenizer.bytes_of(order.index(id))
    ]
    barred = [id for id in barred if id != order[2]]
    seen = set()
    for prompt, answer in zip(prompts, made.generate(prompts), strict=True):
        row = torch.tensor([[order[id] for id in made.encode(prompt)]])
        found = theirs.generate(
            row,
            attention_mask=torch.ones_like(row),
            max_new_tokens=15,
            do_sample=False,
            suppress_tokens=barred,
            pad_token_id=0,
        )[0, row.shape[1] :].tolist()
        expected = [order.index(id) for id in found if id != order[2]]
        assert answer[0].pieces == tokenizer.tokens(expected)
        seen |= set(found)
    assert len(seen) > 5, "the test needs a model that says something"


@pytest.mark.parametrize("n_lines", [300, pytest.param(5000, marks=pytest.mark.slow)])
def test_tokenizers_give_the_same_ids_and_texts(n_lines: int, tmp_path: Path) -> None:
    tokenizer = llama_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    found = read_vocabulary(tmp_path, "llama", len(tokenizer) + 5)
    lines = [*ODD, *odd_lines(n_lines), "I'Ll 12345 it'S", "a\r\n\r\n  b", "x  \n y", "\u1e9e'ſ"]
    lines = [line for line in lines if not any(name in line for name in SPECIALS)]
    for line, ids in zip(lines, found.tokenizer.encode(lines), strict=True):
        assert [found.order[id] for id in ids] == tokenizer(line, add_special_tokens=False).input_ids, repr(line)
        assert found.tokenizer.decode([ids]) == [line]


@pytest.mark.parametrize("name", SHAPES)
def test_it_leaves_as_it_came(name: str, tmp_path: Path) -> None:
    llama_folder(tmp_path / "hub", **SHAPES[name])
    import_huggingface(tmp_path / "hub", tmp_path / "run")
    export_huggingface(tmp_path / "run", tmp_path / "back")
    before, after = (safetensors.torch.load_file(tmp_path / d / "model.safetensors") for d in ("hub", "back"))
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[key]) for key, tensor in before.items())
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "hub" / file).read_bytes() == (tmp_path / "back" / file).read_bytes()
    ids = torch.randint(0, 400, (2, 9))
    with torch.no_grad():
        a, b = (transformers.AutoModelForCausalLM.from_pretrained(tmp_path / d)(ids).logits for d in ("hub", "back"))
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_one_trained_here_leaves_as_a_llama(tmp_path: Path) -> None:
    torch.manual_seed(2)
    words = vocabulary()
    shape = {"positions": "rotary", "glu": True, "activation": "silu", "normalization": "rms", "bias": False}
    scaling = {"kind": "llama3", "factor": 4.0, "original_length": 8}
    config = configure("clm", words, n_key_value_heads=2, rope_base=5000.0, head_width=6, rope_scaling=scaling, **shape)
    run = save_run(tmp_path / "run", config, shaken(Gpt(config.model, words.vocab_size)), words)
    folder = export_huggingface(run, tmp_path / "hub").path
    theirs: Any = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert type(theirs).__name__ == "LlamaForCausalLM"
    model, ids = (
        load_model(run, "clm", device="cpu").model,
        torch.randint(4, words.vocab_size - words.n_unused, (2, 20)),
    )
    with torch.no_grad():
        found = model.head(model.hidden(ids, PackedLayout.unpacked(2)))
        torch.testing.assert_close(found, theirs(ids).logits, rtol=0, atol=1e-4)
    reader = transformers.AutoTokenizer.from_pretrained(folder)
    assert reader("the fox", add_special_tokens=False).input_ids == words.encode(["the fox"])[0]


def test_shards_of_safetensors_come_before_a_pickle(tmp_path: Path) -> None:
    model = llama_folder(tmp_path / "hub", shard="20KB")
    torch.save({name: tensor + 1 for name, tensor in model.state_dict().items()}, tmp_path / "hub/pytorch_model.bin")
    state = imported(tmp_path / "hub", tmp_path / "run").model.state_dict()
    assert torch.equal(state["norm.weight"], model.model.norm.weight)


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_shards_give_the_same_weights(kind: str, tmp_path: Path) -> None:
    llama_folder(tmp_path / "one")
    llama_folder(tmp_path / "many", shard="20KB")
    index = tmp_path / "many/model.safetensors.index.json"
    tree = json.loads(index.read_text())
    assert len(set(tree["weight_map"].values())) > 2
    if kind == "bin":
        for path in list((tmp_path / "many").glob("*.safetensors")):
            torch.save(safetensors.torch.load_file(path), path.with_suffix(".bin"))
            path.unlink()
        tree["weight_map"] = {n: f.replace(".safetensors", ".bin") for n, f in tree["weight_map"].items()}
        index.unlink()
        (tmp_path / "many/pytorch_model.bin.index.json").write_text(json.dumps(tree))
    models = [imported(tmp_path / name, tmp_path / f"run-{name}").model for name in ("one", "many")]
    a, b = (model.state_dict() for model in models)
    assert all(torch.equal(tensor, b[key]) for key, tensor in a.items())


def _listed(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Return a change of the list of shards; what the function returns replaces the list, unless it is None."""

    def apply(hub: Path) -> None:
        index = hub / "model.safetensors.index.json"
        tree = json.loads(index.read_text())
        changed = change(tree["weight_map"])
        index.write_text(json.dumps(tree if changed is None else changed))

    return apply


def _twice(hub: Path) -> None:
    first, second, *_ = sorted(hub.glob("model-*.safetensors"))
    tensors = safetensors.torch.load_file(first)
    safetensors.torch.save_file({**safetensors.torch.load_file(second), next(iter(tensors)): torch.ones(2)}, second)


NORM = "model.norm.weight"
SHARDS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "parent folder": (_listed(lambda map: map.update({NORM: "../model.safetensors"})), "is not the name of a"),
    "absolute path": (_listed(lambda map: map.update({NORM: "/etc/passwd.safetensors"})), "is not the name of a"),
    "backslash": (_listed(lambda map: map.update({NORM: "..\\a.safetensors"})), "is not the name of a"),
    "other kind of file": (_listed(lambda map: map.update({NORM: "a.bin"})), "is not the name of a"),
    "number": (_listed(lambda map: map.update({NORM: 3})), "no weight_map"),
    "list": (_listed(lambda map: [map]), "no weight_map"),
    "empty": (_listed(lambda map: {"weight_map": {}}), "no weight_map"),
    "no such shard": (_listed(lambda map: map.update({NORM: "a.safetensors"})), "cannot be read"),
    "too many": (_listed(lambda map: map.update({f"t{i}": f"{i}.safetensors" for i in range(999)})), "more than 256"),
    "absent tensor": (_listed(lambda map: map.update({"x": map[NORM]})), "'x' is not in"),
    "unlisted tensor": (_listed(lambda map: map.pop(NORM) and None), "but not in the list"),
    "in two shards": (_twice, "and in another shard"),
    "folder": (lambda hub: (sorted(hub.glob("model-*"))[0].unlink(), sorted(hub.glob("model-*"))), "cannot be read"),
    "truncated shard": (lambda hub: sorted(hub.glob("model-*"))[0].write_bytes(b"\x09"), "cannot be used"),
}


@pytest.mark.parametrize("name", SHARDS)
def test_bad_shards_are_refused(name: str, tmp_path: Path) -> None:
    llama_folder(tmp_path / "hub", shard="20KB")
    change, said = SHARDS[name]
    change(tmp_path / "hub")
    with pytest.raises(RunError, match=said) as caught:
        import_huggingface(tmp_path / "hub", tmp_path / "run")
    check_refusal(caught.value)
    assert not (tmp_path / "run").exists()


CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "scaled": ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type 'yarn'"),
    "scaled, older": ({"rope_parameters": None, "rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic'"),
    "scaled in both": ({"rope_scaling": {"type": "longrope"}}, "'longrope'.; supported: default, linear, llama3"),
    "scaled without a factor": ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor: Field required"),
    "scaled by text": ({"rope_scaling": {"type": "linear", "factor": "2"}}, "rope_scaling.factor"),
    "scaled by infinity": ({"rope_scaling": {"type": "linear", "factor": 1e300}}, "rope_scaling.factor"),
    "bounds of scaling": (
        {"rope_scaling": {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 4.0}},
        "high_freq_factor must be above",
    ),
    "list of scalings": ({"rope_scaling": [1]}, "not a mapping"),
    "part of a head": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
    "wide heads": ({"head_dim": 16}, "config.json implies"),
    "huge heads": ({"head_dim": 1 << 40}, "head_width"),
    "no width of heads": ({"head_dim": 0}, "head_dim"),
    "odd width of heads": ({"head_dim": 7}, "even head width"),
    "half of the biases": ({"attention_bias": True}, "mlp_bias differ"),
    "huge": ({"hidden_size": 1 << 40}, "hidden_size"),
    "many layers": ({"num_hidden_layers": 1 << 20}, "num_hidden_layers"),
    "no heads": ({"num_attention_heads": 0}, "num_attention_heads"),
    "odd groups": ({"num_key_value_heads": 3}, "must be a multiple of n_key_value_heads"),
    "text": ({"num_key_value_heads": "2"}, "num_key_value_heads"),
    "theta": ({"rope_parameters": {"rope_theta": float(10**300)}}, "rope_theta"),
    "theta of text": ({"rope_parameters": {"rope_theta": "x"}}, "rope_theta"),
    "type of a number": ({"rope_parameters": {"rope_type": 3}}, "rope_type '3'"),
    "activation": ({"hidden_act": "xielu"}, "unsupported activation"),
    "code": ({"auto_map": {}}, "auto_map"),
    "other shape": ({"num_key_value_heads": 4}, "config.json implies"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_odd_about_a_configuration_is_said(name: str, tmp_path: Path) -> None:
    llama_folder(tmp_path / "hub", num_key_value_heads=2)
    change, said = CONFIGS[name]
    path = tmp_path / "hub/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RunError, match=said) as caught:
        import_huggingface(tmp_path / "hub", tmp_path / "run")
    check_refusal(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_with_another_split_is_refused(tmp_path: Path) -> None:
    llama_folder(tmp_path)
    path = tmp_path / "tokenizer.json"
    tree = json.loads(path.read_text())
    tree["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] += "|x"
    path.write_text(json.dumps(tree))
    with pytest.raises(RunError, match="not one of BERT, GPT-2, Llama 2 or Llama 3: BPE after Sequence"):
        import_huggingface(tmp_path, tmp_path / "run")


@pytest.mark.sample(2)
@pytest.mark.skipif(not is_available(), reason="numba is not installed")
@pytest.mark.parametrize("name", SHAPES)
def test_compiled_loops_predict_what_transformers_does(name: str, tmp_path: Path) -> None:
    theirs = llama_folder(tmp_path / "hub", **SHAPES[name])
    opened, notes = imported(tmp_path / "hub", tmp_path / "run"), list[str]()
    order = order_of(tmp_path / "hub")
    compiled = compile_generator(opened, 64, "auto", "float32", notes.append)
    assert compiled is not None and not [note for note in notes if "compiling" not in note]
    ours = torch.randint(4, len(order), (3, 30))
    # Step by step: the first one reads 10 tokens.
    state, found = compiled.start(ours[:, :10], None, 1, 20), []
    for i in range(9, 29):
        hidden, state = compiled.step(ours[:, i : i + 1], state)
        found.append(compiled.head(hidden[:, 0]).clone())
    with torch.no_grad():
        expected = theirs(torch.tensor(order)[ours]).logits[:, 9:29]
    known = [i for i, id in enumerate(order) if id >= 0]
    logits = torch.stack(found, 1)[..., known]
    torch.testing.assert_close(logits, expected[..., [order[i] for i in known]], rtol=0, atol=1e-4)
    # Whole searches, and with a penalty step by step.
    prompts = [line.strip()[:40] or "the" for line in odd_lines(12, 5)]
    for options in ({"max_length": 15}, {"max_length": 15, "repetition_penalty": 1.1}):
        texts = [
            [one[0].text for one in Generator(opened, settings(options), engine=engine).generate(prompts)]
            for engine in ("torch", "compiled")
        ]
        assert texts[0] == texts[1] and len(set(texts[0])) > 5
