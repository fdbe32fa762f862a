"""Closed forms of the loss with parameter servers: Cynthia's and spotDNN's."""

from __future__ import annotations

import pytest

from foretrace.errors import RefusedError
from foretrace.job.convergence.staleness import CynthiaLoss, SpotDnnLoss

RESNET_110 = SpotDnnLoss(876.5, -0.2, 2507.6, 0.5)
"""Constants in spotDNN's code."""


def test_workers_that_do_not_wait_take_the_root_of_their_number_as_many_steps() -> None:
    """Nine at their own pace need three times the steps of nine in step."""
    form = CynthiaLoss(b0=300.0, b1=0.5)

    assert form.at(600) == 1.0
    assert form.steps_to(1.0, workers=9) == 600
    assert form.steps_to(1.0, workers=9, in_step=False) == 1800
    assert form.at(1800, workers=9, in_step=False) == 1.0


def test_spotdnn_says_14475_steps() -> None:
    """Four workers with batches of 1,024 to a loss of 0.8, by the constants of its code."""
    steps = RESNET_110.steps_to(0.8, workers=4, batch=1024)

    assert round(steps, 1) == 14475.5
    assert RESNET_110.at(steps, workers=4, batch=1024) == pytest.approx(0.8)


def test_a_loss_from_before_the_beginning_takes_no_steps() -> None:
    """The form would say a negative number."""
    assert RESNET_110.steps_to(50.0, workers=1, batch=1024) == 0.0


def test_a_loss_below_the_asymptote_is_refused() -> None:
    """There the published inverse gives a negative number of steps."""
    with pytest.raises(RefusedError, match=r"0\.5 is never reached: this form levels off at 0\.5"):
        RESNET_110.steps_to(0.5, workers=4, batch=1024)
    with pytest.raises(RefusedError, match="never reached"):
        CynthiaLoss(1.0, 0.5).steps_to(float("nan"))


def test_a_batch_beyond_the_fit_is_refused() -> None:
    """Its scale becomes negative from 12,538 samples on."""
    with pytest.raises(RefusedError, match="a batch of 16384 is out of the range of this loss"):
        RESNET_110.steps_to(0.8, workers=4, batch=16384)
