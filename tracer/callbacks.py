"""Thin callbacks that record inside other people's training loops.

Each function imports its framework only when it is called and returns an object to pass to that
framework's trainer. When training ends, the object's ``trace`` is the recording.
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any

from foretrace.errors import RecordError
from foretrace.tracer.record import Session, recording

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.tracer.trace import Trace


class LoopRecorder:
    """Records a loop that calls `begin`, `step` and `end`, and never spoils it.

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

    def end(self) -> None:
        """Stop recording and keep the trace."""
        session, self._session = self._session, None
        if session is None:
            return
        try:
            self._open.close()
        except RecordError as error:
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
    base = _need("transformers", "TrainerCallback")

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

    A step is one batch. Arguments as for `trainer_callback`.

    Raises
    ------
    RecordError
        Neither lightning nor pytorch_lightning is installed.
    """
    base = _need("lightning.pytorch", "Callback", "pytorch_lightning")

    class ForetraceCallback(base):  # type: ignore[misc,valid-type]
        """Records the first few dozen batches."""

        def __init__(self) -> None:
            self.recorder = LoopRecorder(out=out, steps=steps, **settings)

        @property
        def trace(self) -> Trace | None:
            return self.recorder.trace

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            loader = trainer.train_dataloader
            self.recorder.begin(
                model=pl_module,
                optimizer=trainer.optimizers[0] if trainer.optimizers else None,
                batch_size=getattr(loader, "batch_size", None),
                loader=loader,
            )

        def on_train_batch_end(self, *_arguments: Any, **_known: Any) -> None:
            self.recorder.step()

        def on_train_end(self, *_arguments: Any) -> None:
            self.recorder.end()

    return ForetraceCallback()


def _need(package: str, name: str, other: str | None = None) -> Any:
    for candidate in filter(None, (package, other)):
        try:
            return getattr(import_module(candidate), name)
        except ModuleNotFoundError as error:
            if error.name is None or not candidate.startswith(error.name):
                raise RecordError(f"{candidate} cannot be imported: {error}") from error
    root = package.partition(".")[0]
    raise RecordError(f"the callback needs {root}: pip install {root}")
