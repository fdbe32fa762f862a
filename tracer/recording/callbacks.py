"""Thin callbacks that record inside other people's training loops.

Each function imports its framework only when it is called and returns an object to pass to that
framework's trainer. As soon as enough is recorded, the object's ``trace`` is the recording.
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any

from foretrace.errors import ForetraceError, RecordError
from foretrace.tracer.recording.record import Session, recording

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.tracer.trace import Trace


class LoopRecorder:
    """Records a loop that calls `begin`, `step` and `end`, and never spoils it.

    The trace is made, and written, within the step that completes it: training may go on for days.
    A loop that ends too early leaves ``trace`` at ``None`` and a warning that says why.
    """

    def __init__(self, **settings: Any) -> None:
        """Record with the *settings* of `recording`."""
        self.settings = settings
        self.trace: Trace | None = None
        self._open = ExitStack()
        self._session: Session | None = None

    def begin(self, **job: Any) -> None:
        """Start recording; *job* gives model, optimizer, batch_size, loader as far as known."""
        self._session = self._open.enter_context(recording(**job, **self.settings))

    def step(self) -> None:
        """Say that one iteration is over."""
        if self._session is not None:
            self._session.step()
            if self._session.done:
                self.end()

    def end(self) -> None:
        """Stop recording and keep the trace."""
        session, self._session = self._session, None
        if session is None:
            return
        try:
            self._open.close()
        except ForetraceError as error:
            warnings.warn(f"nothing recorded: {error}", RuntimeWarning, stacklevel=2)
        else:
            self.trace = session.trace


def trainer_callback(*, out: str | Path | None = None, steps: int = 5, **settings: Any) -> Any:
    """Return a callback for Hugging Face's ``Trainer(callbacks=[...])``.

    A step is one optimizer step, gradient accumulation included. *out* is where the trace is
    written, *steps* the length of a profiled window; more settings as in `recording`.

    Raises
    ------
    RecordError
        The package transformers is not installed.
    """
    base = _import_base("transformers", "TrainerCallback")

    class ForetraceCallback(base):  # type: ignore[misc,valid-type]
        """Records the first few dozen steps."""

        def __init__(self) -> None:
            self.recorder = LoopRecorder(out=out, steps=steps, **settings)

        @property
        def trace(self) -> Trace | None:
            return self.recorder.trace

        def on_train_begin(self, args: Any, _state: Any, _control: Any, **known: Any) -> None:
            self.recorder.begin(
                model=known.get("model"),
                optimizer=known.get("optimizer"),
                batch_size=args.train_batch_size * args.gradient_accumulation_steps,
                loader=known.get("train_dataloader"),
            )

        def on_step_end(self, _args: Any, _state: Any, _control: Any, **_known: Any) -> None:
            self.recorder.step()

        def on_train_end(self, _args: Any, _state: Any, _control: Any, **_known: Any) -> None:
            self.recorder.end()

    return ForetraceCallback()


def lightning_callback(*, out: str | Path | None = None, steps: int = 5, **settings: Any) -> Any:
    """Return a callback for Lightning's ``Trainer(callbacks=[...])``.

    A step is one optimizer step, accumulated batches included; of several optimizers the first is
    described. Arguments as for `trainer_callback`.

    Raises
    ------
    RecordError
        Neither lightning nor pytorch_lightning is installed.
    """
    base = _import_base("lightning.pytorch", "Callback", "pytorch_lightning")

    class ForetraceCallback(base):  # type: ignore[misc,valid-type]
        """Records the first few dozen steps."""

        def __init__(self) -> None:
            self.recorder = LoopRecorder(out=out, steps=steps, **settings)
            self.updates = 0

        @property
        def trace(self) -> Trace | None:
            return self.recorder.trace

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.updates = trainer.global_step
            self.recorder.begin(model=pl_module, **_lightning_job(trainer))

        def on_train_batch_end(self, trainer: Any, *_arguments: Any, **_known: Any) -> None:
            if trainer.global_step > self.updates:
                self.updates = trainer.global_step
                self.recorder.step()

        def on_train_end(self, *_arguments: Any) -> None:
            self.recorder.end()

    return ForetraceCallback()


def _lightning_job(trainer: Any) -> dict[str, Any]:
    """Return what a Lightning *trainer* knows of its job; of several loaders at once, nothing."""
    loader = trainer.train_dataloader
    batch = getattr(loader, "batch_size", None)
    return {
        "optimizer": trainer.optimizers[0] if trainer.optimizers else None,
        "batch_size": batch and batch * trainer.accumulate_grad_batches,
        "loader": None if isinstance(loader, dict | list | tuple) else loader,
    }


def _import_base(package: str, name: str, other: str | None = None) -> Any:
    for candidate in filter(None, (package, other)):
        try:
            return getattr(import_module(candidate), name)
        except ModuleNotFoundError as error:
            if error.name is None or not candidate.startswith(error.name):
                raise RecordError(f"{candidate} cannot be imported: {error}") from error
    root = package.partition(".")[0]
    raise RecordError(f"the callback needs {root}: pip install {root}")
