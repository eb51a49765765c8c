"""Training loops that know nothing of autoprof, each with what a report of it should say: ``python loops.py NAME``."""

import sys
import time

import kit
import torch
from kit import Net, Slow, batch, last, program, row
from torch import nn
from torch.utils.checkpoint import checkpoint

LAUNCHES = 0.15
"""The tolerance of a step's length where recorded steps launch more slowly than others."""
GPU = {"gpu": True}
NO_BACKWARD = {"kind": "phase", "phase": "backward", "is": 0.0, "tolerance_ms": 0.6}
FORWARD_ALONE = [
    row("slow", "forward"),
    row("slow", "backward", 0.0),
    row("first", "forward", 0.0),
    row("last", "forward", 0.0),
    {"kind": "phase", "phase": "forward", "is": "slow"},
    NO_BACKWARD,
    {"kind": "phase", "phase": "other", "is": 0.0, "tolerance_ms": 0.6},
]
SYNCHRONIZED = [
    {"kind": "found", "rule": "sync-call", **GPU},
    {"kind": "line", "rule": "sync-call", "mark": "WAIT", **GPU},
    {"kind": "top", "rule": "sync-call", **GPU, "soft": True},
    row("slow", "forward"),
]
RECOMPUTED = [
    row("block", "forward"),
    row("block", "recompute"),
    row("block", "backward", 0.0, tolerance_ms=0.5, own_part=True),
    {"kind": "phase", "phase": "forward", "is": "block"},
    {"kind": "phase", "phase": "recompute", "is": "block"},
    NO_BACKWARD,
    {"kind": "top", "rule": "recompute"},
]
FINITE = {"kind": "truth", "key": "finite", "is": True}
MOVED = {"kind": "truth", "key": "moved", "is": True}


def linear():
    return nn.Linear(256, 256)


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), lr=0.01, **options)


@program(
    "01_forward_sleep", 120, *FORWARD_ALONE, {"kind": "names", "module": "slow", "soft": True}, counts={"slow": 120}
)
@program(
    "20_launch_blocking", 120, *FORWARD_ALONE, {"kind": "top", "rule": "debug-mode"},
    counts={"slow": 120}, env={"CUDA_LAUNCH_BLOCKING": "1"},
)  # fmt: skip
def forward_sleep():
    """A sleeping kernel of 5 ms in the forward of one module; the last program under CUDA_LAUNCH_BLOCKING=1."""
    model = Net(first=linear(), slow=Slow(5), last=last())
    kit.train(model, 120)
    kit.save(model)


class SlowGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        with kit.span("slow"):
            kit.sleep(5)
        return grad


class SlowBackward(nn.Linear):
    def forward(self, x):
        return torch.relu(SlowGradient.apply(super().forward(x)))


@program(
    "02_backward_sleep", 120,
    row("slow", "backward"), row("slow", "forward", 0.0), row("first", "backward", 0.0), row("last", "backward", 0.0),
    {"kind": "phase", "phase": "backward", "is": "slow", "tolerance_ms": 0.5},
    {"kind": "found", "rule": "backward-ratio", "module": "slow"},
    counts={"slow": 120},
)  # fmt: skip
def backward_sleep():
    """A sleeping kernel of 5 ms in the backward of one module, by an autograd.Function."""
    model = Net(first=linear(), slow=SlowBackward(256, 256), last=last())
    kit.train(model, 120)
    kit.save(model)


class Checkpointed(Net):
    def forward(self, x):
        x = self.head(x)
        x = checkpoint(self.block, x, use_reentrant=self.reentrant)
        return self.tail(x)


@program("03a_checkpoint", 100, *RECOMPUTED, arguments=(False,), counts={"block": 200})
@program("03b_checkpoint_reentrant", 100, *RECOMPUTED, arguments=(True,), counts={"block": 200})
def recompute(reentrant):
    """torch.utils.checkpoint of a module with a sleeping kernel of 4 ms, in both forms."""
    model = Checkpointed(head=linear(), block=Slow(4, "block"), tail=last())
    model.reentrant = reentrant
    kit.train(model, 100)
    kit.save(model)


class SlowSGD(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        with kit.span("optimizer"):
            kit.sleep(4)
        return super().step(closure)


@program(
    "04_optimizer_sleep", 120,
    {"kind": "phase", "phase": "optimizer", "is": "optimizer", "tolerance_ms": 0.4},
    row("Optimizer", "optimizer", "optimizer", tolerance_ms=0.4),
    {"kind": "phase", "phase": "forward", "is": 0.0, "tolerance_ms": 0.8},
    {"kind": "phase", "phase": "backward", "is": 0.0, "tolerance_ms": 0.8},
    {"kind": "top", "rule": "optimizer"},
    counts={"optimizer": 120},
)  # fmt: skip
def optimizer_sleep():
    """An optimizer with a sleeping kernel of 4 ms in its step()."""
    model = Net(first=linear(), relu=nn.ReLU(), last=last())
    kit.train(model, 120, optimizer=SlowSGD(model.parameters(), lr=0.01, momentum=0.9))
    kit.save(model)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.aside, self.direct = Slow(4.0, "aside"), Slow(2.5, "direct")
        self.side = None if kit.DRY else torch.cuda.Stream()

    def forward(self, x):
        with kit.span("both"):
            if self.side is None:
                return self.aside(x) + self.direct(x)
            current = torch.cuda.current_stream()
            self.side.wait_stream(current)
            x.record_stream(self.side)
            with torch.cuda.stream(self.side):
                a = self.aside(x)
            b = self.direct(x)
            current.wait_stream(self.side)
            a.record_stream(current)
            return a + b


@program(
    "05_side_stream", 120,
    row("both.aside", "forward", "aside", **GPU), row("both.direct", "forward", "direct"), row("both", "forward"),
    {"kind": "phase", "phase": "forward", "is": "both"},
    {"kind": "lane", "module": "both.aside", "phase": "forward", "main": False, **GPU},
    {"kind": "lane", "module": "both.direct", "phase": "forward", "main": True},
    counts={"aside": 120, "direct": 120},
)  # fmt: skip
def side_stream():
    """A module whose forward works on two streams at once: 4 ms on a side stream beside 2.5 ms on the main one."""
    model = Net(first=linear(), both=Both(), last=last())
    kit.train(model, 120)
    kit.save(model)


class Images(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((256,), float(index % 7)), index % 10

    def __getitems__(self, indices):
        time.sleep(0.005)  # LOAD
        return [self[index] for index in indices]


@program(
    "06a_data_bound", 120,
    {"kind": "top", "rule": "data-wait"},
    {"kind": "line", "rule": "data-wait", "mark": "LOAD", "soft": True},
    row("slow", "forward"),
    # the device computes for 3 ms; the rest of the step it waits, nearly all of it for the batch
    {"kind": "phase_between", "phase": "data", "low": 1.2, "high": 5.8},
    arguments=(3, 120),
)  # fmt: skip
@program(
    "06b_device_bound", 60,
    {"kind": "not_found", "rule": "data-wait", **GPU},
    row("slow", "forward"),
    {"kind": "phase", "phase": "data", "is": 0.0, "tolerance_ms": 0.5, **GPU},
    arguments=(20, 60),
)  # fmt: skip
def loader(ms, steps):
    """A loader of 5 ms a batch before a step of 3 ms on the device, which waits for its batch, or of 20 ms."""
    model = Net(slow=Slow(ms), last=last())
    kit.train(model, kit.loader(Images(steps * 32), 32))
    kit.save(model)


def small_layers():
    return nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(30)])


@program("07_item", 120, *SYNCHRONIZED, arguments=(True,), step_tolerance=LAUNCHES)
@program("17_synchronize", 120, *SYNCHRONIZED, arguments=(False,), step_tolerance=LAUNCHES)
def waiting(reads):
    """.item() or torch.cuda.synchronize() behind a kernel of 5 ms; then the device waits for many small layers."""

    def wait(number, loss):
        loss.item() if reads or kit.DRY else torch.cuda.synchronize()  # WAIT

    model = Net(layers=small_layers(), slow=Slow(5, width=64), last=last(64))
    kit.train(model, [batch(width=64)] * 120, end=wait)
    kit.save(model)


COPIED = [{"kind": "phase", "phase": "h2d", "is": "copy", **GPU}, row("slow", "forward")]


@program(
    "08a_copy_pageable", 60, *COPIED, {"kind": "top", "rule": "h2d-copy", **GPU},
    arguments=(False,), counts={"copy": 60, "slow": 60},
)  # fmt: skip
@program("08b_copy_pinned", 60, *COPIED, arguments=(True,), counts={"copy": 60, "slow": 60})
def copy_to_device(pinned):
    """A copy of 64 MB to the device in each step, pageable or pinned and non-blocking, and a kernel of 3 ms."""

    def batches():
        hosts = [torch.ones(64, 262144, pin_memory=pinned and not kit.DRY) for _ in range(2)]  # 64 MiB each
        labels = torch.randint(0, 10, (64,), device=kit.DEVICE)
        for i in range(60):
            with kit.span("copy"):
                inputs = hosts[i % 2].to(kit.DEVICE, non_blocking=pinned)
            yield inputs[:, :256], labels

    model = Net(slow=Slow(3), last=last())
    kit.train(model, batches())
    kit.save(model)


@program(
    "09_launch_bound", 150,
    {"kind": "top", "rule": "launch-bound", **GPU},
    {"kind": "not_found", "rule": "sync-call"},
    {"kind": "not_found", "rule": "data-wait"},
    step_tolerance=2 * LAUNCHES,
)  # fmt: skip
def launch_bound():
    """40 tiny layers: the device waits for launches."""
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(40)])
    model = Net(layers=layers, last=last(16))
    kit.train(model, [batch(8, 16)] * 150, optimizer=sgd(model, momentum=0.9))
    kit.save(model)


@program(
    "10_accumulation", 60,
    {"kind": "micro_steps", "is": 4},
    row("slow", "forward", times=4, tolerance_ms=0.4),
    {"kind": "calls", "module": "slow", "phase": "forward", "is": 4},
    counts={"slow": 240},
)  # fmt: skip
def accumulation():
    """Gradient accumulation: four micro-batches of 1 ms before each step of the optimizer."""
    model = Net(slow=Slow(1), last=last())
    optimizer = sgd(model)
    for i, (inputs, labels) in enumerate(kit.loader(240 * 16, 16)):
        if i % 4 == 0:
            kit.step()
        inputs, labels = inputs.to(kit.DEVICE, non_blocking=True), labels.to(kit.DEVICE, non_blocking=True)
        loss = nn.functional.cross_entropy(model(inputs), labels) / 4
        loss.backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    kit.save(model)


class Generator(Net):
    pass


class Discriminator(Net):
    def forward(self, x):
        return super().forward(x).flatten()


@program(
    "11_gan", 80,
    row("netD", "forward", "d", times=3, tolerance_ms=0.5),
    row("netG", "forward", "g", tolerance_ms=0.4),
    counts={"d": 240, "g": 80},
)  # fmt: skip
def gan():
    """Two models, two optimizers. The discriminator sleeps 1 ms in each of three calls, the generator 2 ms."""
    netG = Generator(first=nn.Linear(32, 128), slow=Slow(2, "g", width=128), last=nn.Linear(128, 64))
    netD = Discriminator(first=nn.Linear(64, 128), slow=Slow(1, "d", width=128), last=nn.Linear(128, 1))
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


@program(
    "12_amp_skipped", [99, 100],  # updates, or iterations of the loop
    row("slow", "forward"), {"kind": "truth", "key": "skipped", "is": 1}, {"kind": "micro_steps", "is": 1},
    step_tolerance=LAUNCHES, bare=1, counts={"slow": 100},
)  # fmt: skip
def amp_skipped():
    """Autocast to bfloat16 with a GradScaler; the gradients of iteration 40 are infinite, so it skips its step."""
    model = Net(slow=Slow(2), last=last())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(kit.DEVICE, init_scale=1024.0)
    for i in range(100):
        kit.step()
        inputs, labels = batch()
        with torch.autocast(kit.DEVICE, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(inputs), labels)
        if i == 40:
            loss = loss * float("inf")
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    kit.save(model, skipped=int(scaler.get_scale() == 512.0))


class SlowLoss(nn.Module):
    def forward(self, outputs, labels):
        with kit.span("loss"):
            kit.sleep(4)
        return nn.functional.cross_entropy(outputs, labels)


def compilable():
    return nn.Sequential(linear(), nn.GELU(), linear(), nn.GELU(), last()).to(kit.DEVICE)


@program(
    "13_compile", 80,
    row("Loss/SlowLoss", "forward", "loss"),
    {"kind": "phase", "phase": "backward", "is": 0.0, "tolerance_ms": 1.0},
    {"kind": "not_found", "rule": "recompile"},
    bare=1, limit_s=45, counts={"loss": 80},
)  # fmt: skip
def compiled():
    """torch.compile(model), and a sleeping kernel of 4 ms in a loss module outside of the compiled part."""
    model = compilable()
    kit.train(torch.compile(model, backend="aot_eager" if kit.DRY else "inductor"), 80, criterion=SlowLoss())
    kit.save(model)


@program("14a_reduce_overhead", 100, FINITE, step_tolerance=2 * LAUNCHES, bare=1, limit_s=45)
def reduce_overhead():
    """torch.compile(model, mode="reduce-overhead"): CUDA graphs made by inductor."""
    model = compilable()
    run = torch.compile(model, backend="aot_eager") if kit.DRY else torch.compile(model, mode="reduce-overhead")
    kit.save(model, losses=kit.train(run, (batch() for _ in range(100))))


# A replay calls no optimizer: of the first program only the eager steps before the capture can be seen.
@program("14b_graph_step", [3, 4, 100, 101, 103, 104], FINITE, MOVED, arguments=(True,), steps_soft=True, bare=1)
@program("14c_graph_replayed", [*range(99, 105)], FINITE, MOVED, arguments=(False,), bare=1)
def graph(whole):
    """A torch.cuda.CUDAGraph captured by hand and replayed: the whole step, or all of it but the optimizer's."""
    model = Net(slow=Slow(3, name=None), last=last())
    optimizer = sgd(model, momentum=0.9)
    static_inputs, static_labels = batch()
    loss = None

    def passes():
        nonlocal loss
        loss = nn.functional.cross_entropy(model(static_inputs), static_labels)
        loss.backward()

    def update():
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)  # so that backward makes the gradients in the graph's own memory

    def step():
        passes()
        update()

    replay = kit.captured(step, step if whole else passes)
    before, losses = kit.checksum(model), []
    for inputs, labels in (batch() for _ in range(100)) if whole else kit.loader(100 * 64, 64):
        kit.step()
        static_inputs.copy_(inputs, non_blocking=True)
        static_labels.copy_(labels, non_blocking=True)
        replay()
        if not whole and not kit.DRY:
            optimizer.step()
        losses.append(loss.detach().clone())
    kit.save(model, losses=torch.stack(losses), moved=before != kit.checksum(model))


class Holder(nn.Module):
    """Each sine keeps its input of 64 MiB for backward."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4096))

    def forward(self, x):
        x = x * self.scale
        for _ in range(8):
            x = torch.sin(x)
        return x


@program(
    "15a_memory", 60,
    {"kind": "truth_between", "key": "held_mib", "low": 511, "high": 640, **GPU},
    {"kind": "peak", **GPU},
    {"kind": "activations", **GPU},
    {"kind": "memory_part", "part": "parameter_bytes", "key": "parameter_bytes"},
    {"kind": "memory_part", "part": "gradient_bytes", "key": "parameter_bytes"},
    {"kind": "memory_part", "part": "state_bytes", "key": "state_bytes"},
)  # fmt: skip
def memory():
    """A module whose eight layers hold 512 MiB of activations."""

    def allocated():
        return 0 if kit.DRY else torch.cuda.memory_allocated()

    model = Net(holder=Holder(), last=last(4096))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs, labels = batch(64 if kit.DRY else 4096, 4096)  # 64 MiB
    for _ in range(60):
        kit.step()
        begin = allocated()
        outputs = model(inputs)
        held = allocated() - begin
        loss = nn.functional.cross_entropy(outputs, labels)
        del outputs
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    parameters = sum(p.nbytes for p in model.parameters())
    state = sum(v.nbytes for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor))
    kit.save(model, held_mib=held / 2**20, parameter_bytes=parameters, state_bytes=state)


class Wide(nn.Module):
    def forward(self, x):
        if x.shape[0] > 64:
            if kit.DRY:
                raise torch.OutOfMemoryError("no memory")
            x = x.repeat(1, 2**24) * 2.0  # 2 TB
        return x * 1.5


@program(
    "15b_out_of_memory", [59, 60],  # updates, or iterations of the loop
    {"kind": "truth", "key": "failures", "is": 1},
    row("slow", "forward"),
    {"kind": "phase", "phase": "forward", "is": "slow", "tolerance_ms": 0.5},
    {"kind": "found", "rule": "memory-pressure", **GPU},
    {"kind": "peak", **GPU},
    counts={"slow": 60},
)  # fmt: skip
def out_of_memory():
    """An allocation fails at iteration 30; the program catches it and goes on with a smaller batch."""
    model = Net(slow=Slow(3), wide=Wide(), last=last())
    optimizer = sgd(model)
    rows, failures = 64, 0
    for i in range(60):
        kit.step()
        if i == 30:
            rows = 128
        inputs, labels = batch(rows)
        try:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
        except torch.OutOfMemoryError:
            failures += 1
            rows = 32
        optimizer.zero_grad()
    kit.save(model, failures=failures)


@program(
    "16_evaluation", 100,
    row("slow", "forward"),
    {"kind": "excluded", "name": "validation", "is": "evaluation"},
    {"kind": "calls", "module": "slow", "phase": "forward", "is": 1},
    counts={"slow": 150},
)  # fmt: skip
def evaluation():
    """An evaluation of ten batches after each twentieth training step."""

    def evaluate(number, _loss):
        if number % 20 != 19:
            return
        with kit.host_span("evaluation"):
            model.eval()
            right = torch.zeros((), device=kit.DEVICE)
            with torch.no_grad():
                for _ in range(10):
                    right += (model(inputs).argmax(1) == labels).sum()
            right.item()
            model.train()

    model = Net(slow=Slow(2), last=last())
    inputs, labels = batch()
    kit.train(model, 100, end=evaluate)
    kit.save(model)


class SlowHost(nn.Linear):
    def forward(self, x):
        with kit.host_span("slow"):
            time.sleep(0.005)  # SLEEP
        return torch.relu(super().forward(x))


@program(
    "18_host_sleep", 120,
    row("slow", "forward", host=True), row("first", "forward", 0.0),
    {"kind": "host_bound", "module": "slow", "phase": "forward", "low": 0.9, **GPU},
    {"kind": "found_any", "rules": ["launch-bound", "hot-module"], **GPU},
    {"kind": "names", "module": "slow"},
    {"kind": "line", "rule": None, "mark": "SLEEP", "soft": True},
    step_tolerance=0.1, host_counts={"slow": 120},
)  # fmt: skip
def host_sleep():
    """time.sleep of 5 ms in the forward of a module, while the device has nothing to do."""
    model = Net(first=linear(), slow=SlowHost(256, 256), last=last())
    kit.train(model, 120)
    kit.save(model)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(512, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(128, 512)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens)))


@program("19_bits", 100, FINITE, step_tolerance=2 * LAUNCHES, bare=2, env={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
def bits():
    """A small transformer with dropout, autocast and fused AdamW: the history of losses must keep every bit."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    model = Transformer().to(kit.DEVICE)
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


if __name__ == "__main__":
    kit.begin()
    kit.PROGRAMS[sys.argv[1]].run()
