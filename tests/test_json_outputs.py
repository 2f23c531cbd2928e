"""What commands print with ``--json``, held to the schemas of the documentation."""

from __future__ import annotations

import inspect
import json
import shlex
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from attnkit.cli.main import COMMANDS, GROUPS, import_command, main

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside the tests are no package
sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

import json_pages
from json_outputs import OUTPUTS

from test_help_examples import SMALL, workspace  # noqa: F401

ROOT = Path(__file__).parents[1]
SCHEMAS = ROOT / "docs" / "reference" / "schemas"
LINES = (
    "check a.en a.de --vocab vocab.json --max-length 5",
    "check b.en b.de",
    "clean a.en a.de -o cleaned",
    "vocab a.en -o again.json",
    f"train --src a.en --tgt a.de -o new {SMALL}",
    f"train --src a.en --tgt a.de -o new {SMALL} --dry-run",
    f"train --task text-classification --data reviews.tsv -o new {SMALL}",
    f"pretrain-mlm text.txt -o new {SMALL}",
    f"pretrain-mlm text.txt -o new {SMALL} --dry-run",
    f"pretrain-clm text.txt -o new {SMALL}",
    f"finetune bert --task text-classification --train train.tsv -o new {SMALL}",
    "predict labels test.tsv --gold --all",
    "predict labels lines.txt",
    "predict opinions reviews.tsv --gold",
    "predict opinions lines.txt",
    "predict tagger test.conll --gold --all",
    "predict tagger lines.txt",
    "predict reader dev.json --gold",
    "fill-mask bert 'The [MASK] sat on the [MASK].'",
    "generate gpt 'The cat' --n 2 --temperature 1",
    "compare-lm bert gpt 'The cat sat.'",
    "translate run -i test.en",
    "translate run -i test.en --return-attention --return-token-scores --glossary terms.tsv --num-hypotheses 2",
    "translate run -i page.html --format html --glossary terms.tsv",
    "translate run -i test.en --protect",
    "back-translate de-en mono.de -o pairs --keep-flagged",
    "augment test.en test.de -o augmented --forward run --backward de-en --keep-flagged",
    "distill run test.en test.de -o taught --keep-flagged --beam-size 2",
    "align a.en a.de",
    "attend run 'A dog runs.'",
    "attend run 'A dog runs.' --beam-size 2",
    "attend run 'A dog runs.' --compare --alignment dot",
    "attend bert 'A dog runs.'",
    "attend gpt 'A dog runs.'",
    "attend opinions 'A dog runs.'",
    "attend --example cat",
    "attend --example cat --alignment additive",
    "embed bert lines.txt",
    "embed bert --what static",
    "embed codes lines.txt",
    "embed codes lines.txt --reconstruct",
    "embed vector-codes vectors.npy --reconstruct",
    "score run test.en test.de",
    "score run test.en test.de --return-token-scores",
    "score-bleu out.de test.de -m bleu -m chrf -m ter",
    "score-bleu out.de test.de --against old.de --samples 10",
    "score-bleu out.de test.de --sentence",
    "score-bleu out.de test.de --formula notes",
    "score-bleu out.de test.de --formula notes --sentence",
    "compare run1 run2 --src test.en --tgt test.de",
    "compare run1 run2 --src test.en --tgt test.de --groups --lines 3",
    "compare run1 run2 --src test.en --tgt test.de --seeds",
    "compare old.de new.de --tgt test.de --test randomization --groups --lines 3",
    "runs run bert",
    "runs run bert --seeds",
    "report run1 run2 --src test.en --tgt test.de --text 'A dog runs.'",
    "plan --src a.en --tgt a.de --preset tiny --device cpu --seconds 0.1",
    "sweep sweep.yaml -o experiments --dry-run",
    "sweep sweep.yaml -o experiments",
    "average run --last 2",
    "verify run bert",
    "export run --to huggingface out",
    "import huggingface bert-base-uncased -o imported",
    "explain mask",
    "explain mask --pattern window",
    "explain positions",
    "explain pooling",
    "licenses",
    "toy-corpus reverse -o digits --pairs 20 --valid 2 --test 2",
    "word2vec train text.txt -o new-vectors --dim 8 --epochs 1 --min-count 1 --threads 1",
    "word2vec similar vectors king queen",
    "word2vec analogy vectors man king woman",
    "word2vec odd-one vectors breakfast dinner lunch",
    "word2vec distance vectors motel hotel",
    "word2vec evaluate vectors wordsim353.tsv questions-words.txt --sections",
    "word2vec cluster vectors -k 3",
    "word2vec cluster vectors -k 3 --summary",
    "word2vec phrases text.txt -o joined-again.txt",
    "word2vec convert vectors vectors-again.bin",
    "word2vec one-hot motel hotel vectors",
    "word2vec compare-context bert 'I eat an apple.' 'An apple a day.' --word apple",
    "word2vec compare-context vectors 'I eat an apple.' 'An apple a day.' --word apple",
)


def command_of(line: str) -> str:
    """Return the name of a line's command, with that of its group."""
    words = line.split()
    return " ".join(words[: 2 if words[0] in GROUPS else 1])


def test_every_command_with_json_has_a_schema_and_a_line() -> None:
    paths = {name: module for name, (module, _) in COMMANDS.items() if name not in GROUPS}
    paths |= {f"{group} {name}": module for group in GROUPS for name, (module, _) in GROUPS[group].items()}
    takes = {name for name, path in paths.items() if "json" in inspect.signature(import_command(path)).parameters}
    assert takes == set(OUTPUTS) == {command_of(line) for line in LINES}


def test_schemas_are_valid_and_as_the_sources_say() -> None:
    """If this fails, run ``make docs``."""
    texts = json_pages.schema_texts()
    assert texts == {path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.iterdir()}
    for text in texts.values():
        Draft202012Validator.check_schema(json.loads(text))


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_output_has_the_keys_of_its_schema_and_no_others(
    line: str,
    workspace: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(workspace)
    monkeypatch.setattr(sys, "argv", ["attnkit", *shlex.split(line), "--json"])
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr()
    name = command_of(line)
    assert printed.out, printed.err
    values = [json.loads(one) for one in printed.out.splitlines()] if OUTPUTS[name].per else [json.loads(printed.out)]
    schema = json.loads((SCHEMAS / json_pages.schema_file(name)).read_text(encoding="utf-8"))
    validator = Draft202012Validator(schema)
    for value in values:
        error = next(validator.iter_errors(value), None)
        assert error is None, f"{error.message[:500]} at {list(error.absolute_path)}\n{str(value)[:2000]}"
    top = values[0][0] if isinstance(values[0], list) else values[0]
    if any("properties" in part for part in [schema, *schema.get("$defs", {}).values()]):
        more = {**top, "another": 1} if isinstance(top, dict) else {"another": 1}
        assert not validator.is_valid([more] if isinstance(values[0], list) else more)
