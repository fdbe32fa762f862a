"""Console completion, as the shells ask for it: by running the command with variables set."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import typer

from foretrace.cli import app as cli
from foretrace.cli.completion import models, what_if_names, what_ifs
from foretrace.tracer.lab.zoo.models import BY_NAME
from foretrace.transforms.registry import TRANSFORMS
from foretrace.transforms.scenario import describe
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the command in it, as an installation makes it."""
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "foretrace"
    command.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from foretrace.cli.app import main\nsys.exit(main())\n",
        "utf-8",
    )
    command.chmod(0o755)
    return folder


def asked(script: Path, *command: str, **variables: str) -> str:
    """Run *command* with the script on the path and return what it prints."""
    path = f"{script}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        env={**os.environ, **variables, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def in_bash(script: Path, *words: str) -> list[str]:
    """Return what bash would offer for the last of *words*, by the script that it is given."""
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    code = (
        'eval "$(foretrace --show-completion bash)"\n'
        f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n"
        '_foretrace_completion foretrace; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    shell = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    return asked(script, "bash", "--norc", "-c", code, **shell).splitlines()


def test_bash_completes_what_ifs(script: Path) -> None:
    """With parameters where the user has begun a quotation: it takes a bare bracket for its own."""
    asking = "foretrace", "whatif", "t.json"

    assert in_bash(script, *asking, "batch_s") == ["batch_size"]
    assert in_bash(script, *asking, "am") == ["amp"]
    assert in_bash(script, *asking, "amp", "'batch_s") == ["batch_size(n="]
    assert in_bash(script, *asking, '\'amp(dtype="bf16", at') == ['amp(dtype="bf16", attention=']


def test_bash_completes_models_of_the_zoo(script: Path) -> None:
    """After --models, one after the other; nothing after other words."""
    asking = "foretrace", "record-pairs"

    assert in_bash(script, *asking, "--models", "vgg11,gn") == ["vgg11,gnmt", "vgg11,gnn"]
    assert in_bash(script, *asking, "--minutes", "g") in ([], [""])


def test_zsh_completes_what_ifs(script: Path) -> None:
    """It shows the effect beside the name, and quotes on its own."""
    variables = {
        "_FORETRACE_COMPLETE": "complete_zsh",
        "_TYPER_COMPLETE_ARGS": "foretrace whatif t.json batch_s",
    }
    shown = asked(script, "foretrace", **variables)

    assert shown.startswith('_arguments \'*: :(("batch_size(n=":"')


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_reads_its_script(script: Path) -> None:
    """The script that it is given has no mistake."""
    code = 'compdef() { echo "$@" }; eval "$(foretrace --show-completion zsh)"'
    shell = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}

    assert asked(script, "zsh", "-f", "-c", code, **shell) == "_foretrace_completion foretrace\n"


def test_completion_can_be_installed(script: Path, tmp_path: Path) -> None:
    """Into the files of the shell that asks."""
    command = "foretrace --install-completion; true"
    asked(script, "bash", "--norc", "-c", command, HOME=str(tmp_path))

    assert "_foretrace_completion" in (tmp_path / ".bash_completions/foretrace.sh").read_text()
    assert "foretrace.sh" in (tmp_path / ".bashrc").read_text()


def test_signatures_are_read_as_they_are() -> None:
    """What stands in the source is what the what-ifs take, whatever is imported."""
    assert dict(what_if_names("")) == {each["name"]: each["effect"] for each in describe()}
    for each in describe():
        name, given = each["name"], each["parameters"]
        offered = [word for word, _ in what_ifs(f"{name}(")]
        assert offered == [f"{name}({parameter['name']}=" for parameter in given]
        needed = next((p["name"] for p in given if p["required"]), None)
        assert (name if needed is None else f"{name}({needed}=") in dict(what_ifs(name))


def test_a_parameter_is_offered_once() -> None:
    """What is given already is not, and a whole name has a bracket to open."""
    assert dict(what_ifs("batch_size(")) == {
        "batch_size(n=": "int, needed",
        "batch_size(recorded=": "int | None",
        "batch_size(other=": "str | None",
    }
    assert [word for word, _ in what_ifs("batch_size(n=64, ")] == [
        "batch_size(n=64, recorded=",
        "batch_size(n=64, other=",
    ]
    assert [word for word, _ in what_ifs("amp")] == ["amp", "amp("]
    assert what_ifs("no_such(") == what_ifs("no_such") == []


def test_completing_is_light() -> None:
    """Nothing that takes a while is imported for it."""
    code = (
        "import sys; from foretrace.cli.completion import what_ifs; what_ifs('a'); "
        "print([m for m in ('numpy', 'pandas', 'torch', 'numba') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"
    assert len(BY_NAME) >= 14
    assert len(TRANSFORMS) == len(what_if_names(""))


def test_bash_gets_names_alone_outside_quotation_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take the bracket for its own."""
    monkeypatch.setenv("_FORETRACE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "foretrace whatif t.json batch")
    assert [word for word, _ in what_ifs("batch")] == ["batch_size"]

    monkeypatch.setenv("COMP_WORDS", "foretrace whatif t.json 'batch")
    assert [word for word, _ in what_ifs("batch")] == ["batch_size(n="]


def test_models_follow_their_option() -> None:
    """Every model after a comma, and none where something else is asked for."""

    def after(*words: str) -> typer.Context:
        command = typer.main.get_command(cli.app)
        context = typer.Context(command)
        context.params = {"arguments": list(words)}
        return context

    assert models(after("--models"), "vgg19,gn") == ["vgg19,gnmt", "vgg19,gnn"]
    assert models(after("--models"), "") == list(BY_NAME)
    assert models(after("--minutes"), "") == models(after(), "") == []
