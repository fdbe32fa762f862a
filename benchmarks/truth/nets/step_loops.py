"""Loops whose steps are more than one loss: adversaries, and an environment in Python."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from benchmarks.truth.nets.layers import mlp
from benchmarks.truth.training import Parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.truth.spec import Sizes

LATENT = 64
ROUNDS = 3
DISCOUNT = 0.99


def _gan(sizes: Sizes) -> Parts:
    """Train a generator and a discriminator in turns, each with an optimizer."""
    width, edge = sizes.width, sizes.length // 4
    generator = nn.Sequential(
        nn.Linear(LATENT, 2 * width * edge**2),
        nn.Unflatten(1, (2 * width, edge, edge)),
        *(nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU()),
        *(nn.ConvTranspose2d(width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU()),
        *(nn.Conv2d(width, 3, 3, padding=1), nn.Tanh()),
    )
    judge = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2))
    for _ in range(sizes.depth):
        judge.append(nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.LeakyReLU(0.2)))
    judge.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1)])

    def step(optimizers: list[Any], fetch: Callable[[], Any], autocast: Callable[[], Any]) -> None:
        (real,) = fetch()
        with autocast():
            made = generator(torch.randn(len(real), LATENT))
            loss = F.softplus(-judge(real)).mean() + F.softplus(judge(made.detach())).mean()
        optimizers[1].zero_grad()
        loss.backward()
        optimizers[1].step()
        with autocast():
            fooled = F.softplus(-judge(made)).mean()
        optimizers[0].zero_grad()
        fooled.backward()
        optimizers[0].step()

    return Parts(
        nn.ModuleDict({"generator": generator, "judge": judge}),
        _no_loss,
        lambda n: (torch.rand(n, 3, sizes.length, sizes.length) * 2 - 1,),
        groups=[(list(generator.parameters()), ""), (list(judge.parameters()), "")],
        step=step,
    )


class Pole:
    """A pole on a cart, in plain Python."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.state = [0.0] * 4

    def move(self, right: int) -> tuple[list[float], float]:
        """Push once; return where everything is, and the reward."""
        place, speed, angle, turning = self.state
        force = (10.0 if right else -10.0) + self.chance.gauss(0, 1)
        for _ in range(4):
            turning += 0.005 * (9.8 * angle - force / 1.1)
            speed += 0.005 * (force - 0.05 * turning)
            angle, place = angle + 0.005 * turning, place + 0.005 * speed
        self.state = [place, speed, angle, turning]
        fell = abs(angle) > 0.3 or abs(place) > 2.4  # noqa: PLR2004 - where episodes end
        if fell:
            self.state = [self.chance.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state, 0.0 if fell else 1.0


def _reinforced(sizes: Sizes) -> Parts:
    """Plays a while in many environments, then learns from it in a few rounds, as PPO does."""
    body = mlp(4, *([sizes.width] * sizes.depth), sizes.width)
    model = nn.ModuleDict(
        {"body": body, "policy": nn.Linear(sizes.width, 2), "value": nn.Linear(sizes.width, 1)}
    )
    worlds: list[Pole] = []

    def ask(states: Any) -> tuple[Any, Any]:
        x = F.relu(model["body"](states))
        return model["policy"](x), model["value"](x).squeeze(-1)

    def play(many: int) -> tuple[Any, ...]:
        while len(worlds) < many:
            worlds.append(Pole(len(worlds)))
        seen, done, rewards = [], [], []
        states = torch.tensor([world.state for world in worlds[:many]])
        for _ in range(sizes.length):
            with torch.no_grad():
                actions = torch.distributions.Categorical(logits=ask(states)[0]).sample()
            moves = [w.move(a) for w, a in zip(worlds, actions.tolist(), strict=False)]
            seen.append(states)
            done.append(actions)
            rewards.append(torch.tensor([reward for _, reward in moves]))
            states = torch.tensor([state for state, _ in moves])
        gained: list[Any] = []
        total = torch.zeros(many)
        for reward in reversed(rewards):
            total = reward + DISCOUNT * total * (reward > 0)
            gained.insert(0, total)
        return torch.cat(seen), torch.cat(done), torch.cat(gained)

    def step(optimizers: list[Any], fetch: Callable[[], Any], autocast: Callable[[], Any]) -> None:
        states, actions, gained = play(len(fetch()[0]))
        with torch.no_grad():
            policy, value = ask(states)
            before = policy.log_softmax(1).gather(1, actions[:, None]).squeeze(1)
            better = gained - value
        for _ in range(ROUNDS):
            with autocast():
                policy, value = ask(states)
                now = policy.log_softmax(1).gather(1, actions[:, None]).squeeze(1)
                ratio = (now - before).exp()
                bound = torch.minimum(ratio * better, ratio.clamp(0.8, 1.2) * better)
                loss = F.mse_loss(value.float(), gained) - bound.mean()
            optimizers[0].zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizers[0].step()

    return Parts(model, _no_loss, lambda n: (torch.arange(n),), step=step)


def _no_loss(_batch: object) -> Any:
    raise NotImplementedError("this loop has a step of its own")


LOOPS: dict[str, Callable[[Sizes], Parts]] = {"gan": _gan, "reinforced": _reinforced}
