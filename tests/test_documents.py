"""The documents against the sources: the tree, commands, options, recipes, examples; marked blocks are run."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from attnkit.cli.main import COMMANDS, LazyGroup, app
from attnkit.config import load_yaml
from attnkit.engine.registry import TASKS
from attnkit.engine.resolve import resolve

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside the tests are no package

from shown_blocks import blocks_to_run, run_block, type_in

ROOT = Path(__file__).parents[1]
PAGES = tuple(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))
LOG = tuple(name for name in PAGES if re.match(r"docs/log/\d", name))  # names of then: not rewritten
DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "examples/README.md",
    *sorted({*PAGES} - {*LOG}),
)
FROM_OTHERS = "docs/guides/coming-from-other-toolkits.md"
SYSTEM = ("cannot", "No space left on device", "Permission denied", "<unk>")
"""Parts of messages that come from the operating system or stand alone."""
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in PAGES if re.match(r"docs/(guides|concepts)/", name)])
def test_a_page_says_first_what_it_is_for(name: str) -> None:
    title, blank, purpose = read(name).split("\n")[:3]
    assert title.startswith("# ") and not blank
    # A sentence, not a block, a heading, a table, a picture, a formula or a comment.
    assert re.match(r"[A-Z`\[](?!``)", purpose) and len(purpose) > 40, purpose


TRAINING = ("train", "pretrain-mlm", "pretrain-clm", "finetune")


def blocks(text: str, mark: str = r"[\w ]*") -> list[str]:
    """Return the texts between fences whose first line says ``mark``."""
    return [
        textwrap.dedent(block) for block in re.findall(rf"^ *```{mark}\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    ]


def tree_paths(block: str) -> list[str]:
    """Return the paths of an indented file tree, two spaces a level."""
    stack: list[str] = []
    paths = []
    for line in block.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        stack[depth:] = [line.split()[0]]
        paths.append("".join(stack))
    return paths


def commands_in(text: str) -> list[str]:
    """Return every ``attnkit …`` in backticks, fences, indented blocks or comments of YAML, continued lines joined."""
    indented = re.findall(r"^ {4}.+$", text, re.MULTILINE)
    shown = "\n".join([*blocks(text), *indented]) or re.sub(r"^# ?", "", text, flags=re.MULTILINE)
    whole = re.findall(r"^ *(?:echo .*\| )?(attnkit .+)$", re.sub(r"\\\n *", "", shown), re.MULTILINE)
    return [*whole, *re.findall(r"`(attnkit [^`\n]+)`", text)]


def test_tree_names_what_exists() -> None:
    tree = next(block for block in blocks(read("README.md")) if block.startswith("src/attnkit/"))
    paths = tree_paths(tree)
    assert len(paths) > 30
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_tree_has_every_room() -> None:
    tree = next(block for block in blocks(read("README.md")) if block.startswith("src/attnkit/"))
    named = set(tree_paths(tree))
    source = ROOT / "src" / "attnkit"
    rooms = {f"src/attnkit/{path.parent.name}/" for path in source.glob("*/__init__.py")}
    files = {f"src/attnkit/{path.name}" for path in source.glob("*.py") if not path.name.startswith("__")}
    assert (rooms | files) - named == set()


def test_readme_is_short() -> None:
    assert len(read("README.md").splitlines()) <= 150


@pytest.mark.parametrize("page", ["commands.md", "configuration.md", "json.md"])
def test_generated_pages_are_as_the_sources_say(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, run ``make docs``."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGES[page]() == read(f"docs/reference/{page}")


def test_keys_exist() -> None:
    """A dotted name whose first part is a section names one of its keys, or a part of one."""
    known = set(re.findall(r"^\| `([\w.]+)` \|", read("docs/reference/configuration.md"), re.MULTILINE))
    sections = {key.split(".")[0] for key in known if "." in key}
    others = {
        "data.py",
        "model.safetensors",
        "adapter.safetensors",
        "adapter.json",
        "KEY",
        "K",
        "model.d_modle",
    }  # the last: an example of a misspelt key
    unknown = []
    for name in DOCUMENTS:
        keys = re.findall(r"--set ([\w.]+)=", read(name))
        quoted = re.findall(r"`([a-z_]+\.[a-z_.]+[a-z])(?:=[^`]*)?`", read(name))
        keys += [key for key in quoted if key.split(".")[0] in sections]
        unknown += [(name, key) for key in keys if key not in known | others]
    assert unknown == []


def test_every_command_is_in_the_guides() -> None:
    shown = {line.split()[1] for name in DOCUMENTS if "reference" not in name for line in commands_in(read(name))}
    assert sorted({*COMMANDS} - shown) == []


def test_every_page_is_in_an_index() -> None:
    indexes = ("docs/index.md", "docs/benchmarks/README.md", "docs/log/README.md", "docs/lecture/README.md")
    linked = {
        str((ROOT / index).parent.joinpath(link.split("#")[0]).resolve().relative_to(ROOT))
        for index in indexes
        for link in re.findall(r"\]\(([^)]+\.md[^)]*)\)", read(index))
    }
    assert sorted({*PAGES} - linked - {"docs/index.md"}) == []


def test_commands_and_options_exist() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)
    names = [*DOCUMENTS, *(f"examples/{path.name}" for path in EXAMPLES)]
    for line in (line for name in names for line in commands_in(read(name))):
        words = line.split("#")[0].split()
        printed = words[1][0].isdigit()  # by --version
        if printed or words[1].startswith("-") or words[1].isupper() or words[1] == "count":  # the recipe's own
            continue
        command = group.get_command(None, words[1])
        if isinstance(command, LazyGroup) and words[2:]:
            command = command.get_command(None, words[2])
        assert command is not None, line
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
        assert [word for word in words[2:] if re.match(r"--?[a-z]", word) and word not in known] == [], line


def test_recipes_name_what_exists() -> None:
    text = read("CONTRIBUTING.md")
    invented = {"src/attnkit/models/bag.py", "src/attnkit/cli/count.py"}
    named = set(re.findall(r"`((?:src|tests|benchmarks)/[\w/.-]+\.py)`", text)) - invented
    assert len(named) > 8
    assert [path for path in named if not (ROOT / path).exists()] == []
    for table, path in {
        "ALIGNMENTS": "models/attention/alignment",
        "SIZES": "models/config",
        "MODELS": "models/translation",
        "COMMANDS": "cli/main",
    }.items():
        assert table in text
        assert re.search(rf"^{table}\b", read(f"src/attnkit/{path}.py"), re.MULTILINE)


CHECK = """
import torch
from attnkit.models.attention.alignment import ALIGNMENTS
from attnkit.models.attention.config import AttentionOptions
align = ALIGNMENTS["manhattan"](2, 2, AttentionOptions(), 1)
query, keys = torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[0.0, 0.0], [1.0, 5.0]]]])
assert torch.allclose(align.score(query, align.prepare(keys)), torch.full((1, 1, 1, 2), -3 / 2**0.5))
wide, many = torch.rand(1, 1, 16, 512), torch.rand(1, 1, 16, 512)
weights = align.score(wide, align.prepare(many)).softmax(-1)
assert -(weights * weights.log2()).sum(-1).mean() > 3.1  # as tests/models asks of the whole table
weighted = ALIGNMENTS["weighted"](2, 2, AttentionOptions(), 3)
assert [(name, w.shape) for name, w in weighted.named_parameters()] == [("log_strength", (3, 1, 1))]
"""


@pytest.mark.slow
def test_the_recipe_of_an_alignment_function_works(tmp_path: Path) -> None:
    """The blocks of the recipe, applied to a copy of the sources, make a function that trains."""
    recipe = read("CONTRIBUTING.md").split("### Add an alignment function")[1].split("\n### ")[0]
    definition, table_line, name_line, constructor = blocks(recipe, "python")
    attention = tmp_path / "src" / "attnkit" / "models" / "attention"
    shutil.copytree(
        ROOT / "src" / "attnkit", tmp_path / "src" / "attnkit", ignore=shutil.ignore_patterns("__pycache__")
    )

    def insert(name: str, after: str, line: str) -> None:
        text = (attention / name).read_text(encoding="utf-8")
        assert text.count(after) == 1, after
        (attention / name).write_text(text.replace(after, after + line), encoding="utf-8")

    table = re.search(r"^ALIGNMENTS.*\{\n", (attention / "alignment.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert table is not None
    definition += "\n\nclass Weighted(Manhattan):\n" + textwrap.indent(constructor, "    ")
    insert("alignment.py", table[0], f'{table_line}\n"weighted": Weighted,\n')
    text = (attention / "alignment.py").read_text(encoding="utf-8")
    (attention / "alignment.py").write_text(text.replace(table[0], f"{definition}\n\n{table[0]}"), encoding="utf-8")
    insert("config.py", "AlignmentName = Literal[\n", f'{name_line}\n"weighted",\n')
    insert("config.py", "SAME_WIDTH: frozenset[AlignmentName] = frozenset({", f'{name_line.strip()} "weighted", ')
    (tmp_path / "a").write_text("a b c\nb c a\n" * 10, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    subprocess.run([sys.executable, "-c", CHECK], env=environment, check=True, timeout=120)
    shown = next(line for line in commands_in(recipe) if "--model rnn" in line)
    assert shown.endswith("--set model.alignment=manhattan")
    arguments = "--src a --tgt a --valid-src a --valid-tgt a -o run --model rnn --set model.alignment=manhattan "
    arguments += "--preset tiny --max-steps 1 --device cpu --threads 1 --set vocabulary.kind=char"
    command = [sys.executable, "-m", "attnkit", "train", *arguments.split()]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=240)


def test_keys_for_users_of_other_toolkits_exist() -> None:
    """In tables whose last column is headed by "key", each name there is one, an option, or a value after a key."""
    known = set(re.findall(r"^\| `([\w.]+)` \|", read("docs/reference/configuration.md"), re.MULTILINE))
    options = set(re.findall(r"(--[a-z-]+)", read("docs/reference/commands.md")))
    n_checked = 0
    for table in re.findall(r"^\|.*\| key(?: or option)? \|\n\|.*\n((?:\|.*\n)+)", read(FROM_OTHERS), re.MULTILINE):
        for row in table.splitlines():
            names = re.findall(
                r"`([^`]+)`", re.sub(r"`: `[^`]+`(?: or `[^`]+`)?", "`", row.strip(" |").rsplit(" | ", 1)[1])
            )
            assert names and set(names) <= known | options, row
            n_checked += len(names)
    assert n_checked > 100


def test_messages_of_troubleshooting_exist() -> None:
    """What a table shows as a message is, but for names and numbers, in the sources."""
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    shown = re.findall(r"^\| `([^`|]+)` \|", read("docs/guides/troubleshooting.md"), re.MULTILINE)
    parts = [part.strip(" ':") for message in shown for part in message.split("…")]
    assert len(shown) > 20
    assert [part for part in parts if part not in sources and part not in SYSTEM] == []


SMALL = "--preset tiny --max-steps 1 --device cpu --threads 1 --overwrite"
FEW = "--pairs 500 --valid 10 --test 10 --overwrite"
"""Appended to commands that train and to those that generate text: the last of equal flags wins."""
MARKED = [
    name
    for name in DOCUMENTS
    if blocks(read(name), "(?:sh|python) run")
    and not name.startswith(("docs/tutorials/", "docs/lecture/", "docs/concepts/"))  # those run as they are
]


def made_small(line: str) -> str:
    command = line.split()[1]
    more = SMALL if command in TRAINING else FEW if command == "toy-corpus" else ""
    if line.startswith("attnkit word2vec train"):
        more = "--min-count 1"
    return f"{line} {more}" if more else line


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with what the pages take for granted: text, a translator, BERT and GPT."""
    folder = tmp_path_factory.mktemp("documents")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        files = "--src toy/train.en --tgt toy/train.fr --valid-src toy/valid.en --valid-tgt toy/valid.fr"
        for line in ("attnkit toy-corpus english-french -o toy", f"attnkit train {files} -o run"):
            assert type_in(made_small(line)) == 0
    yield folder


LONG = "docs/reference/python-examples.md"  # trains a model of each kind, for half a minute: in ``make slow``
EVERY_PART = pytest.mark.slow(every_part=True)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[EVERY_PART] * (name == LONG)) for name in MARKED])
def test_marked_blocks_run(name: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(shutil.copytree(workspace, tmp_path / "here"))
    monkeypatch.chdir(folder)
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks_to_run(read(name)):
        run_block(block, names, name, made_small)


def test_blocks_that_are_not_run_say_why() -> None:
    """In the pages of ``docs``; generated ones and the log, which tells of then, apart."""
    pages = [name for name in DOCUMENTS if name.startswith("docs/") and name != "docs/reference/commands.md"]
    silent = []
    for name in pages:
        lines = read(name).splitlines()
        for number, line in enumerate(lines):
            if line in ("```sh", "```python") and not re.fullmatch(r"<!-- not run: .+ -->", lines[number - 1]):
                silent.append(f"{name}:{number + 1}")
    assert silent == []


def test_links_and_result_files_exist() -> None:
    missing = []
    for name in (*DOCUMENTS, *LOG):
        links = [link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", read(name)) if not link.startswith("http")]
        missing += [(name, link) for link in links if not ((ROOT / name).parent / link).exists()]
        results = re.findall(r"`(benchmarks/results/[a-z0-9_-]+\.json)`", read(name))
        missing += [(name, path) for path in results if not (ROOT / path).exists()]
    assert missing == []


def test_documents_name_no_machine() -> None:
    """Documents hold nobody's paths: what they show works anywhere."""
    names = [*DOCUMENTS, *(f"examples/{path.name}" for path in EXAMPLES)]
    machine = re.compile(r"(?<![\w.])/(?:work|root|tmp|home|Users|opt|mnt)\b")
    assert [(name, path) for name in names for path in machine.findall(read(name))] == []


def test_every_benchmark_is_listed() -> None:
    names = {path.name for path in (ROOT / "benchmarks").glob("*.py")}
    assert sorted(name for name in names if f"`{name}`" not in read("benchmarks/README.md")) == []


def test_changelog_has_an_unreleased_section_and_one_line_per_change() -> None:
    text = read("CHANGELOG.md")
    section = text.split("## [Unreleased]")[1].split("\n## ")[0]
    assert "### Added" in section and section.count("\n- ") > 5
    assert re.search(r"^## \[0\.1\.0\] - \d{4}-\d{2}-\d{2}$", text, re.MULTILINE)
    entries = text.split("## [Unreleased]")[1].splitlines()
    assert [line for line in entries if (line.startswith("- ") and len(line) > 102) or line.startswith("  ")] == []


def test_log_lists_its_dated_pages() -> None:
    index = read("docs/log/README.md")
    rows = re.findall(r"^\| (\d{4}-\d{2}-\d{2}) \| \[[^\]]+\]\((\1-[\w-]+\.md)\) \| .+ \|$", index, re.MULTILINE)
    assert sorted(f"docs/log/{page}" for _, page in rows) == sorted(LOG)
    for name in LOG:
        assert re.match(r"# .+\n\n\d{4}-\d{2}-\d{2}", read(name)), name


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid_and_complete(path: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("a line\n")
    needs = TASKS[load_yaml(path).get("task", "translation")].required_keys
    flags = {key: [str(tmp_path / name)] for key, name in zip(needs, ("a", "b"), strict=False)}
    config = resolve(flags, file=path).config
    assert config.model.kind == load_yaml(path)["model"]["kind"]
    assert not {"files", "valid_files", "src", "tgt"} & load_yaml(path).get("data", {}).keys(), "files are flags"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_listed_with_their_commands(path: Path) -> None:
    assert f"`{path.name}`" in read("examples/README.md")
    lines = commands_in(path.read_text(encoding="utf-8").split("\n\n")[0])
    called = tuple(f"attnkit {name} --config examples/{path.name} " for name in TRAINING)
    assert any(line.startswith(called) for line in lines)
