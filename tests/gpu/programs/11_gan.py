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


class Sleep(nn.Module):
    def __init__(self, name, ms):
        super().__init__()
        self.name, self.ms = name, ms

    def forward(self, x):
        with kit.span(self.name):
            kit.sleep(self.ms)
        return x * 1.0


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), Sleep("g", 2), nn.Linear(128, 64))

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), Sleep("d", 1), nn.Linear(128, 1))

    def forward(self, x):
        return self.main(x).flatten()


kit.calibrate()
torch.manual_seed(0)
netG, netD = Generator().to(kit.DEVICE), Discriminator().to(kit.DEVICE)
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
kit.save([netG, netD])
