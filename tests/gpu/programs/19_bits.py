"""A small transformer with dropout, autocast and fused AdamW: the history of losses must keep every bit."""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 100,
    "step_tolerance": 0.3,  # recorded steps launch more slowly than others
    "bare": 2,
    "claims": [{"kind": "truth", "key": "finite", "is": True}],
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(512, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(128, 512)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens)))


torch.use_deterministic_algorithms(True, warn_only=True)
model = Model().to(kit.DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
losses = []
for _ in range(100):
    kit.step()
    tokens = torch.randint(0, 512, (8, 33), device=kit.DEVICE)
    with torch.autocast(kit.DEVICE, dtype=torch.bfloat16):
        outputs = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(outputs.flatten(0, 1).float(), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.detach())
kit.save(model, losses=torch.stack(losses))
