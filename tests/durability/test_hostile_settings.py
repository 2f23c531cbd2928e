"""Configurations, ``--set`` and flags that nobody should send: each is refused by file and line, or by its key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

HUGE = 10**400
FILES: dict[str, tuple[str | bytes, int, tuple[str, ...]]] = {
    # the file, below the data; exit code; words
    "unknown section": ("optimisation: {}", 2, ("unknown key", "did you mean 'optimization'?", "(c.yaml)")),
    "misspelt key": ("model:\n  d_modle: 8", 2, ("unknown key 'model.d_modle'", "did you mean 'model.d_model'?")),
    "duplicate key": ("seed: 1\nseed: 2", 2, ("duplicate key 'seed'", "at c.yaml:3")),
    "duplicate below": (
        "limits:\n  max_steps: 1\n  max_epochs: 2\n  max_steps: 3",
        2,
        ("duplicate key 'max_steps'", "at c.yaml:5"),
    ),
    "duplicate in brackets": ("limits: {max_steps: 1, max_steps: 2}", 2, ("duplicate key 'max_steps'", "at c.yaml:2")),
    "word for a number": ("seed: many", 2, ('seed: invalid value "many"', "at seed (c.yaml)")),
    "number for a word": ("device: 5", 2, ("device cannot be 5", "'auto', 'cpu'", "at device (c.yaml)")),
    "number for a switch": ("joint_vocabulary: 1", 2, ("joint_vocabulary: invalid value 1", "boolean")),
    "no": ("joint_vocabulary: no", 2, ('joint_vocabulary: invalid value "no"', "boolean")),
    "1e-4 for a count": (
        "limits: {max_steps: 1e-4}",
        2,
        ("limits.max_steps: invalid value 0.0001", "at limits.max_steps"),
    ),
    "a fraction of steps": ("limits: {max_steps: 1.5}", 2, ("limits.max_steps: invalid value 1.5",)),
    "nan": ("limits: {max_epochs: .nan}", 2, ('limits.max_epochs: invalid value ".nan"', "number")),
    "inf": ("limits: {max_epochs: .inf}", 2, ('limits.max_epochs: invalid value ".inf"', "number")),
    "1e999": ("limits: {max_epochs: 1e999}", 2, ("limits.max_epochs: invalid value inf", "finite number", "(c.yaml)")),
    "negative": ("limits: {max_steps: -1}", 2, ("limits.max_steps: invalid value -1", "greater than or equal to 1")),
    "zero": ("optimization: {learning_rate: 0}", 2, ("optimization.learning_rate: invalid value 0", "greater than 0")),
    "10^18": (
        f"limits: {{max_steps: {10**18}}}",
        2,
        ("limits.max_steps: invalid value 1000000000000000000", "less than"),
    ),
    "10^400": (f"limits: {{max_steps: {HUGE}}}", 2, ("limits.max_steps: invalid value 1000", "…: ", "less than")),
    "5,000 digits": (f"limits: {{max_steps: {'9' * 5000}}}", 2, ("the number has 5,000 digits", "at c.yaml:2")),
    "octal": ("seed: 0o17", 2, ('seed: invalid value "0o17"',)),
    "of 60": ("seed: 1:30", 2, ('seed: invalid value "1:30"',)),
    "hexadecimal": ("seed: 0x10", 2, ('seed: invalid value "0x10"',)),
    "alias bomb": (
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
        2,
        ("more than 20,000 values after alias expansion", "at c.yaml:6"),
    ),
    "alias in itself": ("model: &m\n  kind: [*m]", 2, ("the alias 'm' refers to itself", "at c.yaml:3")),
    "alias of nothing": ("model: *m", 2, ("undefined alias", "at c.yaml:2")),
    "merge bomb": (
        "a: &a {x: 1, y: 2}\n"
        + "".join(f"{b}: &{b}\n  <<: [{','.join([f'*{a}'] * 99)}]\n" for a, b in zip("abcd", "bcde", strict=True)),
        2,
        ("more than 20,000 values", "at c.yaml:"),
    ),
    "merge": ("limits: &l {steps: 3, steps_: 2}\nevaluation:\n  <<: *l", 2, ("unknown key",)),
    "merge of a word": ("limits:\n  <<: steps", 2, ("expected a mapping", "at c.yaml:3")),
    "5,000 brackets": ("model: " + "[" * 5000, 2, ("nested more than 32 levels deep", "at c.yaml:2")),
    "5,000 braces": ("model: " + "{a: " * 5000, 2, ("nested more than 32 levels deep", "at c.yaml:2")),
    "5,000 levels": ("".join(" " * i + "a:\n" for i in range(400)), 2, ("nested more than 32", "at c.yaml:33")),
    "many values": ("model: [" + "1," * 30_000 + "]", 2, ("more than 20,000 values", "at c.yaml:2")),
    "two documents": ("seed: 1\n---\nseed: 2", 2, ("more than one YAML document", "at c.yaml:3")),
    "tab": ("limits:\n\tsteps: 3", 2, ("cannot start any token", "at c.yaml:3", "help: ")),
    "tab in a list": ("limits: [\n\t1]", 2, ("cannot start any token", "at c.yaml:3")),
    "bracket left open": ("limits: {steps: 3", 2, ("this is not valid YAML", "at c.yaml:")),
    "quote left open": ("device: 'cpu", 2, ("this is not valid YAML", "at c.yaml:")),
    "colon in a word": ("device: a: b", 2, ("mapping values are not allowed here", "at c.yaml:2", "quote text")),
    "list for a section": ("limits: [1, 2]", 2, ("limits: invalid value [1, 2]", "at limits (c.yaml)")),
    "word for a section": ("limits: soon", 2, ('limits: invalid value "soon"', "at limits (c.yaml)")),
    "null for a section": ("limits:", 2, ("limits: invalid value null", "at limits (c.yaml)")),
    "null for a number": ("seed: ~", 2, ("seed: invalid value null", "at seed (c.yaml)")),
    "nothing in a section": ("limits: {}", 2, ("no limit set", "at limits (c.yaml)")),
    "number as key": ("1: 2", 2, ("unknown key '1'", "(c.yaml)")),
    "null as key": ("~: 2", 2, ("unknown key 'null'",)),
    "switch as key": ("true: 2", 2, ("unknown key 'true'",)),
    "list as key": ("? [a, b]\n: 1", 2, ("unhashable key", "at c.yaml:2")),
    "nothing as key": ('"": 1', 2, ("unknown key ''",)),
    "dots in a key": ("limits.max_steps: 3", 2, ("unknown key 'limits.max_steps'",)),
    "control characters": ("device: a\0b", 2, ("the character '<U+0000>' is not allowed", "at c.yaml:2")),
    "escape sequence": ('device: "\\e]0;x\\a"', 2, ('device cannot be "\\u001b]0;x\\u0007"',)),
    "escape as key": ('"\\e[31m": 1', 2, ("unknown key '<U+001B>[31m'",)),
    "half a character": ('device: "\\ud800"', 2, ("device: invalid UTF-8", "at device (c.yaml)")),
    "NUL in a file's name": ('vocabulary_files: ["a\\0b"]', 4, ("a<U+0000>b",)),
    "object": ("seed: !!python/object/apply:os.system ['touch x']", 2, ("the tag", "is not allowed", "at c.yaml:2")),
    "tag of one's own": ("seed: !mine 5", 2, ("the tag '!mine' is not allowed here", "at c.yaml:2")),
    "binary": ("device: !!binary aGk=", 2, ("is not allowed here", "at c.yaml:2")),
    "switch by tag": ("joint_vocabulary: !!bool maybe", 2, ("is not allowed here", "at c.yaml:2")),
    "long string": (f"device: {'x' * 100_000}", 2, ('device cannot be "xxx', "…")),
    "long key": (f"{'x' * 1000}: 1", 2, ("unknown key 'xxx", "…")),
    "long tag": (f"seed: !{'x' * 90_000} 1", 2, ("the tag '!xxx", "…")),
    "Latin-1": ("device: caf\xe9".encode("latin-1"), 2, ("it is not UTF-8", "at c.yaml:2")),
    "UTF-16": (b"\n\xff\xfe" + "seed: 1".encode("utf-16"), 2, ("it is not UTF-8", "at c.yaml:3")),
    "two megabytes": ("#" * 2_000_000, 2, ("more than 1,000,000 bytes", "at c.yaml")),
    "preset of a number": ("preset: 5", 2, ("unknown preset '5'", "tiny")),
    "preset of a list": ("preset: [tiny]", 2, ("unknown preset", "tiny")),
    "unknown model": ("model: {kind: lstm}", 2, ('model.kind cannot be "lstm"', "'transformer', 'rnn'")),
    "model of a list": ("model: {kind: [rnn]}", 2, ("model", "'transformer'")),
    "unknown metric": ("limits: {metric: blue}", 2, ("limits.metric cannot be 'blue'", "bleu", "at limits.metric (c.")),
    "no beam": ("decoding: {beam_size: 0}", 2, ("decoding.beam_size: invalid value 0",)),
    "more hypotheses than beams": ("decoding: {num_hypotheses: 9}", 2, ("num_hypotheses cannot exceed", "(c.yaml)")),
    "warmup of nothing": ("optimization: {schedule: noam, warmup_steps: 0}", 2, ("needs warmup_steps", "(c.yaml)")),
    "two ways to evaluate": ("evaluation: {every_steps: 2, every_epochs: 2}", 2, ("cannot be combined", "(c.yaml)")),
    "tying of two": (
        "joint_vocabulary: false\nmodel: {tie_embeddings: all}",
        2,
        ("model.tie_embeddings=all needs joint", "(c.yaml)"),
    ),
    "weights too many": ("data: {weights: [1, 2]}", 2, ("weights has 2 values for 1", "at data.weights (c.yaml)")),
    "weight too large": ("data: {weights: [1e9]}", 2, ("weights must be between 0 and 1,000",)),
    "threads too many": ("threads: 1000000000", 2, ("threads: invalid value 1000000000",)),
}
DATA = re.compile(r"^data: \{", re.MULTILINE)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FILES)
def test_configuration_files(attnkit: Any, workshop: Any, tmp_path: Path, name: str) -> None:
    text, code, words = FILES[name]
    raw = text if isinstance(text, bytes) else text.encode()
    data = f"data: {{src: {workshop.file('train.src')}, tgt: {workshop.file('train.tgt')}}}\n".encode()
    if raw.startswith(b"data: {"):
        raw = data[:-2] + b", " + raw.removeprefix(b"data: {")
        data = b""
    (tmp_path / "c.yaml").write_bytes(data + raw + b"\n")
    preset = [] if name.startswith("preset") else ["--preset", "tiny"]
    ended = attnkit(["train", "--config", "c.yaml", *preset, "-o", "run"], tmp_path)
    ended.check(code, *words)
    assert ended.out == "" and ended.err.startswith("error: " if code == 2 else "")
    assert {path.name for path in tmp_path.iterdir()} - {"run"} == {"c.yaml"}, "nothing ran, nothing is left"


PLACES: dict[str, tuple[str, str, int, tuple[str, ...]]] = {
    # what makes it; the name given; exit code; words
    "missing": ("", "c.yml", 2, ("no such file", "at c.yml", "check the spelling")),
    "misspelt": ("Path('c.yaml').touch()", "c.yml", 2, ("no such file", "did you mean c.yaml?")),
    "folder": ("os.mkdir('c')", "c", 2, ("it is a folder", "at c")),
    "in a file": ("Path('c').touch()", "c/d", 2, ("no such file", "at c/d")),
    "link to itself": ("os.symlink('c', 'c')", "c", 5, ("Too many levels of symbolic links", "at c")),
    "endless": ("", "/dev/zero", 2, ("more than 1,000,000 bytes", "at /dev/zero")),
    "empty": ("Path('c').touch()", "c", 2, ("no training data given", "--src a.en --tgt a.de")),
    "comments": ("Path('c').write_text('# seed: 1')", "c", 2, ("no training data given",)),
    "list": ("Path('c').write_text('- seed')", "c", 2, ("the configuration must be a mapping", "at c:1")),
    "word": ("Path('c').write_text('seed')", "c", 2, ("the configuration must be a mapping", "at c:1")),
    "mark": ("Path('c').write_bytes(b'\\xef\\xbb\\xbfseed: x')", "c", 2, ("no training data given",)),
    "no data": ("Path('c').write_text('data:')", "c", 2, ("no training data given",)),
    "no file": ("Path('c').write_text('data: {src: no.en, tgt: no.de}')", "c", 2, ("no such file: no.en",)),
    "NUL": ("Path('c').write_text('data: {src: \"a\\\\0\", tgt: b}')", "c", 2, ("is not a valid file name",)),
    "surrogate": ("Path('c').write_text('data: {src: \"\\\\ud800\", tgt: b}')", "c", 2, ("is not a valid file name",)),
}


@pytest.mark.parametrize("name", PLACES)
def test_places_of_configurations(attnkit: Any, tmp_path: Path, name: str) -> None:
    make, path, code, words = PLACES[name]
    attnkit(["train", "--config", path, "-o", "run"], tmp_path, before=make).check(code, *words)
    assert not (tmp_path / "run").exists()


SETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "nothing": ("", ("--set expects KEY=VALUE, not ''",)),
    "no value": ("seed", ("--set expects KEY=VALUE, not 'seed'", "help: for example")),
    "no key": ("=1", ("--set expects KEY=VALUE",)),
    "no end": ("limits.=1", ("--set expects KEY=VALUE",)),
    "two dots": ("limits..steps=1", ("--set expects KEY=VALUE",)),
    "empty value": ("seed=", ("seed: invalid value null", "at seed (--set seed)")),
    "spaces": ("see d=1", ("unknown key 'see d'", "did you mean 'seed'?")),
    "colon": ("seed: 1", ("--set expects KEY=VALUE, not 'seed: 1'",)),
    "two equals": ("device=cpu=1", ('device cannot be "cpu=1"',)),
    "below a number": ("seed.x=1", ("seed: input should be a valid integer", "(--set seed.x)")),
    "below a list": ("vocabulary.symbols.0=x", ("vocabulary.symbols: input should be",)),
    "bad YAML": ("seed=[1", ("this is not valid YAML", "at --set seed:1")),
    "bytes": ("device=\udcff", ("the character '<U+DCFF>' is not allowed", "at --set device:1")),
    "bytes as key": ("\udcff=1", ("<U+DCFF>: invalid UTF-8",)),
    "escape": ("\x1b[31m=1", ("unknown key '<U+001B>[31m'",)),
    "line feed": ("seed=1\nsteps: 2", ("this is not valid YAML", "at --set seed:2")),
    "5,000 levels": (".".join("a" * 5000) + "=1", ("--set expects KEY=VALUE, not 'a.a.", "…")),
    "5,000 brackets": ("seed=" + "[" * 5000, ("nested more than 32 levels deep", "at --set seed:1")),
    "endless": ("seed=" + "1" * 100_000, ("the number has 100,000 digits", "at --set seed:1")),
    "endless word": ("x" * 100_000, ("--set expects KEY=VALUE, not 'xxx", "…")),
    "object": ("seed=!!python/name:os.system", ("is not allowed here", "at --set seed:1")),
    "batches of nothing": ("optimization.batch_tokens=0", ("optimization.batch_tokens: invalid value 0",)),
    "widths that part": (
        "model.n_heads=3",
        ("must be a multiple of n_heads (3)", "at model.n_heads (--set model.n_heads)"),
    ),
    "too wide": (f"model.d_model={10**18}", ("model.d_model: invalid value 1000000000000000000",)),
}


@pytest.mark.parametrize("name", SETS)
def test_assignments(attnkit: Any, workshop: Any, tmp_path: Path, name: str) -> None:
    text, words = SETS[name]
    texts = ["--src", workshop.file("train.src"), "--tgt", workshop.file("train.tgt"), "--preset", "tiny"]
    ended = attnkit(["train", *texts, "-o", "run", "--set", text], tmp_path)
    ended.check(2, *words)
    assert ended.out == "" and list(tmp_path.iterdir()) == []


FLAGS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "epochs of nan": (
        ["train", "--max-epochs", "nan"],
        ("limits.max_epochs: invalid value nan", "at limits.max_epochs (flag)"),
    ),
    "minutes of inf": (["train", "--max-minutes", "inf"], ("limits.max_minutes: invalid value inf",)),
    "minutes of 0": (["train", "--max-minutes", "0"], ("limits.max_minutes: invalid value 0.0",)),
    "weight of nan": (["train", "--weight", "nan"], ("data.weights: invalid value [nan]", "at data.weights (flag)")),
    "10^400 steps": (["train", "--max-steps", str(HUGE)], ("limits.max_steps: invalid value 1000",)),
    "seed of 10^18": (["train", "--seed", str(10**18)], ("seed: invalid value 1000000000000000000",)),
    "average of 10^18": (["train", "--average", str(10**18)], ("checkpoints.average",)),
    "sizes": (["vocab", "{src}", "-o", "v", "--size", str(HUGE)], ("size: invalid value 1000", "at size (--size)")),
    "size of 8": (["vocab", "{src}", "-o", "v", "--size", "8"], ("at least 260 entries", "use at least 260")),
    "symbol of spaces": (["vocab", "{src}", "-o", "v", "--symbol", "a b"], ("contains white space", "(--symbol)")),
    "symbol that is special": (["vocab", "{src}", "-o", "v", "--symbol", "</s>"], ("special entry", "(--symbol)")),
    "symbol of bytes": (["vocab", "{src}", "-o", "v", "--symbol", "\udcff"], ("invalid UTF-8", "(--symbol)")),
    "frequency of 0": (["vocab", "{src}", "-o", "v", "--min-frequency", "0"], ("min_frequency: invalid value 0",)),
    "ratio of nan": (
        ["check", "{src}", "{tgt}", "--max-ratio", "nan"],
        ("max_ratio: invalid value nan", "--max-ratio"),
    ),
    "ratio of 0": (["check", "{src}", "{tgt}", "--max-ratio", "0"], ("max_ratio: invalid value 0.0",)),
    "no beam": (["translate", "{run}", "-i", "{src}", "--beam-size", "0"], ("beam_size: invalid value 0",)),
    "a huge beam": (
        ["translate", "{run}", "-i", "{src}", "--beam-size", str(10**18)],
        ("beam_size: invalid value 1000",),
    ),
    "temperature of nan": (
        ["translate", "{run}", "-i", "{src}", "--sampling", "--temperature", "nan"],
        ("temperature: invalid value nan",),
    ),
    "penalty of inf": (
        ["translate", "{run}", "-i", "{src}", "--length-penalty", "inf"],
        ("length_penalty: invalid value inf",),
    ),
    "a million threads": (["translate", "{run}", "-i", "{src}", "--threads", "1000000"], ("--threads",)),
    "no such engine": (["translate", "{run}", "-i", "{src}", "--engine", "cuda"], ("--engine", "'cuda'")),
    "no such precision": (["translate", "{run}", "-i", "{src}", "--precision", "int4"], ("--precision", "'int4'")),
    "compiled, on a GPU": (
        ["translate", "{run}", "-i", "{src}", "--engine", "compiled", "--device", "cuda"],
        ("compiled loops do not support a GPU", "at --engine", "use --device cpu"),
    ),
    "int8 by torch": (
        ["translate", "{run}", "-i", "{src}", "--engine", "torch", "--precision", "int8"],
        ("int8 needs compiled loops", "at --precision", "use --engine auto"),
    ),
    "batches of 0": (["translate", "{run}", "-i", "{src}", "--batch-size", "0"], ("--batch-size",)),
    "checkpoint of bytes": (
        ["translate", "{run}", "-i", "{src}", "--checkpoint", "\udcff"],
        ("'<U+DCFF>' is not a ch",),
    ),
    "checkpoint elsewhere": (
        ["translate", "{run}", "-i", "{src}", "--checkpoint", "../x"],
        ("'../x' is not a checkpoint",),
    ),
    "no such device": (["score", "{run}", "{src}", "{tgt}", "--device", "tpu"], ("--device", "'tpu'")),
    "samples of 10^18": (
        ["score-bleu", "{src}", "{tgt}", "--against", "{tgt}", "--samples", str(10**18)],
        ("--samples",),
    ),
    "orders of 10^18": (
        ["score-bleu", "{src}", "{tgt}", "--formula", "notes", "--max-order", str(10**18)],
        ("-order",),
    ),
    "seed of 10^400": (["score-bleu", "{src}", "{tgt}", "--against", "{tgt}", "--seed", str(HUGE)], ("--seed",)),
    "pairs of 10^18": (["toy-corpus", "reverse", "-o", "toy", "--pairs", str(10**18)], ("--pairs",)),
    "two times standard input": (["score-bleu", "-", "-"], ("standard input",)),
    "pairs from standard input": (["score", "{run}", "-", "-"], ("standard input",)),
    "a flag of bytes": (["check", "\udcff", "--\udcff"], ("unknown option",)),
    "a command of bytes": (["\udcff"], ("unknown command",)),
    "a command of escapes": (["\x1b[31m"], ("unknown command '<U+001B>[31m'",)),
    "an endless command": (["x" * 100_000], ("unknown command 'xxx",)),
}


@pytest.mark.parametrize("name", FLAGS)
def test_flags(attnkit: Any, workshop: Any, trained: Path, tmp_path: Path, name: str) -> None:
    arguments, words = FLAGS[name]
    names = {"src": str(workshop.file("test.src")), "tgt": str(workshop.file("test.tgt")), "run": str(trained)}
    if arguments[0] == "train":
        arguments = [*arguments, "--src", "{src}", "--tgt", "{tgt}", "-o", "run", "--preset", "tiny"]
    ended = attnkit([word.format(**names) for word in arguments], tmp_path)
    ended.check(2, *words)
    assert ended.out == "" and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["optimization.batch_tokens=1", "optimization.warmup_steps=1000000", "seed=010"])
def test_settings_that_are_odd_and_lawful(attnkit: Any, workshop: Any, tmp_path: Path, text: str) -> None:
    """A pair that is larger than a batch is a batch of its own; a warmup that the run is too short for is cut off."""
    train = workshop.arguments("transformer", tmp_path / "run", limits__max_steps=1)
    attnkit([*train, "--set", text], tmp_path).check(0, "done: 1 steps")
