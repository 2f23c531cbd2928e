"""An imported M2M100, NLLB-200 or mBART-50 computes, searches, learns and cuts text as it did in transformers."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import numpy as np
import safetensors.torch
import sentencepiece
import torch
import transformers
from hub_runs import check_refusal
from translators import m2m_folder, mbart_folder, nllb_folder, odd_lines, piece_names, pieces, sentences, three_steps

from attnkit.conversion.export_coded import coded_contents
from attnkit.conversion.export_ctranslate2 import export_ctranslate2
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.resolve import inherited, resolve
from attnkit.engine.seq2seq import pad_sources
from attnkit.errors import AttnkitError, RunError, UsageError
from attnkit.models.transformer import Transformer
from attnkit.tasks.translation.engines import Engine
from attnkit.tasks.translation.loading import LoadedRun, load_run
from attnkit.tasks.translation.task import TrainRequest, train
from attnkit.tasks.translation.translator import load_translator

MBART_SHAPE = {"decoder_layers": 3, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "seed": 8, "end": 1.5}
MBART_SHAPE |= {"activation_function": "relu", "encoder_ffn_dim": 96, "decoder_ffn_dim": 96}
M2M_SHAPE = {"d_model": 48, "encoder_layers": 3, "seed": 4, "end": 1.5}
NARROW = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96}
MODELS: dict[str, tuple[Callable[..., Any], tuple[str, str], dict[str, Any]]] = {
    "m2m100": (m2m_folder, ("en", "de"), {"end": 0.5}),
    "nllb": (nllb_folder, ("eng_Latn", "deu_Latn"), {"end": 3.0, "seed": 5}),
    "nllb, wider": (nllb_folder, ("zho_Hans", "eng_Latn"), {"d_model": 48, "encoder_layers": 3, "seed": 6, "end": 3.0}),
    "mbart": (mbart_folder, ("en_XX", "de_DE"), {"end": 2.5}),
    "mbart, wider": (mbart_folder, ("zh_CN", "en_XX"), {"d_model": 48, "encoder_layers": 3, "seed": 7, "end": 3.0}),
    "mbart, two heads": (mbart_folder, ("sl_SI", "ar_AR"), MBART_SHAPE),
    "m2m100, wider": (m2m_folder, ("fr", "zh"), M2M_SHAPE),
    "m2m100, two heads": (m2m_folder, ("zu", "af"), {**NARROW, "decoder_layers": 3, "seed": 2, "end": 4.0}),
    "nllb, two heads": (nllb_folder, ("deu_Latn", "ace_Arab"), {**NARROW, "decoder_layers": 3, "seed": 4, "end": 3.0}),
}
ENGINES: tuple[Engine, ...] = ("torch", "compiled")


class Imported:
    """A folder of transformers, its model, and the run made of it."""

    def __init__(self, place: Path, name: str, **more: Any) -> None:
        make, self.languages, changes = MODELS[name]
        self.name = name
        self.kind = {"m": "m2m_100", "n": "nllb", "b": "mbart"}[name[name.startswith("mb")]]
        self.folder = place / "hub"
        self.theirs = make(self.folder, **{**changes, **more})
        src, tgt = self.languages
        self.path = import_huggingface(self.folder, place / "run", src_lang=src, tgt_lang=tgt).path
        self.run: LoadedRun = load_run(self.path, device="cpu")
        pieces_of_run = self.run.src_tokenizer.pieces
        assert pieces_of_run is not None
        self.order = torch.tensor(pieces_of_run.order)  # one for both sides


@pytest.fixture(scope="module", params=MODELS)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    return Imported(tmp_path_factory.mktemp("m2m"), request.param)


def test_logits_are_equal(imported: Imported) -> None:
    check_logits(imported)


def check_logits(imported: Imported, n: int = 20) -> None:
    source, run = random.Random(1), imported.run
    for _ in range(n):
        src = [source.randrange(4, run.src_tokenizer.vocab_size) for _ in range(source.randint(1, 60))]
        tgt = [source.randrange(2, run.tgt_tokenizer.vocab_size) for _ in range(source.randint(0, 60))]
        with torch.no_grad():
            ours = run.model.head(run.model.hidden(torch.tensor([[*src, 2]]), None, torch.tensor([[1, *tgt]])))[0]
            ids = {"input_ids": imported.order[[*src, 2]][None], "decoder_input_ids": imported.order[[2, *tgt]][None]}
            theirs = imported.theirs(**ids).logits[0]
        torch.testing.assert_close(ours, theirs[:, imported.order], rtol=0, atol=1e-4)
        assert float(theirs.std()) > 0.3, "the weights say nothing"


@pytest.mark.parametrize("n", [300, pytest.param(5000, marks=pytest.mark.slow)])
def test_text_is_cut_as_in_sentencepiece_with_codes(imported: Imported, n: int) -> None:
    lines = [*odd_lines(n), *sentences()[:300]]
    raw = pieces("unigram" if imported.kind == "mbart" else "bpe")
    model, names = sentencepiece.SentencePieceProcessor(model_proto=raw), piece_names(raw)
    known = {name: id for id, name in enumerate(names, 4)}
    given = dict(zip(("src_lang", "tgt_lang"), imported.languages, strict=True))
    if imported.kind == "m2m_100":
        tokenizer = transformers.M2M100Tokenizer.from_pretrained(imported.folder, **given)
        known, codes = tokenizer.encoder, tokenizer.lang_code_to_id
    elif imported.kind == "mbart":
        tokenizer = transformers.MBart50Tokenizer.from_pretrained(imported.folder, **given)
        codes = tokenizer.lang_code_to_id
        assert set(codes) == set(imported.run.src_tokenizer.config.symbols)
    else:
        tokenizer, listed = None, ("ace_Arab", "deu_Latn", "eng_Latn", "zho_Hans")
        codes = {code: id for id, code in enumerate(listed, len(names) + 4)}
    n_decoded = 0
    for side, language in zip(
        (imported.run.src_tokenizer, imported.run.tgt_tokenizer), imported.languages, strict=True
    ):
        for line, ids in zip(lines, side.encode(lines), strict=True):
            expected = [codes[language], *(known.get(piece, 3) for piece in model.encode(line, out_type=str))]
            assert imported.order[ids].tolist() == expected, ascii(line)
            if 3 not in ids:
                assert side.decode([ids])[0] == model.decode(model.encode(line))
                n_decoded += 1
    assert n_decoded > 100
    if tokenizer is not None:
        for line in lines[n:]:
            ids = imported.run.src_tokenizer.encode([line])[0]
            assert imported.order[[*ids, 2]].tolist() == tokenizer(line).input_ids
            target = imported.run.tgt_tokenizer.encode([line])[0]
            assert imported.order[[*target, 2]].tolist() == tokenizer(text_target=line).input_ids


def test_another_code_may_start_a_line(imported: Imported) -> None:
    tokenizer, (_, other) = imported.run.src_tokenizer, imported.languages
    code = other if "_" in other else f"__{other}__"
    (usual,), (changed,) = tokenizer.encode(["ba be"]), tokenizer.encode([f"{code} ba be"])
    assert changed == [tokenizer.token_id(code), *usual[1:]] and changed[0] != usual[0]


@pytest.mark.sample(2)
def test_three_hundred_beams_are_equal(imported: Imported) -> None:
    texts, lengths = found_by_beams(imported, 20)
    assert len(texts) > 8
    assert len(lengths) > 2 or imported.name == "m2m100", "no sentence ends"


def found_by_beams(imported: Imported, longest: int) -> tuple[set[str], set[int]]:
    """Search 300 sentences in both, compare the ids, and return texts and their numbers of tokens."""
    theirs, run = imported.theirs, imported.run
    lines, lengths = sentences()[:300], set()
    settings: dict[str, Any] = {"beam_size": 4, "max_length": longest, "length_penalty": 1.0}
    texts = {engine: load_translator([imported.path], engine=engine).translate(lines, **settings) for engine in ENGINES}
    assert texts["torch"] == texts["compiled"]
    rows = run.src_tokenizer.encode(lines)
    (code,), ours = run.tgt_tokenizer.code_ids, {id: number for number, id in enumerate(imported.order.tolist())}
    for first in range(0, 300, 100):
        src, real = pad_sources(rows[first : first + 100], torch.device("cpu"))
        assert real is not None
        options = {"num_beams": 4, "max_length": longest + 1, "early_stopping": True, "forced_eos_token_id": None}
        # attnkit writes neither BOS nor padding, nor the ids without a name at the end of M2M100's table.
        barred = [[0], [1], *([int(id)] for id in imported.order[run.tgt_tokenizer.n_words :])]
        options |= {"bad_words_ids": barred, "forced_bos_token_id": int(imported.order[code])}
        expected = theirs.generate(
            input_ids=torch.where(real, imported.order[src], 1), attention_mask=real.long(), **options
        )
        for text, row in zip(texts["torch"][first : first + 100], expected.tolist(), strict=True):
            assert row[1] == imported.order[code]
            ids = [ours[id] for id in row[2:] if id not in (1, 2)]
            assert run.tgt_tokenizer.decode([ids]) == [text]
            lengths.add(len(ids))
    return set(texts["torch"]), lengths


def test_ctranslate2_says_the_same(imported: Imported, tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    folder, lines = export_ctranslate2(imported.path, tmp_path / "ct2").path, sentences()[:60]
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    codes = [code if "_" in code else f"__{code}__" for code in imported.languages]
    results = ctranslate2.Translator(str(folder), compute_type="float32").translate_batch(
        [[codes[0], *model.encode(line, out_type=str)] for line in lines],
        target_prefix=[[codes[1]]] * len(lines),
        beam_size=1,  # beams after a forced first token end by rules of their own
        max_decoding_length=20,
        min_decoding_length=0,
    )
    is_code = imported.run.tgt_tokenizer.config.symbols.__contains__
    pieces_of = [[piece for piece in result.hypotheses[0][1:] if not is_code(piece)] for result in results]
    expected = [model.decode_pieces(found).replace("▁", " ").strip() for found in pieces_of]
    found = load_translator([imported.path]).translate(lines, beam_size=1, max_length=20)
    pairs = {pair for pair in zip(found, expected, strict=True) if "⁇" not in pair[1]}
    assert [ours.strip() for ours, _ in sorted(pairs)] == [theirs for _, theirs in sorted(pairs)] and len(pairs) > 3
    readme = (folder / "README.md").read_text()
    assert f'[["{codes[0]}", *src.encode(line, out_type=str)]' in readme
    assert f'target_prefix=[["{codes[1]}"]] * len(tokens),' in readme and "(result.hypotheses[0][1:])" in readme


def test_three_steps_of_training_are_equal(imported: Imported) -> None:
    config, sizes = imported.run.config.model, (len(imported.order),) * 2
    assert config.kind == "transformer"
    ours, theirs = Transformer(config, *sizes).train(), type(imported.theirs).from_pretrained(imported.folder).train()
    ours.load_state_dict(imported.run.model.state_dict())
    ours.output.bias.requires_grad_(False)  # transformers has none in NLLB-200, and does not train that of mBART
    rows = [tokenizer.encode(sentences()) for tokenizer in (imported.run.src_tokenizer, imported.run.tgt_tokenizer)]
    losses = three_steps(ours, theirs, rows, (imported.order, imported.order), 1)
    assert np.allclose(*zip(*losses, strict=True), rtol=0, atol=1e-5), losses
    assert losses[2][0] < losses[0][0] - 0.01, "nothing was learned"


def test_unknown_languages_are_refused_with_close_ones(tmp_path: Path) -> None:
    others = [f"{a}{b}n_Latn" for a in "bcdf" for b in "aeiou"]
    nllb_folder(tmp_path / "hub", languages=[*others, "deu_Latn", "eng_Latn"])
    with pytest.raises(UsageError, match="the model has no language 'deu_Latin'") as caught:
        import_huggingface(tmp_path / "hub", tmp_path / "run", src_lang="eng_Latn", tgt_lang="deu_Latin")
    assert caught.value.where == "--tgt-lang"
    assert str(caught.value.help).startswith("choose one of 22, such as deu_Latn, ")


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "code": ("config.json", {"auto_map": {"AutoModel": "evil.M"}}, "the model is code of the folder"),
    "tokenizer code": ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": []}}, "the tokenizer is code of the"),
    "unscaled": ("config.json", {"scale_embedding": False}, "unsupported scale_embedding False for mbart"),
    "another start": ("config.json", {"decoder_start_token_id": 0}, "unsupported decoder_start_token_id 0 for mbart"),
    "no end": ("config.json", {"eos_token_id": 0, "decoder_start_token_id": 0}, "a special token .* twice"),
    "absurd": ("config.json", {"max_position_embeddings": 10**12}, "max_position_embeddings: Input should be less"),
    "more positions": ("config.json", {"max_position_embeddings": 500}, "embed_positions.weight' has shape"),
    "other codes": ("tokenizer_config.json", {"tokenizer_class": "MBartTokenizer"}, "MBartTokenizer has codes after"),
    "more rows": ("config.json", {"vocab_size": 100}, "has shape"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_strange_mbart_is_refused(name: str, tmp_path: Path) -> None:
    mbart_folder(tmp_path / "hub")
    file, changes, reason = REFUSED[name]
    tree = json.loads((tmp_path / "hub" / file).read_text())
    (tmp_path / "hub" / file).write_text(json.dumps({**tree, **changes}))
    with pytest.raises(RunError, match=reason) as caught:
        import_huggingface(tmp_path / "hub", tmp_path / "run", src_lang="en_XX", tgt_lang="de_DE")
    check_refusal(caught.value)
    assert not (tmp_path / "run").exists()


LONG = {"added_tokens_decoder": {"9" * 5000: {"content": "__en__"}}}
OF_M2M100: dict[str, tuple[str, dict[str, Any], str]] = {
    "codes that are no list": ("tokenizer_config.json", {"additional_special_tokens": 3.5}, "are not a list"),
    "an endless id": ("tokenizer_config.json", LONG, "the model has no language 'en'"),
    "no begin token": ("vocab.json", {"<s>": None}, "no entry for the bos token"),
    "an id of text": ("vocab.json", {"</s>": "2"}, "no entry for the eos token"),
}


@pytest.mark.parametrize("name", OF_M2M100)
def test_a_strange_vocabulary_of_m2m100_is_refused(name: str, tmp_path: Path) -> None:
    m2m_folder(tmp_path / "hub")
    file, changes, reason = OF_M2M100[name]
    tree = json.loads((tmp_path / "hub" / file).read_text())
    (tmp_path / "hub" / file).write_text(json.dumps({**tree, **changes}))
    with pytest.raises(AttnkitError, match=reason):
        import_huggingface(tmp_path / "hub", tmp_path / "run", src_lang="en", tgt_lang="de")
    assert not (tmp_path / "run").exists()


def test_a_vocabulary_without_a_begin_token_is_not_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of a Marian, in a run whose model is laid out as an mBART-50."""
    imported = Imported(tmp_path, "mbart")
    src, tgt, config = imported.run.src_tokenizer.pieces, imported.run.tgt_tokenizer.pieces, imported.run.config.model
    assert src is not None and tgt is not None and config.kind == "transformer"
    monkeypatch.setitem(src.roles, "bos", None)
    with pytest.raises(RunError, match="has no language codes, or lacks a special token, unlike that of every mbart"):
        coded_contents(imported.run, config, "mbart", src, tgt)


def their_tokenizer(imported: Imported, folder: Path) -> Any:
    """Return the tokenizer that transformers makes of a folder with the languages of a run."""
    name = {"m2m_100": "M2M100Tokenizer", "nllb": "NllbTokenizer", "mbart": "MBart50Tokenizer"}[imported.kind]
    given = dict(zip(("src_lang", "tgt_lang"), imported.languages, strict=True))
    return getattr(transformers, name).from_pretrained(folder, **given)


@pytest.mark.sample(2)
def test_everything_goes_back(imported: Imported, tmp_path: Path) -> None:
    back = export_huggingface(imported.path, tmp_path / "back").path
    ours, theirs = (safetensors.torch.load_file(at / "model.safetensors") for at in (back, imported.folder))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in theirs)
    name = "sentencepiece.bpe.model"
    assert (back / name).read_bytes() == (imported.folder / name).read_bytes()
    kept, given = (transformers.AutoConfig.from_pretrained(at) for at in (back, imported.folder))
    for key in (
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "decoder_start_token_id",
        "vocab_size",
        "encoder_layers",
        "decoder_layers",
        "d_model",
        "encoder_ffn_dim",
        "activation_function",
    ):
        assert getattr(kept, key) == getattr(given, key)
    if imported.kind == "m2m_100":
        trees = [json.loads((at / "vocab.json").read_text()) for at in (back, imported.folder)]
        assert trees[0] == trees[1]
    elif imported.kind == "nllb":
        trees = [json.loads((at / "tokenizer.json").read_text()) for at in (back, imported.folder)]
        assert trees[0]["model"]["vocab"] == trees[1]["model"]["vocab"]
        assert [{k: token[k] for k in ("id", "content")} for token in trees[0]["added_tokens"]] == trees[1][
            "added_tokens"
        ]
    tokenizer, sides = their_tokenizer(imported, back), (imported.run.src_tokenizer, imported.run.tgt_tokenizer)
    for line in sentences()[:200]:
        (src,), (tgt,) = (side.encode([line]) for side in sides)
        assert tokenizer(line).input_ids == imported.order[[*src, 2]].tolist(), line
        assert tokenizer(text_target=line).input_ids == imported.order[[*tgt, 2]].tolist(), line
        assert 3 in src or tokenizer.decode(imported.order[src].tolist(), skip_special_tokens=True) == line
    # The code of the README translates as attnkit does, greedily: beams of transformers end by a rule of their own.
    (code,) = re.findall(r"```python\n(.*?)```", (back / "README.md").read_text(), re.DOTALL)
    found: dict[str, Any] = {}
    exec(
        code.replace('"."', repr(str(back)))
        .replace("num_beams=5", "num_beams=1")
        .replace("A dog runs.", sentences()[0]),
        found,
    )
    expected = load_translator([imported.path]).translate(
        sentences()[:1], beam_size=1, max_length=found["ids"].shape[1] - 1
    )
    assert found["tokenizer"].batch_decode(found["ids"], skip_special_tokens=True) == expected
    run = import_huggingface(
        back, tmp_path / "run", src_lang=imported.languages[0], tgt_lang=imported.languages[1]
    ).path
    again = load_run(run, device="cpu")
    assert again.src_tokenizer.fingerprint == imported.run.src_tokenizer.fingerprint
    same, state = again.model.state_dict(), imported.run.model.state_dict()
    assert all(torch.equal(same[name], state[name]) for name in state)


def test_a_trained_bias_without_a_place_is_refused(tmp_path: Path) -> None:
    for name, refused in (("nllb", True), ("mbart", False)):
        imported = Imported(tmp_path / name, name)
        for first, side in enumerate("ab"):
            (tmp_path / side).write_text("".join(line + "\n" for line in sentences()[100 * first :][:100]))
        flags = {"data.src": [str(tmp_path / "a")], "data.tgt": [str(tmp_path / "b")]}
        sets = ["limits.max_steps=2", "optimization.batch_tokens=400", "optimization.warmup_steps=1", "data.held_out=5"]
        sets += ["data.max_length=90"]
        for more, bias in (([], True), (["finetuning.freeze=[output]"], False)):
            run = tmp_path / f"{name} {bias}"
            resolved = resolve(flags, sets=[*sets, *more], preset_name="tiny", fixed=inherited(imported.path, run))
            for _ in train(TrainRequest(resolved.config, run, init_from=imported.path)):
                pass
            if refused and bias:
                with pytest.raises(
                    RunError, match="no bias of the output layer, but this run has trained one"
                ) as caught:
                    export_huggingface(run, tmp_path / f"{run.name} back")
                assert caught.value.where == "output.bias" and "finetuning.freeze=[output]" in str(caught.value.help)
            else:
                folder = export_huggingface(run, tmp_path / f"{run.name} back").path
                theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
                row = torch.tensor([[5, 40, 77, 2]])
                with torch.no_grad():
                    expected = theirs(
                        input_ids=imported.order[row], decoder_input_ids=imported.order[torch.tensor([[2, 9, 60]])]
                    ).logits
                    model = load_run(run, device="cpu").model
                    found = model.head(model.hidden(row, None, torch.tensor([[1, 9, 60]])))
                torch.testing.assert_close(found, expected[..., imported.order], rtol=0, atol=1e-4)
