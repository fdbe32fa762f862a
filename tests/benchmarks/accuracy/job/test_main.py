"""The page on whole jobs: its sections follow each other, and it is written where it belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.accuracy.job import __main__ as job_study

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_page_is_its_sections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In their order, an empty line between; each reads the folder of recordings."""
    sections = (lambda folder: [f"## {folder.name}"], lambda _: ["## Second", "", "text"])
    monkeypatch.setattr(job_study, "SECTIONS", sections)
    monkeypatch.setattr(job_study, "RECORDED", tmp_path / "recorded")
    monkeypatch.setattr(job_study, "PAGE", tmp_path / "page.md")
    job_study.main()
    text = (tmp_path / "page.md").read_text("utf-8")

    assert text.startswith("# How far off answers about whole jobs are\n")
    assert text.endswith("\n\n## recorded\n\n## Second\n\ntext\n")
    assert capsys.readouterr().out == "wrote page.md\n"


def test_every_section_is_on_the_page() -> None:
    """By its heading: the page was written after the last of them was added."""
    text = job_study.PAGE.read_text("utf-8")

    assert text.count("\n## ") == len(job_study.SECTIONS)
