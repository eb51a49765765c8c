"""A network of the test's own: a namespace for each rank, joined by a router that delays one rank's packets.

Each namespace has a TUN device whose packets this process reads and writes. It needs root and ``/dev/net/tun``.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any, Final

_CLONE_NEWNET: Final = 0x40000000
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN_NO_PI: Final = 0x1001
_MTU: Final = 1500
PREFIX: Final = "10.97.0."


class _Handle:
    """The part of the network that a rank's process needs."""

    def __init__(self, owner: int, files: list[int], delays: Any) -> None:
        self._owner, self._files, self._delays = owner, files, delays

    def join(self, rank: int) -> Callable[[float], None]:
        """Enter the rank's namespace; return the function that sets the delay of its packets, in seconds."""
        file = os.open(f"/proc/{self._owner}/fd/{self._files[rank]}", os.O_RDONLY)
        _check(ctypes.CDLL(None, use_errno=True).setns(file, _CLONE_NEWNET))
        os.close(file)
        os.environ["GLOO_SOCKET_IFNAME"] = "ap0"

        def set_delay(seconds: float) -> None:
            self._delays[rank] = seconds

        return set_delay


class Network:
    """The namespaces and the router."""

    def __init__(self, ranks: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._delays = get_context("spawn").Array("d", ranks, lock=False)
        self._namespaces: list[int] = []
        self._devices: list[int] = []
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            for rank in range(ranks):
                _check(libc.unshare(_CLONE_NEWNET))
                device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
                fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", b"ap0", _IFF_TUN_NO_PI))
                for command in ("link set lo up", f"addr add {self.address(rank)}/24 dev ap0", "link set ap0 up"):
                    subprocess.run(["ip", *command.split()], check=True)
                self._namespaces.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY))
                self._devices.append(device)
        finally:
            _check(libc.setns(home, _CLONE_NEWNET))
            os.close(home)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._route, daemon=True)
        self._thread.start()

    def address(self, rank: int) -> str:
        """Return the address of a rank."""
        return f"{PREFIX}{rank + 1}"

    def handle(self) -> _Handle:
        """Return the part for the process of a rank."""
        return _Handle(os.getpid(), self._namespaces, self._delays)

    def close(self) -> None:
        """Remove the network."""
        self._stop.set()
        self._thread.join()
        for file in (*self._devices, *self._namespaces):
            os.close(file)

    def _route(self) -> None:
        """Pass packets on, each after the delay of its sender and of its receiver."""
        waiting: list[tuple[float, int, int, bytes]] = []
        count = 0
        poller = select.poll()
        for device in self._devices:
            poller.register(device, select.POLLIN)
        while not self._stop.is_set():
            until = (waiting[0][0] - time.monotonic()) * 1000 if waiting else 100.0
            events = poller.poll(min(max(until, 0.0), 100.0))
            now = time.monotonic()
            for device, _ in events:
                sender = self._devices.index(device)
                while (packet := _read(device)) is not None:
                    if len(packet) < 20 or packet[0] >> 4 != 4 or not 1 <= packet[19] <= len(self._devices):
                        continue
                    receiver = packet[19] - 1
                    delay = self._delays[sender] + self._delays[receiver]
                    if delay or any(one[2] == receiver for one in waiting):
                        count += 1
                        heapq.heappush(waiting, (now + delay, count, receiver, packet))
                    else:
                        _write(self._devices[receiver], packet)
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, receiver, packet = heapq.heappop(waiting)
                _write(self._devices[receiver], packet)


def _read(device: int) -> bytes | None:
    try:
        return os.read(device, _MTU + 100)
    except BlockingIOError:
        return None


def _write(device: int, packet: bytes) -> None:
    with contextlib.suppress(OSError):  # TCP sends a lost packet again
        os.write(device, packet)


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
