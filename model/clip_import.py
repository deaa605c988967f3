"""Imports open_clip without timm and without torch's compiler, which most models and audits never use.

    from model.clip_import import open_clip

torchvision imports the compiler for one function of one operator, and timm imports it too: together they take half the
time of `import open_clip`. Both are imported as soon as a model needs them.
"""

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch  # noqa: F401 (completely, before a part of it is replaced)


def is_compile_supported(device: str) -> bool:
    """Call the function of this name in torch's compiler, which torchvision's `roi_align` imports."""
    return bool(importlib.import_module("torch._dynamo.utils").is_compile_supported(device))


def make_timm_model(*arguments: Any, **options: Any) -> Any:
    """Import timm, then make open_clip's TimmModel."""
    import open_clip.model
    import open_clip.timm_model

    importlib.reload(open_clip.timm_model)
    open_clip.model.TimmModel = open_clip.timm_model.TimmModel
    return open_clip.model.TimmModel(*arguments, **options)


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


def import_open_clip() -> ModuleType:
    """Import open_clip; if it is imported already, it stays as it is."""
    if "open_clip" not in sys.modules:
        compiler, compiler_utils = ModuleType("torch._dynamo"), ModuleType("torch._dynamo.utils")
        compiler_utils.is_compile_supported = is_compile_supported  # type: ignore[attr-defined]
        with replace_modules({"torch._dynamo": compiler, "torch._dynamo.utils": compiler_utils}):
            import torchvision  # noqa: F401
        with replace_modules({"timm": None}):
            import open_clip.model
        if open_clip.timm_model.timm is None:
            open_clip.model.TimmModel = make_timm_model
    return importlib.import_module("open_clip")


open_clip = import_open_clip()
