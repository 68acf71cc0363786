"""The model endpoints that agents choose from: what is configured, what is known of each, and its one open provider."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import trio

from ollie_fuse.agent.usage import Totals
from ollie_fuse.config import BackendConfig, BackendsFile, Mistake, Price
from ollie_fuse.errors import Invalid, OllieError, TimedOut
from ollie_fuse.providers import ModelInfo, Provider, Usage, default_model_path
from ollie_fuse.stamp import Stamp

log = logging.getLogger(__name__)

REFRESH_S = 30.0
"""How long a list of models may take, as other side calls."""
UNKNOWN_WINDOW_TOKENS = 128_000
"""What is assumed where neither the configuration nor the provider tells; it is said to be."""
FREE = Price(input=0, output=0)
"""Nobody bills a model that runs here."""


class Backend:
    """One configured endpoint. ``models`` is None until somebody told which there are."""

    def __init__(
        self, config: BackendConfig, open_provider: Callable[[BackendConfig], Provider], changed: Stamp
    ) -> None:
        self.config = config
        self._changed = changed
        self._open_provider = open_provider
        self._provider: Provider | None = None
        self.users = 0
        """Turns that use it now."""
        self.trouble = ""
        """Why the last request failed, empty when it did not."""
        self.models: tuple[ModelInfo, ...] | None = None
        if config.kind == "local":
            path = Path(config.model) if config.model else default_model_path(Path())
            self.models = (ModelInfo(name=path.stem),)
        elif config.models:
            self.models = tuple(ModelInfo(name=name) for name in config.models)

    @property
    def name(self) -> str:
        """The name that ``backend NAME`` takes."""
        return self.config.section

    @property
    def provider(self) -> Provider:
        """The provider, opened at first use; it starts nothing and connects to nothing before a request."""
        if self._provider is None:
            self._provider = self._open_provider(self.config)
        return self._provider

    @property
    def default_model(self) -> str | None:
        """The model that is asked when none is chosen; None when neither configuration nor provider names one."""
        if self.config.kind != "local" and self.config.model:
            return self.config.model
        return self.models[0].name if self.models else None

    @property
    def price(self) -> Price | None:
        """What tokens cost here, None when unknown."""
        return FREE if self.config.kind == "local" else self.config.price

    def window_of(self, model: str) -> int | None:
        """Return the context window of *model* in tokens, None when nobody told."""
        told = {info.name: info.window for info in self.models or ()}
        return self.config.window or told.get(model)

    def check_model(self, model: str) -> str:
        """Return *model* if it may exist here; raises Invalid when it is known not to."""
        if self.models is None or model == self.config.model or any(i.name == model for i in self.models):
            return model
        names = ", ".join(info.name for info in self.models[:20])
        raise Invalid(f"backend {self.name} has no model {model[:64]!r}; it has {names}")

    async def refresh(self) -> None:
        """Ask the provider which models there are; a failure leaves what was known and stands in ``trouble``."""
        if self.config.models:
            return
        models = None
        try:
            with trio.move_on_after(REFRESH_S):
                models = await self.provider.list_models()
            if models is None:
                raise TimedOut(f"{self.config.title} did not list its models within {REFRESH_S:g} s")
        except OllieError as exc:
            self.note_trouble(str(exc))
            log.info("backend %s: no list of models: %s", self.name, exc)
        else:
            self.note_trouble("")
            if models != self.models:
                self.models = models
                self._changed.touch()

    def note_trouble(self, sentence: str) -> None:
        """Keep why the last request failed; empty when it did not."""
        if sentence != self.trouble:
            self.trouble = sentence
            self._changed.touch()

    async def aclose(self) -> None:
        """Close the provider, if it was ever opened."""
        if self._provider is not None:
            await self._provider.aclose()


class Backends:
    """All backends by name, the default first; ``load`` replaces them while agents run."""

    def __init__(self, file: BackendsFile, open_provider: Callable[[BackendConfig], Provider]) -> None:
        self._open_provider = open_provider
        self._by_name: dict[str, Backend] = {}
        self._retired: list[Backend] = []
        self.mistakes: tuple[Mistake, ...] = ()
        self.changed = Stamp()
        self.totals: dict[tuple[str, str], Totals] = {}
        """What was used since the daemon started, by backend and model."""
        self.used = Stamp()
        self.load(file)

    def load(self, file: BackendsFile) -> None:
        """Take a new configuration; what did not change keeps its connection, what is gone serves its running turns."""
        old = self._by_name
        self._by_name = {}
        for config in file.backends:
            kept = old.pop(config.section, None)
            if kept is not None and kept.config != config:
                self._retired.append(kept)
                kept = None
            self._by_name[config.section] = kept or Backend(config, self._open_provider, self.changed)
        self._retired += old.values()
        self.mistakes = file.mistakes
        self.changed.touch()

    def __iter__(self) -> Iterator[Backend]:
        return iter(self._by_name.values())

    @property
    def default(self) -> Backend:
        """The first one."""
        return next(iter(self._by_name.values()))

    def get(self, name: str) -> Backend:
        """Return the backend *name*; raises Invalid, with the configuration's own complaint if it has one."""
        backend = self._by_name.get(name)
        if backend is not None:
            return backend
        for mistake in self.mistakes:
            if mistake.backend == name:
                raise Invalid(f"backend {name} is not usable: {mistake}")
        raise Invalid(f"there is no backend {name[:64]!r}; there are {', '.join(self._by_name)}")

    def account(self, backend: str, model: str, usage: Usage, price: Price | None) -> None:
        """Add one call."""
        key = (backend, model)
        self.totals[key] = self.totals.get(key, Totals()).plus(usage, price)
        self.used.touch()

    async def refresh(self) -> None:
        """Ask every backend for its models, all at once, and close what was retired and is no longer used."""
        async with trio.open_nursery() as nursery:
            for backend in self._by_name.values():
                nursery.start_soon(backend.refresh)
            for backend in self._retired:
                if not backend.users:
                    nursery.start_soon(backend.aclose)
        self._retired = [backend for backend in self._retired if backend.users]

    async def aclose(self) -> None:
        """Close every provider."""
        async with trio.open_nursery() as nursery:
            for backend in [*self._by_name.values(), *self._retired]:
                nursery.start_soon(backend.aclose)
