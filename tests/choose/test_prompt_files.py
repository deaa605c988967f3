"""Prompts from texts and files, those that ship, and one line for each mistake."""

from pathlib import Path

import pytest

from auditor.choose.prompt_files import FOLDER, SHIPPED, PromptError, make_prompts, name_prompt, read_prompt_file


def test_texts_become_columns() -> None:
    first, second = make_prompts(["a watermark", "A screenshot of text!"], "a photo")
    assert (first.name, first.texts, first.against) == ("watermark", ("a watermark",), ("a photo",))
    assert second.name == "screenshot_of_text"
    assert name_prompt("???") == "prompt"


@pytest.mark.parametrize("name", SHIPPED)
def test_the_files_that_ship_can_be_read(name: str) -> None:
    prompts = read_prompt_file(name)
    assert len({prompt.name for prompt in prompts}) == len(prompts) >= 4
    assert "prompts, not detectors" in (FOLDER / f"{name}.toml").read_text().lower()


def test_all_that_ship_are_listed() -> None:
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(SHIPPED)


def test_templates_and_opposites(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'against = "a photo"\ntemplates = ["{}", "a picture of {}"]\n[prompts]\nlogo = "a logo"\n'
        '[prompts.blurred]\ntexts = ["a blurred photo"]\nagainst = ["a sharp photo"]\ntemplates = "{}"\n'
    )
    logo, blurred = read_prompt_file(path)
    assert logo.texts == ("a logo", "a picture of a logo") and logo.against == ("a photo", "a picture of a photo")
    assert (blurred.texts, blurred.against) == (("a blurred photo",), ("a sharp photo",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it has no table"),
        ("[prompts]\nx = 3", "x: texts, against and templates are texts"),
        ("[prompts]\nx = []", "x: texts, against and templates are texts"),
        ('[prompts]\nx = "a photo"', "'x' is its own opposite"),
        ('[prompts]\nx = " "', "'x' has an empty text"),
        ('[prompts.x]\ntext = "y"', "no key 'text'; did you mean texts"),
        ('templates = "a"\n[prompts]\nx = "y"', "a template has a place for the prompt"),
        ("[prompts", "mine.toml: "),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(PromptError, match=message) as caught:
        read_prompt_file(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_names_those_that_ship() -> None:
    with pytest.raises(PromptError, match="there is no file qualty; those that ship are quality, text, medium"):
        read_prompt_file("qualty")
