"""Callbacks for other people's training loops.

The frameworks are not among what the tests install; their callback base classes are empty, so an
empty class stands in for them here and the loop below calls what the frameworks call.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from foretrace.errors import RecordError
from foretrace.tracer.callbacks import LoopRecorder, lightning_callback, trainer_callback

torch = pytest.importorskip("torch")

SHORT: dict[str, Any] = {"steps": 1, "warmup": 1, "windows": 1}
NEEDED = 18


@pytest.fixture
def parts() -> Any:
    """Return a tiny model, its optimizer, and a function that trains it for one step."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train() -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    return SimpleNamespace(model=model, optimizer=optimizer, train=train)


def stand_in(monkeypatch: pytest.MonkeyPatch, package: str, name: str) -> None:
    """Let *package* be importable, with an empty class *name*."""
    module = ModuleType(package)
    setattr(module, name, type(name, (), {}))
    if "." in package:
        monkeypatch.setitem(sys.modules, package.partition(".")[0], ModuleType("root"))
    monkeypatch.setitem(sys.modules, package, module)


def test_a_hugging_face_trainer_is_recorded(monkeypatch: pytest.MonkeyPatch, parts: Any) -> None:
    """A step is one optimizer step: the batch counts all its accumulated parts."""
    stand_in(monkeypatch, "transformers", "TrainerCallback")
    callback = trainer_callback(**SHORT)
    arguments = SimpleNamespace(train_batch_size=2, gradient_accumulation_steps=3)
    callback.on_train_begin(arguments, None, None, model=parts.model, optimizer=parts.optimizer)
    for _ in range(NEEDED):
        parts.train()
        callback.on_step_end(arguments, None, None)
    callback.on_train_end(arguments, None, None)
    assert callback.trace.meta.batch_size == 6
    assert callback.trace.meta.optimizer["name"] == "SGD"


def test_a_lightning_trainer_is_recorded(monkeypatch: pytest.MonkeyPatch, parts: Any) -> None:
    """A step is one batch."""
    stand_in(monkeypatch, "lightning.pytorch", "Callback")
    callback = lightning_callback(**SHORT)
    loader = torch.utils.data.DataLoader([1, 2, 3, 4], batch_size=2)
    trainer = SimpleNamespace(train_dataloader=loader, optimizers=[parts.optimizer])
    callback.on_train_start(trainer, parts.model)
    for batch in range(NEEDED):
        parts.train()
        callback.on_train_batch_end(trainer, parts.model, None, None, batch)
    callback.on_train_end(trainer, parts.model)
    assert callback.trace.meta.batch_size == 2
    assert callback.trace.meta.loader["workers"] == 0


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


@pytest.mark.parametrize(
    ("make", "package"), [(trainer_callback, "transformers"), (lightning_callback, "lightning")]
)
def test_an_absent_framework_is_named(make: Any, package: str) -> None:
    """The text says what to install."""
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed here")
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
