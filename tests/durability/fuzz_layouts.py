"""Damaged folders of translators, generators and encoders, for ``fuzz_loaders``: whole folders, and code inside them.

Those of encoders are made by ``test_fuzz``, the others here, without transformers, as its files are laid out.
"""

from __future__ import annotations

import json
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from crafted_pieces import charsmap
from fuzz_hub import make_llama
from mutations import mutate_bytes, mutate_folder, mutate_json, mutate_safetensors
from tokenizers.pre_tokenizers import ByteLevel

from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.loading import load_model
from attnkit.errors import AttnkitError
from attnkit.formats.huggingface import layout, translation_layout
from attnkit.formats.huggingface.config import coded_json, gpt_json, marian_json
from attnkit.formats.huggingface.t5 import T5Keys, t5_config, t5_json
from attnkit.models.config import TransformerConfig
from attnkit.models.gpt import Gpt
from attnkit.models.language_config import GptConfig
from attnkit.models.transformer import Transformer
from attnkit.tasks.language_modeling.fill_mask import FillMaskPipeline
from attnkit.tasks.language_modeling.generate import Generator, search_config
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.sentencepiece_file import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    SentencePieceEntry,
    write_byte_pairs,
    write_sentencepiece,
)

CODED = {"m2m100": ("en", "de"), "nllb": ("eng_Latn", "deu_Latn"), "mbart": ("en_XX", "de_DE")}
"""Layout with codes of languages -> those of a run."""
LAYOUTS = ("marian", *CODED, "t5", "mistral", "gpt2")
ENCODERS = ("bert", "roberta", "xlm-roberta", "roformer", "distilbert", "electra", "modernbert")
WORDS = ["▁", *"0123abxyé", "▁0", "▁1", "23", "ab", "▁ab", "日本"]
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
LENGTH = 32
ABSURD = (-1, 0, 1, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 40, 1 << 63, 10**40, 0.5, 1e308, "64", [64], None, True)
CODE: tuple[Any, ...] = ({"AutoModel": "evil.Model", "AutoTokenizer": ["evil.Model", None]}, {}, [], "evil.Model", None)


def pieces(kind: str) -> bytes:
    """Return a SentencePiece file: unigram with a map of characters, with T5's ids too, or BPE with pieces of bytes."""
    entries = [SentencePieceEntry("<unk>", 0.0, UNKNOWN)]
    controls = [SentencePieceEntry(name, 0.0, CONTROL) for name in ("<pad>" if kind == "t5" else "<s>", "</s>")]
    entries = [*controls, *entries] if kind == "t5" else [*entries, *controls]
    if kind == "bpe":
        entries += [SentencePieceEntry(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
    entries += [SentencePieceEntry(word, -1.0 - number / 8, NORMAL) for number, word in enumerate(WORDS)]
    return write_byte_pairs(entries, True) if kind == "bpe" else write_sentencepiece(entries, charsmap())


def write_json(folder: Path, **trees: Any) -> None:
    for name, tree in trees.items():
        (folder / f"{name}.json").write_text(json.dumps(tree))


def make_translator(folder: Path, kind: str) -> None:
    """Write a Marian, M2M100, NLLB-200, mBART-50 or T5."""
    folder.mkdir()
    model_type = {"marian": "marian", "mbart": "mbart", "t5": "t5"}.get(kind, "m2m_100")
    names = [*SPECIALS, *WORDS]
    if kind == "t5":
        names = ["<pad>", "</s>", "<unk>", *WORDS, "<extra_id_1>", "<extra_id_0>", "", ""]
        (folder / "spiece.model").write_bytes(pieces("t5"))
        write_json(folder, tokenizer_config={"tokenizer_class": "T5Tokenizer", "extra_ids": 2})
    elif kind == "marian":
        names = ["</s>", "<unk>", ">>de<<", *WORDS, *(f"<0x{byte:02X}>" for byte in range(256)), "<pad>"]
        (folder / "source.spm").write_bytes(pieces("unigram"))
        (folder / "target.spm").write_bytes(pieces("bpe"))
        settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": False}
        write_json(folder, tokenizer_config=settings, vocab={name: id for id, name in enumerate(names)})
    else:
        (folder / "sentencepiece.bpe.model").write_bytes(pieces("unigram"))
        codes = ["__en__", "__de__"] if kind == "m2m100" else ["deu_Latn", "eng_Latn"]
        write_json(folder, tokenizer_config={"additional_special_tokens": codes})
        if kind == "m2m100":
            write_json(folder, vocab={name: id for id, name in enumerate(names)})
        elif kind == "nllb":
            added = [{"id": id, "content": name} for id, name in enumerate([*names, *codes]) if name not in WORDS]
            vocab = {name: id for id, name in enumerate(names)}
            write_json(folder, tokenizer={"model": {"type": "BPE", "vocab": vocab}, "added_tokens": added})
        names += [""] * (53 if kind == "mbart" else len(codes))
    config, ids = translator_config(model_type, len(names))
    torch.manual_seed(1)
    tensors = layout.to_theirs(
        translation_layout.LINKS[model_type](config), Transformer(config, len(names), len(names)).state_dict()
    )
    if translation_layout.BIAS in tensors:
        tensors[translation_layout.BIAS] = tensors[translation_layout.BIAS][None]  # (V,) to (1, V)
    save(folder, tensors)
    trees = {"marian": lambda: marian_json(config, (len(names),) * 2, LENGTH, ids)}
    trees["t5"] = lambda: t5_json(config, "t5", len(names), ids)
    write_json(folder, config=trees.get(kind, lambda: coded_json(config, model_type, len(names), LENGTH, ids))())
    write_json(folder, generation_config={**ids, "num_beams": 2})


def translator_config(model_type: str, n: int) -> tuple[TransformerConfig, dict[str, int | None]]:
    """Return the configuration of a tiny model, and the ids of its special tokens."""
    shape: dict[str, Any] = {"d_model": 16, "n_heads": 2, "d_ff": 24, "encoder_layers": 1, "decoder_layers": 2}
    if model_type == "marian":
        config = TransformerConfig(**shape, norm="post", positions="sinusoidal", decoder_start="zero")
        return config, {"pad_token_id": n - 1, "eos_token_id": 0, "decoder_start_token_id": n - 1}
    if model_type == "t5":
        keys = {"d_model": 16, "d_kv": 6, "num_heads": 2, "d_ff": 24, "num_layers": 1, "num_decoder_layers": 2}
        ids: dict[str, int | None] = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
        return t5_config(T5Keys.model_validate({**keys, "feed_forward_proj": "gated-gelu"}), "t5"), ids
    shape |= {"norm": "pre", "decoder_start": "eos"}
    if model_type == "mbart":
        norms = {"embedding_norm": True, "target_embedding_norm": True}
        config = TransformerConfig(**shape, **norms, positions="learned", position_offset=2, max_length=LENGTH)
    else:
        config = TransformerConfig(**shape, positions="fairseq")
    return config, {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}


def make_gpt2(folder: Path) -> None:
    """Write a GPT-2 with both forms of its tokenizer."""
    folder.mkdir()
    merges = [("Ġ", "0"), ("Ġ", "a"), ("1", "2"), ("Ġa", "b")]
    names = [*sorted(ByteLevel.alphabet()), *("".join(pair) for pair in merges), "<|endoftext|>"]
    vocab = {name: id for id, name in enumerate(names)}
    model = {"type": "BPE", "vocab": vocab, "merges": [list(pair) for pair in merges]}
    added = [{"id": len(names) - 1, "content": names[-1], "special": True}]
    before = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    tree = {"added_tokens": added, "normalizer": None, "pre_tokenizer": before, "decoder": before, "model": model}
    roles = {f"{role}_token": names[-1] for role in ("bos", "eos", "unk")}
    write_json(folder, tokenizer=tree, vocab=vocab, tokenizer_config={"tokenizer_class": "GPT2Tokenizer", **roles})
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in merges))
    config = GptConfig(d_model=16, n_heads=2, n_layers=2, d_ff=24, max_length=LENGTH)
    torch.manual_seed(1)
    links = layout.gpt_body(config) + layout.gpt_head(config)
    save(folder, layout.to_theirs(links, Gpt(config, len(names)).state_dict()))
    ids = {f"{role}_token_id": len(names) - 1 for role in ("bos", "eos")}
    write_json(folder, config=gpt_json(config, len(names)) | ids)


def save(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    kept = {name: tensor.contiguous() for name, tensor in tensors.items()}
    safetensors.torch.save_file(kept, folder / "model.safetensors")


def make_layouts(place: Path) -> None:
    """Write a good folder of each layout."""
    for kind in ("marian", *CODED, "t5"):
        make_translator(place / f"hub-{kind}", kind)
    make_llama(place / "hub-mistral", "mistral")
    make_gpt2(place / "hub-gpt2")


class Evil:
    """What writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return open, (str(self.path), "w")


def import_damaged_layout(kind: str, good: Path, work: Path, source: random.Random) -> None:
    """Import a damaged folder; translate, generate or fill masks if that succeeds, and export the run."""
    shutil.rmtree(work, ignore_errors=True)
    (work / "outside").mkdir(parents=True)
    (work / "outside" / "text").write_text("outside")
    folder, ran = Path(shutil.copytree(good / f"hub-{kind}", work / "hub")), work / "ran"
    (folder / "evil.py").write_text(f"open({str(ran)!r}, 'w').close()\n\n\nclass Model:\n    pass\n")
    if source.random() < 0.5:
        other_form(folder, kind)
    refused = damage(folder, work / "outside", ran, source)
    try:
        src, tgt = CODED.get(kind, (None, None))
        run = import_huggingface(folder, work / "run", src_lang=src, tgt_lang=tgt).path
        assert not refused, "code of the folder was accepted"
        if kind in ENCODERS:
            FillMaskPipeline(load_model(run, "mlm", device="cpu"), top=2).fill(["0 1 ab é [MASK] 日本"])
        elif kind in ("gpt2", "mistral"):
            opened = load_model(run, "clm", device="cpu")
            Generator(opened, search_config({"max_length": 3}), engine="torch").generate(["0 1 ab é"])
        else:
            load_translator([run], device="cpu", engine="torch").translate(["0 1 ab é 日本", ""], max_length=3)
        export_huggingface(run, work / "back")
    except AttnkitError as error:
        if (work / "run").exists() and not (work / "run" / "config.yaml").exists():
            raise AssertionError("a part of a run was left") from error
        raise
    finally:
        assert not ran.exists(), "code of the folder was run"
        left = {path.name: path.read_text() for path in (work / "outside").iterdir()}
        assert left == {"text": "outside"}, "something was written outside"


def other_form(folder: Path, kind: str) -> None:
    """Write the tokenizer of a folder as other versions of transformers do."""
    if kind == "gpt2":
        (folder / "tokenizer.json").unlink()
    elif kind == "xlm-roberta":
        (folder / "sentencepiece.bpe.model").unlink()
    elif kind == "m2m100":
        first = len(json.loads((folder / "vocab.json").read_text()))
        decoder = {str(first + number): {"content": code} for number, code in enumerate(("__en__", "__de__"))}
        write_json(folder, tokenizer_config={"added_tokens_decoder": decoder})


def damage(folder: Path, outside: Path, ran: Path, source: random.Random) -> bool:
    """Damage a folder in one of several ways; return whether it has code now that must be refused."""
    kind, paths = source.randrange(9), sorted(path for path in folder.iterdir() if path.suffix != ".py")
    if kind < 3:
        for path in source.sample(paths, source.choice((1, 1, 2))):
            mutate = {".json": mutate_json, ".safetensors": mutate_safetensors}.get(path.suffix, mutate_bytes)
            path.write_bytes(mutate(path.read_bytes(), source))
    elif kind == 3:
        path = source.choice(paths)
        raw = path.read_bytes()
        path.write_bytes(raw[: source.choice((0, 1, 8, source.randrange(len(raw)), len(raw) - 1))])
    elif kind == 4:
        first, second = source.sample(paths, 2)
        contents = first.read_bytes(), second.read_bytes()
        first.write_bytes(contents[1]), second.write_bytes(contents[0])
    elif kind == 5:
        change(folder / "config.json", source)
    elif kind == 6:
        path = folder / source.choice(("config.json", "tokenizer_config.json"))
        path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": source.choice(CODE)}))
        return True
    elif kind == 7:
        for path in folder.glob("*.safetensors*"):
            path.unlink()
        evil = {
            f"{name}.weight": Evil(ran) for name in ("model.shared", "transformer.wte", "bert.embeddings.LayerNorm")
        }
        path = folder / "pytorch_model.bin"
        if source.random() < 0.4:
            path.write_bytes(pickle.dumps(evil, source.choice((0, 2, 2, 5))))
        else:
            torch.save(evil, path, _use_new_zipfile_serialization=source.random() < 0.5)
        return True
    else:
        mutate_folder(folder, source, outside)
    return False


def change(path: Path, source: random.Random) -> None:
    """Give one or two keys of a configuration absurd values."""
    tree = json.loads(path.read_text())
    sized = [key for key, value in tree.items() if isinstance(value, int | float | list | dict) or value is None]
    for key in source.sample(sized, source.choice((1, 1, 2))):
        tree[key] = source.choice(ABSURD)
    path.write_text(json.dumps(tree))
