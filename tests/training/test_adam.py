"""Adam, against torch's own."""

import pytest
import torch

from graphveil.core.clipping.dpsgd import Adam


def loss(weight: torch.Tensor) -> torch.Tensor:
    return (weight.sin() * torch.arange(1.0, 6.0)).sum()


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_equals_the_optimizer_of_torch(weight_decay):
    ours, theirs = (torch.nn.Parameter(torch.linspace(-1, 1, 5)) for _ in range(2))
    adam = Adam([ours], weight_decay=weight_decay)
    reference = torch.optim.Adam([theirs], lr=0.01, weight_decay=weight_decay)
    for _ in range(30):
        adam.zero_grad()
        reference.zero_grad()
        loss(ours).backward()
        loss(theirs).backward()
        adam.step(rate=0.01)
        reference.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


def test_a_parameter_without_a_gradient_stays():
    used, unused = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    adam = Adam([used, unused])
    used.sum().backward()
    adam.step(rate=0.1)
    assert torch.equal(unused, torch.ones(2))
    assert not torch.equal(used, torch.ones(2))


def test_state_continues_bit_for_bit():
    whole, parted = (torch.nn.Parameter(torch.linspace(-1, 1, 5)) for _ in range(2))

    def run(weight: torch.nn.Parameter, adam: Adam, steps: int) -> None:
        for _ in range(steps):
            adam.zero_grad()
            loss(weight).backward()
            adam.step(rate=0.01)

    run(whole, Adam([whole]), 10)
    first = Adam([parted])
    run(parted, first, 4)
    second = Adam([parted])
    second.restore(first.state())
    run(parted, second, 6)
    assert torch.equal(whole, parted)
