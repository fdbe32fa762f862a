"""Callbacks for other people's training loops, inside the real trainers of both frameworks."""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import RecordError
from foretrace.tracer.recording.callbacks import (
    LoopRecorder,
    _lightning_job,
    lightning_callback,
    trainer_callback,
)

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch")

SHORT: dict[str, Any] = {"steps": 1, "warmup": 1, "windows": 1}
NEEDED = 19
"""Steps of a recording with these settings."""


class Examples:
    """Inputs of ones and two classes, as dictionaries."""

    def __len__(self) -> int:
        """Return enough for a recording of two batches per step."""
        return 400

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return example *index*."""
        return {"inputs": torch.ones(4), "labels": torch.tensor(index % 2)}


class Network(torch.nn.Module):  # type: ignore[name-defined]
    """A linear layer that returns its loss, as the models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, inputs: Any, labels: Any) -> dict[str, Any]:
        """Return the loss."""
        return {"loss": torch.nn.functional.cross_entropy(self.layer(inputs), labels)}


@pytest.mark.filterwarnings("ignore")  # of the framework itself
def test_a_hugging_face_trainer_is_recorded(tmp_path: Path) -> None:
    """A step is one optimizer step: its batch counts all accumulated parts."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    callback = trainer_callback(out=tmp_path / "trace.parquet", **SHORT)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=NEEDED + 2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=3,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    transformers.Trainer(
        model=Network(), args=arguments, train_dataset=Examples(), callbacks=[callback]
    ).train()
    meta = callback.trace.meta

    assert (meta.batch_size, meta.optimizer["tensors"], meta.loader["workers"]) == (6, 2, 0)
    assert "##layer" in set(callback.trace.events["name"])
    assert (tmp_path / "trace.parquet").is_file()


@pytest.mark.filterwarnings("ignore")  # of the framework itself
def test_a_lightning_trainer_is_recorded() -> None:
    """A step is one optimizer step: its batch counts all accumulated parts."""
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network = Network()

        def training_step(self, batch: dict[str, Any], _index: int) -> Any:
            return self.network(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callback = lightning_callback(**SHORT)
    trainer = lightning.Trainer(
        max_steps=NEEDED + 2,
        accumulate_grad_batches=3,
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(Examples(), batch_size=2))
    meta = callback.trace.meta

    assert (meta.batch_size, meta.optimizer["name"], meta.loader["workers"]) == (6, "SGD", 0)
    assert "##network.layer" in set(callback.trace.events["name"])


def test_several_loaders_at_once_are_no_loader() -> None:
    """Lightning trains on lists of loaders, too; fetching from such a list would say nothing."""
    trainer = SimpleNamespace(train_dataloader=[1, 2], optimizers=[], accumulate_grad_batches=1)

    assert _lightning_job(trainer) == {"optimizer": None, "batch_size": None, "loader": None}


def test_the_trace_is_there_before_training_ends() -> None:
    """Training may go on for days, or be killed, after what is recorded."""
    recorder = LoopRecorder(**SHORT)
    recorder.begin(batch_size=1)
    for _ in range(NEEDED - 1):
        recorder.step()

    assert recorder.trace is None
    recorder.step()
    assert recorder.trace is not None


def test_training_that_ends_early_is_not_spoiled() -> None:
    """Too few steps give a warning and no trace; steps outside training do nothing."""
    recorder = LoopRecorder(**SHORT)
    recorder.step()
    recorder.end()
    recorder.begin(batch_size=1)
    recorder.step()
    with pytest.warns(RuntimeWarning, match="nothing recorded: .* run at least 19 steps"):
        recorder.end()
    assert recorder.trace is None


def test_a_disk_that_fills_up_does_not_spoil_training(tmp_path: Path) -> None:
    """Where the trace cannot be written any more, training goes on with a warning."""
    folder = tmp_path / "folder"
    folder.mkdir()
    recorder = LoopRecorder(out=folder / "trace.parquet", **SHORT)
    recorder.begin(batch_size=1)
    folder.rmdir()
    for _ in range(NEEDED - 1):
        recorder.step()

    with pytest.warns(RuntimeWarning, match=r"nothing recorded: .*trace.parquet: cannot write"):
        recorder.step()


@pytest.mark.parametrize(
    ("make", "package"), [(trainer_callback, "transformers"), (lightning_callback, "lightning")]
)
def test_an_absent_framework_is_named(
    make: Any, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text says what to install."""
    monkeypatch.setattr(sys, "path", [])
    for name in [n for n in sys.modules if n.partition(".")[0] in (package, "pytorch_lightning")]:
        monkeypatch.delitem(sys.modules, name)
    importlib.invalidate_caches()
    with pytest.raises(RecordError, match=f"the callback needs {package}: pip install {package}"):
        make()


def test_a_broken_framework_is_told_from_an_absent_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """When something that it imports is missing, that is what the text names."""
    (tmp_path / "transformers.py").write_text("import absent_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "transformers", raising=False)
    with pytest.raises(RecordError, match="No module named 'absent_dependency'"):
        trainer_callback()
