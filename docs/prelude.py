"""The names that examples of the documentation use without defining them: a model, its optimizer, its data."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
loader = [(torch.randn(32, 64), torch.randint(0, 10, (32,))) for _ in range(60)]
