"""Where the steps go: the options of each sink."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from .part import Part


class ConsoleOptions(Part):
    """The live table on the terminal."""

    top: int = Field(default=5, ge=1, strict=True)
    """How many names are shown, the longest first."""
    every: int = Field(default=10, ge=1, strict=True)
    """Redraw at most each Nth step; where there is no terminal, print one plain line each Nth step."""
    interval_s: float = Field(default=0.5, ge=0, strict=True, allow_inf_nan=False)
    """The least time between two redraws, in seconds."""


class LogOptions(Part):
    """The readable file `timing.log`."""

    every: int = Field(default=1, ge=1, strict=True)
    """Write each Nth recorded step."""
    flush_s: float = Field(default=5.0, ge=0, strict=True, allow_inf_nan=False)
    """The longest time that a line may wait before it reaches the file, in seconds."""
    flush_every: int | None = Field(default=None, ge=1, strict=True)
    """Flush after each Nth written step as well; `null` leaves it to `flush_s`."""


class JsonlOptions(Part):
    """The records `steps.jsonl`, one JSON object a step."""

    every: int = Field(default=1, ge=1, strict=True)
    """Write each Nth recorded step."""
    flush_s: float = Field(default=5.0, ge=0, strict=True, allow_inf_nan=False)
    """The longest time that a record may wait before it reaches the file, in seconds."""


class MemoryPlotOptions(Part):
    """The picture `memory.png`."""

    redraw_s: float | None = Field(default=60.0, ge=5, strict=True, allow_inf_nan=False)
    """The time between two drawings, in seconds; `null` draws only at the end."""


class CsvOptions(Part):
    """The table `steps.csv` or `spans.csv`."""

    per: Literal["step", "span"] = "step"
    """What a row is."""
    every: int = Field(default=1, ge=1, strict=True)
    """Write each Nth recorded step."""
    flush_s: float = Field(default=5.0, ge=0, strict=True, allow_inf_nan=False)
    """The longest time that a row may wait before it reaches the file, in seconds."""


class SpeedscopeOptions(Part):
    """The file `trace.speedscope.json`, for speedscope: a window of steps."""

    first: int | None = Field(default=None, ge=1, strict=True)
    """The step that the window begins with; `null` is the first one past the warm-up."""
    count: int | None = Field(default=20, ge=1, strict=True)
    """How many recorded steps are in the window; `null` is all that follow."""
    max_mb: int = Field(default=100, ge=1, strict=True)
    """The window ends when the file has about this size, in megabytes."""


class TraceOptions(SpeedscopeOptions):
    """The file `trace.json`, for Perfetto: a window of steps."""

    flush_s: float = Field(default=5.0, ge=0, strict=True, allow_inf_nan=False)
    """The longest time that an event may wait before it reaches the file, in seconds."""


class MetricsOptions(Part):
    """A few numbers now and then."""

    every: int = Field(default=10, ge=1, strict=True)
    """The fewest recorded steps between two reports, each of the means over the steps since the last one."""
    interval_s: float = Field(default=10.0, ge=0, strict=True, allow_inf_nan=False)
    """The least time between two reports, in seconds."""
    top: int = Field(default=20, ge=0, strict=True)
    """How many names are reported, the longest first."""


class TensorboardOptions(MetricsOptions):
    """Scalars for TensorBoard, in the run's folder."""

    folder: str | None = Field(default=None, min_length=1)
    """Where the event files go; `null` is the folder `tensorboard` of the rank."""


class WandbOptions(MetricsOptions):
    """Metrics for Weights & Biases: into the program's own run where it has one, else into a new one."""

    project: str | None = Field(default=None, min_length=1)
    """The project of a new run; `null` leaves it to wandb and its environment."""
    name: str | None = Field(default=None, min_length=1)
    """The name of a new run; `null` is the name of the run's folder."""
    mode: Literal["online", "offline"] | None = None
    """How a new run reaches the server; `null` leaves it to wandb and its environment."""


class MlflowOptions(MetricsOptions):
    """Metrics for MLflow: into the program's active run where it has one, else into a new one."""

    tracking_uri: str | None = Field(default=None, min_length=1)
    """The tracking server or store; `null` leaves it to mlflow and its environment."""
    experiment: str = Field(default="autoprof", min_length=1)
    """The experiment of a new run; it is made if need be."""


class PrometheusOptions(MetricsOptions):
    """An endpoint that Prometheus scrapes, one for each rank: its port is `port` and the rank."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """The address to listen on. The default is reached from this machine only; there is no password."""
    port: int = Field(default=9464, ge=0, le=65535, strict=True)
    """The port of rank 0; 0 lets the system choose one, which `run.json` names."""


class OpentelemetryOptions(MetricsOptions):
    """Metrics through OpenTelemetry's SDK, for each rank."""

    endpoint: str | None = Field(default=None, min_length=1)
    """An OTLP/HTTP address such as `http://localhost:4318/v1/metrics`; `null` uses the program's own meter provider."""


class Sinks(Part):
    """Where the steps go. A sink that is named is on, with its defaults where its value is empty."""

    console: ConsoleOptions | None = None
    """The live table on the terminal."""
    log: LogOptions | None = None
    """The readable file `timing.log`."""
    jsonl: JsonlOptions | None = None
    """The records `steps.jsonl`, one JSON object a step."""
    memory_plot: MemoryPlotOptions | None = None
    """The picture `memory.png`."""
    csv: CsvOptions | None = None
    """A table, `steps.csv` or `spans.csv`."""
    trace: TraceOptions | None = None
    """A window of steps for Perfetto, `trace.json`."""
    speedscope: SpeedscopeOptions | None = None
    """A window of steps for speedscope, `trace.speedscope.json`."""
    tensorboard: TensorboardOptions | None = None
    """Scalars for TensorBoard; needs the extra `tensorboard`."""
    wandb: WandbOptions | None = None
    """Metrics for Weights & Biases; needs the extra `wandb`."""
    mlflow: MlflowOptions | None = None
    """Metrics for MLflow; needs the extra `mlflow`."""
    prometheus: PrometheusOptions | None = None
    """An endpoint that Prometheus scrapes; needs the extra `prometheus`."""
    opentelemetry: OpentelemetryOptions | None = None
    """Metrics through OpenTelemetry's SDK; needs the extra `opentelemetry`."""

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_switch(cls, value: Any) -> Any:
        if isinstance(value, bool):
            word = str(value).lower()
            raise ValueError(f"{word} is a truth value; allowed: the sink's options, {{}} for its defaults, or no key")
        return value

    @classmethod
    def all_with_defaults(cls) -> Sinks:
        """Return the sinks of a configuration that has no `sinks` key."""
        return cls(console=ConsoleOptions(), log=LogOptions(), jsonl=JsonlOptions(), memory_plot=MemoryPlotOptions())
