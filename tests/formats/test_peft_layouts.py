"""Adapters of PEFT for every layout: logits with them are those of transformers with the formula of PEFT, both ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import peft_formula
import safetensors.torch
import torch
import transformers
from t5_folders import T5_SHAPES, t5_folder
from test_gpt2_export import gpt2_folder
from test_llama_import import LLAMA_3, llama_folder
from translators import m2m_folder, marian_folder, mbart_folder, nllb_folder, sentences

from attnkit.conversion.adapters import export_peft, import_peft, merge_run
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.loading import load_model
from attnkit.engine.resolve import inherited, resolve
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import RunError
from attnkit.models.layers import PackedLayout
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.task import TrainRequest, train
from attnkit.tasks.translation.translator import load_translator

ALL = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]
LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
GPT2 = ["c_attn", "c_proj", "c_fc"]
T5 = ["q", "k", "v", "o", "wo"]
GROUPED = {"num_key_value_heads": 2, "tie_word_embeddings": True, "head_dim": 16, "rope": LLAMA_3}
UNTIED = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False, "separate": True}


class Layout(NamedTuple):
    make: Callable[..., Any]
    changes: dict[str, Any]
    languages: tuple[str, str] | None
    targets: list[str]


LAYOUTS: dict[str, Layout] = {
    "marian": Layout(marian_folder, {}, None, ALL),
    "marian, untied": Layout(marian_folder, {**UNTIED, "encoder_layers": 3, "eos": 4.0}, None, ["q_proj", "v_proj"]),
    "m2m100": Layout(m2m_folder, {"end": 0.5}, ("en", "de"), ALL),
    "m2m100, uneven": Layout(m2m_folder, {"encoder_layers": 1, "decoder_layers": 3}, ("fr", "zh"), ["v_proj", "fc1"]),
    "nllb": Layout(nllb_folder, {"end": 3.0, "seed": 5}, ("eng_Latn", "deu_Latn"), ALL),
    "nllb, wider": Layout(nllb_folder, {"d_model": 48, "encoder_layers": 3}, ("zho_Hans", "eng_Latn"), ["out_proj"]),
    "mbart": Layout(mbart_folder, {"end": 2.5}, ("en_XX", "de_DE"), ALL),
    "mbart, wider": Layout(
        mbart_folder, {"d_model": 48, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96}, ("zh_CN", "en_XX"), ["fc2"]
    ),
    "t5": Layout(t5_folder, T5_SHAPES["t5"], None, [*T5, "wi"]),
    "t5 v1.1": Layout(t5_folder, {**T5_SHAPES["t5 v1.1"], "num_decoder_layers": 2}, None, [*T5, "wi_0", "wi_1"]),
    "t5, narrow heads": Layout(t5_folder, {"d_kv": 6, "seed": 5}, None, ["q", "v"]),
    "mt5": Layout(t5_folder, T5_SHAPES["mt5"], None, [*T5, "wi_0", "wi_1"]),
    "gpt2": Layout(gpt2_folder, {}, None, GPT2),
    "gpt2, untied": Layout(gpt2_folder, {"tie_word_embeddings": False, "n_inner": 48, "n_layer": 3}, None, ["c_attn"]),
    "llama": Layout(llama_folder, {}, None, LLAMA),
    "llama, grouped, tied": Layout(llama_folder, GROUPED, None, ["q_proj", "v_proj"]),
}


class Imported:
    """A folder of transformers, its model, and the run made of it."""

    def __init__(self, place: Path, layout: Layout) -> None:
        self.place, self.layout, self.theirs = place, layout, layout.make(place / "hub", **layout.changes).eval()
        self.is_translator = self.theirs.config.is_encoder_decoder
        src, tgt = layout.languages or (None, None)
        self.run = import_huggingface(place / "hub", place / "run", src_lang=src, tgt_lang=tgt).path
        self.ids = torch.randint(4, 100, (3, 11), generator=torch.Generator().manual_seed(1))

    def ours(self, run: Path) -> torch.Tensor:
        """Return the logits of a run."""
        with torch.no_grad():
            if self.is_translator:
                model = load_run(run, device="cpu").model
                return model.head(model.hidden(self.ids, None, self._prefixes()))
            gpt = load_model(run, "clm", device="cpu").model
            return gpt.head(gpt.hidden(self.ids, PackedLayout.unpacked(3)))

    def other(self, model: Any) -> torch.Tensor:
        """Return the logits of a model of transformers, in the order of our ids."""
        if self.is_translator:
            loaded = load_run(self.run, device="cpu")
            src, tgt = loaded.src_tokenizer.pieces, loaded.tgt_tokenizer.pieces
            assert src is not None and tgt is not None
            given = {"decoder_input_ids": torch.tensor(tgt.order)[self._prefixes()]}
            orders = src.order, tgt.order
        else:
            checkpoint = load_model(self.run, "clm", device="cpu").checkpoint
            origin = read_tokenizer(checkpoint).origin
            assert origin is not None
            given, orders = {}, (origin.order, [0 if id is None else id for id in origin.order])
        with torch.no_grad():
            logits = model(
                input_ids=torch.tensor([0 if id is None else id for id in orders[0]])[self.ids], **given
            ).logits
        return logits[..., torch.tensor(orders[1])]

    def _prefixes(self) -> torch.Tensor:
        first = 1 if self.layout.make in (marian_folder, t5_folder) else 2
        return torch.cat((torch.full((3, 1), first), self.ids[:, :6]), 1)


@pytest.fixture(scope="module", params=LAYOUTS)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    return Imported(tmp_path_factory.mktemp("peft"), LAYOUTS[request.param])


def check(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Compare logits except of BOS and padding, which Marian lacks; rounding grows with the largest logit."""
    atol = 2e-5 * max(5.0, float(theirs[..., 4:].abs().max()))  # 1e-4 up to 5; mT5's reach 11
    torch.testing.assert_close(ours[..., 4:], theirs[..., 4:], rtol=1e-5, atol=atol)


def test_an_adapter_of_peft_is_imported_merged_and_exported(imported: Imported, tmp_path: Path) -> None:
    """Its factors are random, in all modules with the names of its targets."""
    peft_formula.write_adapter(imported.theirs, tmp_path / "peft", imported.layout.targets)
    run = import_peft(tmp_path / "peft", imported.run, tmp_path / "run").path
    expected = imported.other(peft_formula.add_adapter(imported.theirs, tmp_path / "peft"))
    check(imported.ours(run), expected)
    assert (expected - imported.other(imported.theirs))[..., 4:].abs().max() > 0.1, "the adapter says something"
    check(imported.ours(merge_run(run, tmp_path / "merged").path), expected)
    export_huggingface(run, tmp_path / "whole")
    kind = transformers.AutoModelForSeq2SeqLM if imported.is_translator else transformers.AutoModelForCausalLM
    check(imported.other(kind.from_pretrained(tmp_path / "whole").eval()), expected)
    export_peft(run, tmp_path / "again")
    name = "adapter_model.safetensors"
    given, back = (safetensors.torch.load_file(tmp_path / folder / name) for folder in ("peft", "again"))
    assert given.keys() == back.keys() and all(torch.equal(tensor, back[key]) for key, tensor in given.items())
    check(imported.other(peft_formula.add_adapter(imported.theirs, tmp_path / "again")), expected)


SETS = ["adapter.rank=2", "adapter.alpha=6", "optimization.learning_rate=0.03", "optimization.warmup_steps=1"]
SETS += ["limits.max_steps=4", "evaluation.every_steps=4", "device=cpu", "threads=1", "precision=float32"]
SETS += [
    "evaluation.n_samples=0",
    "decoding.min_length=4",
    "decoding.max_length=12",
    "data.max_length=90",
    "model.dropout=0",
]


def adapted(imported: Imported, run: Path, *sets: str) -> Path:
    """Train an adapter of an imported translator."""
    flags: dict[str, Any] = {}
    for key, first, n in (("src", 0, 60), ("tgt", 60, 60), ("valid_src", 200, 20), ("valid_tgt", 220, 20)):
        path = imported.place / f"{key}.txt"
        path.write_text("".join(f"{line}\n" for line in sentences()[first:][:n]))
        flags[f"data.{key}"] = [str(path)]
    resolved = resolve(flags, sets=[*SETS, *sets], fixed=inherited(imported.run, run))
    for _ in train(TrainRequest(resolved.config, run, init_from=imported.run)):
        pass
    return run


@pytest.mark.parametrize(
    ("name", "sets"),
    [("nllb", []), ("mbart", ["adapter.maps=[value,up]"]), ("t5", []), ("mt5", ["adapter.maps=[key,value,gate]"])],
)
def test_a_trained_adapter_leaves_for_the_folder_that_was_imported(name: str, sets: list[str], tmp_path: Path) -> None:
    imported = Imported(tmp_path, LAYOUTS[name])
    run = adapted(imported, tmp_path / "adapted", *sets)
    export_peft(run, tmp_path / "peft")
    expected = imported.other(peft_formula.add_adapter(imported.theirs, tmp_path / "peft"))
    check(imported.ours(run), expected)
    assert (expected - imported.other(imported.theirs))[..., 4:].abs().max() > 0.1, "the adapter says something"
    again = import_peft(tmp_path / "peft", imported.run, tmp_path / "again").path
    one, other = (load_run(path, device="cpu").model.state_dict() for path in (run, again))
    assert all(torch.equal(tensor, other[key]) for key, tensor in one.items())
    lines = sentences()[200:208]
    ways: list[dict[str, Any]] = [{"runs": [run]}, {"runs": [imported.run], "adapter": again}]
    ways.append({"runs": [merge_run(again, tmp_path / "merged").path]})
    ways.append({"runs": [imported.run]})
    search = {"min_length": 4, "max_length": 12}
    texts = [load_translator(**way, device="cpu").translate(lines, **search) for way in ways]
    assert texts[0] == texts[1] == texts[2] != texts[3]


LORA = [word for one in ("kind=lora", "rank=2", "alpha=6") for word in ("--set", f"adapter.{one}")]
STEPS = ["--device", "cpu", "--max-steps", "3", "--set", "data.sequence_length=24", "--quiet"]
STEPS += ["--set", "optimization.learning_rate=0.03", "--set", "optimization.warmup_steps=1"]


@pytest.mark.parametrize(
    ("name", "maps", "wide"),
    [
        ("gpt2", None, {"c_attn": 6}),
        ("gpt2, untied", "[query,value]", {"c_attn": 4}),
        ("gpt2", "[key,down]", {}),
        ("llama, grouped, tied", None, {}),
    ],
)
def test_a_trained_generator_leaves(
    call: Callable[..., Any], tmp_path: Path, name: str, maps: str | None, wide: dict[str, int]
) -> None:
    """GPT-2 has queries, keys and values in one module, whose rank is the sum of theirs."""
    imported = Imported(tmp_path, LAYOUTS[name])
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in sentences()[:100]))
    words = ["pretrain-clm", tmp_path / "text", "-o", tmp_path / "adapted", "--init-from", imported.run, *STEPS, *LORA]
    code, _, err = call(*words, *([] if maps is None else ["--set", f"adapter.maps={maps}"]))
    assert code == 0, err
    code, _, err = call("export", tmp_path / "adapted", "--to", "peft", tmp_path / "peft")
    assert code == 0, err
    expected = imported.other(peft_formula.add_adapter(imported.theirs, tmp_path / "peft"))
    check(imported.ours(tmp_path / "adapted"), expected)
    assert (expected - imported.other(imported.theirs))[..., 4:].abs().max() > 0.05, "the adapter says something"
    assert json.loads((tmp_path / "peft/adapter_config.json").read_text())["rank_pattern"] == wide
    code, _, err = call("import", "peft", tmp_path / "peft", "--base", imported.run, "-o", tmp_path / "again")
    assert code == 0, err
    one, other = (load_model(tmp_path / run, "clm", device="cpu") for run in ("adapted", "again"))
    assert (one.config.adapter.rank, one.config.adapter.scale) == (2, 3)
    assert (other.config.adapter.rank, other.config.adapter.scale) == (2, 3)
    assert set(other.config.adapter.maps) == set(one.config.adapter.maps or other.config.adapter.maps)
    back = other.model.state_dict()
    assert all(torch.equal(tensor, back[key]) for key, tensor in one.model.state_dict().items())


def change(folder: Path, name: str) -> None:
    """Damage an adapter in one way."""
    path, config = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    factors, tree = safetensors.torch.load(path.read_bytes()), json.loads(config.read_text())
    first = min(factors)
    cut = factors[first][:, 1:] if "lora_A" in first else factors[first][1:]
    {
        "shape": lambda: factors.update({first: cut.contiguous()}),
        "one module": lambda: factors.pop(first),
        "embeddings": lambda: factors.update({"base_model.model.model.shared.lora_embedding_A": torch.ones(3, 9)}),
        "head": lambda: factors.update({"base_model.model.lm_head.lora_A.weight": torch.ones(3, 32)}),
        "a layer": lambda: [factors.pop(key) for key in list(factors) if ".1." in key],
        "expression": lambda: tree.update(rank_pattern={"(a+)+$": 3}),
        "alphas": lambda: tree.update(alpha_pattern={first.split(".lora_")[0].rpartition(".")[2]: 9}),
        "no rank": lambda: tree.update(rank_pattern={"q_proj": 0}),
        "whole": lambda: tree.update(r=4000),
        "integers": lambda: factors.update({first: torch.ones(factors[first].shape, dtype=torch.int32)}),
    }[name]()
    path.write_bytes(safetensors.torch.save(factors))
    config.write_text(json.dumps(tree))


@pytest.mark.parametrize("imported", ["m2m100", "gpt2", "llama"], indirect=True)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shape", "the adapter does not fit the base: 'base_model."),
        ("one module", "' is missing"),
        ("embeddings", "shared.lora_embedding_A' is unexpected"),
        ("head", "lm_head.lora_A.weight' is unexpected"),
        ("a layer", "' is missing"),
        ("expression", "expressions, not names of modules"),
        ("alphas", "modules differ in rank (3) or in alpha / rank"),
        ("no rank", "rank_pattern.q_proj: Input should be greater"),
        ("whole", "r: Input should be less than or equal to 3072"),
        ("integers", "has the unsupported dtype I32"),
    ],
)
def test_adapters_of_other_kinds_are_refused_in_three_lines(
    imported: Imported, call: Callable[..., Any], tmp_path: Path, name: str, message: str
) -> None:
    peft_formula.write_adapter(imported.theirs, tmp_path / "peft", imported.layout.targets)
    change(tmp_path / "peft", name)
    code, _, err = call("import", "peft", tmp_path / "peft", "--base", imported.run, "-o", tmp_path / "run")
    assert code == 4 and message in err and len(err.splitlines()) <= 3, err
    assert not (tmp_path / "run").exists()


def test_ranks_that_differ_are_refused(tmp_path: Path) -> None:
    imported = Imported(tmp_path, LAYOUTS["m2m100"])
    peft_formula.write_adapter(imported.theirs, tmp_path / "peft", ALL, rank_pattern={"q_proj": 2})
    path = tmp_path / "peft/adapter_model.safetensors"
    factors = safetensors.torch.load(path.read_bytes())
    for key, tensor in factors.items():
        if "q_proj" in key:
            factors[key] = (tensor[:2] if "lora_A" in key else tensor[:, :2]).contiguous()
    path.write_bytes(safetensors.torch.save(factors))
    with pytest.raises(RunError, match=r"modules differ in rank \(2, 3\)"):
        import_peft(tmp_path / "peft", imported.run, tmp_path / "again")
