"""Imports open_clip without what most models and audits never use: timm, torch's compiler, the hub, models to train.

    from model.clip_import import open_clip

torchvision imports the compiler for one function of one operator, and timm imports it too: together they take half the
time of `import open_clip`. The client of the hub and torchvision's models and datasets take half of the rest. Each is
imported as soon as it is needed. Tables of the widths of letters, which only ftfy's tables for terminals need, are too.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch  # noqa: F401 (completely, before a part of it is replaced)


def make_timm_model(*arguments: Any, **options: Any) -> Any:
    """Import timm, then make open_clip's TimmModel."""
    import open_clip.model
    import open_clip.timm_model

    importlib.reload(open_clip.timm_model)
    open_clip.model.TimmModel = open_clip.timm_model.TimmModel
    return open_clip.model.TimmModel(*arguments, **options)


def defer(module: str, name: str) -> Callable[..., Any]:
    """Return a function that imports a module and calls its function of this name."""
    return lambda *arguments, **options: getattr(importlib.import_module(module), name)(*arguments, **options)


def stand_in(module: str, *names: str) -> ModuleType:
    """Make a module with some functions of another one, which is imported when one of them is called."""
    substitute = ModuleType(module)
    for name in names:
        setattr(substitute, name, defer(module, name))
    return substitute


@contextmanager
def replace_modules(replacements: Mapping[str, ModuleType | None]) -> Iterator[None]:
    """Make `import` find these modules, or fail for None, unless they are imported already."""
    new = {name: module for name, module in replacements.items() if name not in sys.modules}
    sys.modules.update(new)  # type: ignore[arg-type]  # None is allowed
    try:
        yield
    finally:
        for name in new:
            del sys.modules[name]


def import_torchvision() -> None:
    """Import torchvision; `torchvision.models` and `torchvision.datasets` are imported when they are first used."""
    if "torchvision" in sys.modules:
        return
    parts = {f"torchvision.{part}": ModuleType(part) for part in ("models", "datasets")}
    compiler = {
        "torch._dynamo": ModuleType("torch._dynamo"),
        "torch._dynamo.utils": stand_in("torch._dynamo.utils", "is_compile_supported"),  # for `roi_align`
    }
    with replace_modules({**compiler, **parts}):
        import torchvision

    def import_part(name: str) -> ModuleType:
        if f"torchvision.{name}" not in parts:
            raise AttributeError(f"module 'torchvision' has no attribute {name!r}")
        return importlib.import_module(f"torchvision.{name}")

    del torchvision.models, torchvision.datasets
    torchvision.__getattr__ = import_part


def import_open_clip() -> ModuleType:
    """Import open_clip; if it is imported already, it stays as it is."""
    if "open_clip" not in sys.modules:
        import_torchvision()
        hub = stand_in("huggingface_hub", "hf_hub_download")
        upload = stand_in("open_clip.push_to_hf_hub", "push_pretrained_to_hf_hub", "push_to_hf_hub")
        widths = stand_in("wcwidth", "wcswidth", "wcwidth")
        replacements = {"timm": None, "huggingface_hub": hub, upload.__name__: upload, "wcwidth": widths}
        with replace_modules(replacements):
            import open_clip.model
        if open_clip.timm_model.timm is None:
            open_clip.model.TimmModel = make_timm_model
    return importlib.import_module("open_clip")


open_clip = import_open_clip()
