"""Profile an ordinary training loop with one line, and read the report at the end.

python examples/first_run.py
"""

import torch
from torch import nn

import autoprof

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(64, 10),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
images = torch.utils.data.TensorDataset(torch.randn(512, 3, 32, 32), torch.randint(0, 10, (512,)))
loader = torch.utils.data.DataLoader(images, batch_size=16, shuffle=True)
criterion = nn.CrossEntropyLoss()

session = autoprof.instrument(model, optimizer=optimizer)  # the one line; the report is printed when the program ends

for _epoch in range(2):
    for batch, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(batch), labels)
        loss.backward()
        optimizer.step()
