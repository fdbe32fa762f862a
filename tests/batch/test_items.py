"""Items of a study: what is found, and what their keys depend on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.batch.config import read_study
from foretrace.batch.items import (
    Item,
    Recording,
    add_digest,
    add_key,
    check_unchanged,
    drop_repeats,
    list_items,
    list_pairs,
    make_failed,
    make_items,
    version,
)
from foretrace.errors import TraceError
from tests.support.measured.studies import FASTER, write_pair, write_study

if TYPE_CHECKING:
    from pathlib import Path


def recording(folder: Path, name: str = "a") -> Recording:
    """Return the recording *name* of the study in *folder*."""
    return add_digest(Recording(name, name, (str(folder / f"{name}.json"),)))


def test_a_glob_finds_jobs_and_ranks(tmp_path: Path) -> None:
    """Each file is a job, or all are ranks of one; repetitions count once."""
    study = write_study(tmp_path, [FASTER])
    text = f'scenarios = ["{FASTER}"]\n[[trace]]\npath = "*.json"\n[[trace]]\npath = "a.json"\n'
    study.write_text(text + '[[trace]]\npath = "*.json"\nranks = true\nmodel = "m"\n', "utf-8")
    found = list_items(read_study(study), tmp_path)

    assert [(i.recording.name, i.recording.model) for i in found] == [
        ("a", "a"),
        ("b", "b"),
        ("*.json", "m"),
    ]
    assert [len(i.recording.files) for i in found] == [1, 1, 2]


def test_what_is_missing_after_a_change_is_named(tmp_path: Path) -> None:
    """Not the recording before it, which is there."""
    study = write_study(tmp_path, [FASTER])
    pair = f'[[pair]]\nbefore = "a.json"\nafter = "none.json"\nscenario = "{FASTER}"\n'
    study.write_text(pair, "utf-8")
    (item,) = list_items(read_study(study), tmp_path)

    assert item.recording.problem == f"{tmp_path / 'none.json'}: there is no such file"


def test_an_absolute_glob_is_taken_as_it_is(tmp_path: Path) -> None:
    """A study may lie elsewhere than its recordings."""
    write_study(tmp_path / "here", [FASTER])
    study = tmp_path / "study.toml"
    study.write_text(
        f'scenarios = ["{FASTER}"]\n[[trace]]\npath = "{tmp_path}/here/*.json"\n', "utf-8"
    )

    assert [i.recording.name for i in list_items(read_study(study), tmp_path)] == ["a", "b"]


def test_keys_depend_on_all_that_decides(tmp_path: Path) -> None:
    """Content, name, what-if, truth and the files that a what-if names; nothing else."""
    write_study(tmp_path, [FASTER])
    own = tmp_path / "own.py"
    own.write_text("def own(graph):\n    return graph\n", "utf-8")
    base = Item(recording(tmp_path), (f"{own}:own",))
    keys = [
        add_key(base).key,
        add_key(replace(base, scenario=(FASTER,))).key,
        add_key(replace(base, after_ns=1.0)).key,
        add_key(replace(base, recording=recording(tmp_path, "b"))).key,
        add_key(replace(base, recording=replace(base.recording, digest="other"))).key,
    ]
    again = add_key(base).key
    own.write_text("def own(graph):\n    return graph  # changed\n", "utf-8")

    assert again == keys[0]
    assert len({*keys, add_key(base).key}) == 6


def test_a_calibration_beside_a_recording_is_part_of_it(tmp_path: Path) -> None:
    """It appears, and the digest is another."""
    write_study(tmp_path, [FASTER])
    before = recording(tmp_path)
    (tmp_path / "a.calibration.parquet").write_bytes(b"x")

    assert recording(tmp_path).digest != before.digest


def test_a_recording_is_found_again_or_not(tmp_path: Path) -> None:
    """The same, changed, gone."""
    write_study(tmp_path, [FASTER])
    known = recording(tmp_path)
    path = tmp_path / "a.json"

    assert check_unchanged(known) == known

    path.write_text("{}", "utf-8")
    with pytest.raises(TraceError, match="changed while the batch ran"):
        check_unchanged(known)
    path.unlink()
    with pytest.raises(TraceError, match="there is no such file"):
        check_unchanged(known)
    path.mkdir()
    with pytest.raises(TraceError, match=r"cannot be read \(Is a directory\)"):
        check_unchanged(known)


def test_pairs_of_a_folder_bring_their_what_if(tmp_path: Path) -> None:
    """Name, model and scenario stand in the pair; one may be chosen."""
    write_pair(tmp_path, "amp")
    write_pair(tmp_path, "tf32")
    first, second = list_pairs(tmp_path)

    assert (first.recording.name, first.recording.model) == ("cuda/small/amp", "small")
    assert first.scenario == (FASTER,)
    assert first.names == "faster_host"
    assert second.recording.pair == "tf32.pair.json"
    assert list_pairs(tmp_path, "tf32.pair.json") == [second]
    assert check_unchanged(first.recording) == first.recording


def test_a_broken_archive_is_one_item_with_its_problem(tmp_path: Path) -> None:
    """No archive, no such pair, no recording in it: each is said."""
    (tmp_path / "x.tar").write_bytes(b"no archive")
    (broken,) = list_pairs(tmp_path / "x.tar")
    (missing,) = list_pairs(tmp_path, "amp.pair.json")
    write_pair(tmp_path / "pairs")
    (tmp_path / "pairs" / "recording.json.xz").unlink()
    (incomplete,) = list_pairs(tmp_path / "pairs")

    assert "is no archive" in str(broken.recording.problem)
    assert str(missing.recording.problem).endswith("amp.pair.json is not in it")
    assert str(incomplete.recording.problem).endswith("recording.json.xz is not in it")


def test_what_could_not_be_made_is_an_item() -> None:
    """It keeps the scenario and the reason; asking twice is asking once."""
    item = make_failed("cpu/x/amp", "x", ("amp",), "no room")

    assert (item.scenario, item.recording.problem) == (("amp",), "no room")
    assert drop_repeats([item, *make_items(item.recording, [("amp",)])]) == [item]


def test_the_version_names_the_code() -> None:
    """A hash of all files follows the version of the package."""
    assert version().startswith("0.1.0+")
    assert len(version()) == len("0.1.0+") + 12
