"""A GAN: two models, two optimizers. The discriminator sleeps 1 ms in each of three calls, the generator 2 ms."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 80,
    "counts": {"d": 240, "g": 80},
    "claims": [
        {"kind": "row", "module": "netD", "phase": "forward", "is": "d", "times": 3, "tolerance_ms": 0.5},
        {"kind": "row", "module": "netG", "phase": "forward", "is": "g", "tolerance_ms": 0.4},
    ],
}


class Generator(kit.Net):
    pass


class Discriminator(kit.Net):
    def forward(self, x):
        return super().forward(x).flatten()


netG = Generator(first=nn.Linear(32, 128), slow=kit.Slow(2, "g", width=128), last=nn.Linear(128, 64))
netD = Discriminator(first=nn.Linear(64, 128), slow=kit.Slow(1, "d", width=128), last=nn.Linear(128, 1))
criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4)
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4)
ones, zeros = torch.ones(32, device=kit.DEVICE), torch.zeros(32, device=kit.DEVICE)
for _ in range(80):
    kit.step()
    real = torch.randn(32, 64, device=kit.DEVICE)
    netD.zero_grad()
    criterion(netD(real), ones).backward()
    fake = netG(torch.randn(32, 32, device=kit.DEVICE))
    criterion(netD(fake.detach()), zeros).backward()
    optimizerD.step()
    netG.zero_grad()
    criterion(netD(fake), ones).backward()
    optimizerG.step()
kit.save(netG, netD)
