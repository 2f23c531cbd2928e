"""What the documents say against what is there: names in the tree, commands and their options, recipes, examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from attnkit.cli.main import COMMANDS, LazyGroup, app
from attnkit.config import load_yaml
from attnkit.engine.registry import KINDS
from attnkit.engine.resolve import resolve

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
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


TRAINING = ("train", "pretrain-mlm", "pretrain-clm", "finetune")


def blocks(text: str) -> list[str]:
    """Return what stands between fences."""
    return re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)


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


def test_table_of_commands_is_the_command_lines() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|.*\| `attnkit ([\w-]+)", read("README.md"), re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(COMMANDS)
    assert all(name == called for name, called in rows)


def test_commands_of_indented_blocks_are_found() -> None:
    found = {line.split()[1] for line in commands_in(read("README.md"))}
    assert {"pretrain-mlm", "pretrain-clm", "finetune", "predict", "embed", "fill-mask", "generate", "import"} <= found


@pytest.mark.parametrize("name", [*DOCUMENTS, *(f"examples/{path.name}" for path in EXAMPLES)])
def test_commands_and_options_exist(name: str) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)
    for line in commands_in(read(name)):
        words = line.split("#")[0].split()
        if words[1].startswith("-") or words[1].isupper() or words[1] == "count":  # count: the recipe's own
            continue
        command = group.get_command(None, words[1])
        if isinstance(command, LazyGroup) and words[2:]:
            command = command.get_command(None, words[2])
        assert command is not None, line
        known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-h"}
        assert [word for word in words[2:] if re.match(r"--?[a-z]", word) and word not in known] == [], line


def test_recipes_name_what_exists() -> None:
    text = read("CONTRIBUTING.md")
    invented = {"src/attnkit/models/bag.py", "src/attnkit/commands/count.py"}
    named = set(re.findall(r"`((?:src|tests|benchmarks)/[\w/.-]+\.py)`", text)) - invented
    assert len(named) > 8
    assert [path for path in named if not (ROOT / path).exists()] == []
    for table, path in {
        "ALIGNMENTS": "models/attention/alignment",
        "SIZES": "models/config",
        "MODELS": "models/build",
        "COMMANDS": "cli",
    }.items():
        assert table in text
        assert re.search(rf"^{table}\b", read(f"src/attnkit/{path}.py"), re.MULTILINE)


@pytest.mark.parametrize("name", [*DOCUMENTS, *LOG])
def test_links_and_result_files_exist(name: str) -> None:
    text = read(name)
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("http")]
    assert [link for link in links if not ((ROOT / name).parent / link).exists()] == []
    results = set(re.findall(r"`(benchmarks/results/[a-z0-9_-]+\.json)`", text))
    assert [path for path in results if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", [*DOCUMENTS, *(f"examples/{path.name}" for path in EXAMPLES)])
def test_documents_name_no_machine(name: str) -> None:
    """Documents hold nobody's paths: what they show works anywhere."""
    found = re.findall(r"(?<![\w.])/(?:work|root|tmp|home|Users|opt|mnt)\b", read(name))
    assert found == []


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
    needs = KINDS[load_yaml(path).get("task", "translation")].needs
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
