"""Prompts: what to look for, in words, and what it is compared with; from the command line or a TOML file.

    templates = ["{}", "a picture of {}"]    # optional
    against = ["a photo"]                    # what the prompts are compared with, unless they say it themselves

    [prompts]
    drawing = ["a drawing", "an illustration"]

    [prompts.blurred]
    texts = ["a blurred photo"]
    against = ["a sharp photo"]

The files in this folder ship with the auditor. They are prompts, not detectors: whether a model sees what they say has
to be looked at for each model and corpus.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from auditor.errors import AuditorError, explain_unknown_name

AGAINST = "a photo"
FOLDER = Path(__file__).parent
SHIPPED = ("quality", "text", "medium")
ARTICLE = re.compile(r"^(an?|the) ", re.IGNORECASE)


Prompts = Sequence[str] | str | Path  # texts, one text, or a file


class PromptError(AuditorError):
    """Prompts or examples that cannot be used."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A column's name, the texts that describe what it looks for, and those of the opposite."""

    name: str
    texts: tuple[str, ...]
    against: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.texts or not self.against or not all(text.strip() for text in (*self.texts, *self.against)):
            raise PromptError(f"the prompt {self.name!r} has an empty text")
        if set(self.texts) & set(self.against):
            raise PromptError(f"the prompt {self.name!r} is its own opposite: compare it with something else")


def name_prompt(text: str) -> str:
    """The name of a prompt's column: "a screenshot of text" gives screenshot_of_text."""
    return re.sub(r"\W+", "_", ARTICLE.sub("", text.strip()).lower()).strip("_")[:60] or "prompt"


def make_prompts(texts: Sequence[str], against: str | Sequence[str] = AGAINST) -> list[Prompt]:
    """Make a prompt of each text, all with the same opposite."""
    opposites = (against,) if isinstance(against, str) else tuple(against)
    return [Prompt(name_prompt(text), (text,), opposites) for text in texts]


def is_prompt_file(prompts: Prompts) -> TypeGuard[str | Path]:
    return isinstance(prompts, Path) or (isinstance(prompts, str) and (prompts in SHIPPED or prompts.endswith(".toml")))


def read_prompt_file(path: str | Path) -> list[Prompt]:
    """Read a TOML file of prompts, or one that ships with the auditor by its name."""
    is_shipped = str(path) in SHIPPED
    try:
        text = (FOLDER / f"{path}.toml" if is_shipped else Path(path)).read_text(encoding="utf-8")
        return parse_prompts(tomllib.loads(text))
    except FileNotFoundError:
        raise PromptError(f"there is no file {path}; those that ship are {', '.join(SHIPPED)}") from None
    except (PromptError, ValueError) as error:
        raise PromptError(f"{path}: {error}") from None


def parse_prompts(content: Mapping[str, Any]) -> list[Prompt]:
    refuse_unknown_keys(content, ("prompts", "templates", "against"))
    tables = content.get("prompts")
    if not isinstance(tables, Mapping) or not tables:
        raise PromptError("it has no table [prompts]")
    prompts = []
    for name, value in tables.items():
        table = value if isinstance(value, Mapping) else {"texts": value}
        refuse_unknown_keys(table, ("texts", "templates", "against"))
        settings = {"against": AGAINST, "templates": "{}", **content, **table}
        texts, against, templates = (parse_texts(name, settings.get(key)) for key in ("texts", "against", "templates"))
        if any("{}" not in template for template in templates):
            raise PromptError(f"{name}: a template has a place for the prompt, such as 'a picture of {{}}'")
        filled = [tuple(t.replace("{}", text) for text in group for t in templates) for group in (texts, against)]
        prompts.append(Prompt(name_prompt(name), *filled))
    return prompts


def parse_texts(name: str, value: Any) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise PromptError(f"{name}: texts, against and templates are texts or lists of texts")
    return texts


def refuse_unknown_keys(table: Mapping[str, Any], keys: Sequence[str]) -> None:
    if unknown := [key for key in table if key not in keys]:
        raise PromptError(explain_unknown_name("key", unknown[0], keys))
