"""Find what generated captions get wrong: refusals, leaked prompts, loops, code, cut-off ends, empty openings.

Each kind is a value of `looks_like`, with the span of the caption that shows it. The rules are one table. A rule is
tried only on captions that contain one of its words or a symbol, so that an ordinary caption costs next to nothing.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from auditor.schema import Defect

SPAN = 80  # characters of the shown span
LONGEST = 20_000  # characters of a caption that are searched


@dataclass(frozen=True, slots=True)
class DefectRule:
    """A pattern that shows a defect, a caption that has it, and a similar caption that is sound."""

    defect: Defect
    triggers: frozenset[str]  # normalized words; the pattern needs one of them, or a symbol if there is none
    pattern: re.Pattern[str]
    example: str
    sound: str


IMAGE = "(?:image|picture|photo|photograph|video|footage|scene)"


def _rule(defect: Defect, triggers: str, pattern: str, example: str, sound: str) -> DefectRule:
    expression = re.compile(pattern.replace("IMAGE", IMAGE), re.I)
    return DefectRule(defect, frozenset(triggers.split()), expression, example, sound)


RULES = (
    _rule("refusal", "sorry", r"\b(?:I'm|I am|we are) (?:very |so )?sorry,? (?:but )?(?:I|we)\b",
        "I'm sorry, I can't identify the people here.", "A sign says sorry, we are closed"),
    _rule("refusal", "apologize apologise apologies", r"\bI apologi[sz]e\b|^my apologies\b",
        "My apologies, the file seems to be empty.", "A player offers his apologies to the referee"),
    _rule("refusal", "unable able", r"\b(?:I am|I'm|I was) (?:not able|unable) to \w+",
        "I am unable to view what you have provided.", "A man who is unable to walk sits in a wheelchair"),
    _rule("refusal", "cannot can won",
        r"\bI (?:cannot|can't|can not|won't) (?:assist|help|provide|describe|identify|generate|see|view|determine)\b",
        "I cannot identify this person.", "A man who cannot see walks with a cane"),
    _rule("refusal", "ai model assistant", r"\b(?:as|I am) an? (?:AI|(?:large )?language model|virtual assistant)\b",
        "As an AI, I have no opinion on this.", "A poster for a talk about an AI model"),
    _rule("refusal", "no", r"\bno IMAGE (?:was|has been|is) (?:provided|attached|uploaded|given)\b",
        "No image was provided.", "There is no image on the screen"),
    _rule("refusal", "please", r"\bplease (?:upload|provide|share|attach) (?:the|an|a|your) IMAGE\b",
        "Please upload the image again.", "A sign asks visitors to please share the road"),
    _rule("prompt leak", "", r"<\|\w+\|>|\[/?INST\]|<image>|</?s>|<(?:unk|pad|eos|bos)>|<</?SYS>>",
        "A dog on a beach.</s>", "A dog on a beach <3"),
    _rule("prompt leak", "user assistant human system", r"(?:^|\n|[.!?] )(?:user|assistant|human|system) ?:",
        "USER: What is this? ASSISTANT: A dog on a beach.", "The solar system: a model on a table"),
    _rule("prompt leak", "question", r"(?:^|\n|[.!?] )question ?:.{1,300}?\banswer ?:",
        "Question: What is this? Answer: a dog on a beach", "A board with a question: who knows the answer"),
    _rule("prompt leak", "instruction response input", r"### ?(?:instruction|response|input)\b",
        "### Response a dog on a beach", "A nurse waits for the response of a child"),
    _rule("prompt leak", "describe caption summarize summarise",
        r"^(?:please )?(?:describe|caption|summari[sz]e) (?:the|this) IMAGE\b",
        "Describe the image in one sentence.", "Two students describe the experiment to their teacher"),
    _rule("prompt leak", "caption description text",
        r"\b(?:write|generate|provide|give) (?:me )?an? (?:[\w-]+ ){0,3}(?:caption|description|alt text) (?:for|of)\b",
        "Write a short caption for the picture.", "A woman reads the description of a painting"),
    _rule("prompt leak", "words", r"\bin (?:\d+|\w+) words or (?:less|fewer)\b",
        "In 20 words or less: a dog on a beach", "A banner with the words or else"),
    _rule("prompt leak", "sure certainly course absolutely",
        r"^(?:sure|certainly|of course|absolutely)[,!.]+ (?:here|I)\b",
        "Sure! Here you are: a dog on a beach", "A sure shot at the goal"),
    _rule("prompt leak", "here", r"^here(?:'s| is| are) (?:\w+ ){0,4}(?:caption|description|alt text|summary)s?\b",
        "Here is a detailed description: a dog on a beach", "Here is a dog on a beach"),
    _rule("placeholder", "n na none null nan todo tbd untitled caption",
        r"^\W*(?:n/?a|none|null|nan|todo|tbd|untitled|caption)\W*$", "N/A", "None of the players has the ball"),
    _rule("placeholder", "no", r"^\W*no (?:caption|description|title|alt text)(?: (?:available|provided))?\W*$",
        "No description available.", "No title is on the cover of the book"),
    _rule("placeholder", "",
        r"\[(?:blank|blank_audio|name|insert[^\]]{0,60}|your[^\]]{0,60}|redacted|object|placeholder|image|title)\]",
        "A man named [NAME] stands next to a dog.", "A no parking sign [on a wall] near a shop"),
    _rule("placeholder", "", r"<(?:insert|your) [^<>]{1,60}>",
        "<insert caption>", "A dog <3 your friend> a cat"),
    _rule("placeholder", "", r"\{\{?\w+\}?\}", "A {color} car on a street", "A set {of cups} on a table"),
    _rule("placeholder", "lorem", r"\blorem ipsum\b", "Lorem ipsum dolor sit amet", "A man called Lorem"),
    _rule("code", "", r"^\s*[\[{]\s*(?:[\[{]\s*)?([\"'])[^\"']+\1\s*[:,]",
        "[{'label': 'dog'}, {'label': 'beach'}]", "{ 'and' } of wood"),
    _rule("code", "", r"```|\*\*[^*\n]{1,200}\*\*|^#{1,6} \w|\\n",
        "**Caption** a dog on a beach", "A *** hotel by the sea"),
    _rule("code", "", r"\[[^\]]{1,100}\]\([^)\s]{1,200}\)", "[a dog](dog.jpg) on a beach", "A dog [left] (black) runs"),
    _rule("code", "def function import", r"\b(?:def|function) \w+\(|^import \w+ as \w+$",
        "import numpy as np", "Workers import wine as a business"),
    _rule("numbers", "0", r"(?:(?<!\d)[01]?\.\d{2,}\b[^.]{0,12}){3,}",
        "dog 0.98 beach 0.87 ball 0.12", "Runners show their times: 3.45, 3.50 and 4.10"),
    _rule("numbers", "", r"\[ ?\d+(?:\.\d+)?(?:, ?\d+(?:\.\d+)?){3} ?\]",
        "dog [12, 40, 200, 310]", "A dog [1, 2 or 3 years]"),
    _rule("numbers", "",
        r"^\W*(?=[^.]{0,100}(?:\d\.\d+%|\w: ?\d))(?:[a-z]\w*(?: \w+)?:? \(?\d+(?:\.\d+)?%\)?[,;]? ?){3}",
        "dog 98%, beach 1%, ball 0.4%", "Cotton 50%, wool 30%, silk 20%"),
    _rule("numbers", "", r"<(?:loc|patch_index|bin|pos)_?\d+>",
        "<loc_12><loc_220> dog", "A dog <left> of a cat"),
    _rule("numbers", "score confidence probability", r"\b(?:score|confidence|probability) ?[:=]? ?[01]?\.\d+",
        "dog, confidence: 0.93", "The score is 3 to 1"),
    _rule("first person", "i", r"\bI (?:can |could )?(?:see|notice|observe|think|believe|assume)\b(?! you)",
        "I can see a dog that runs on the beach.", "Children see a dog that runs on the beach"),
    _rule("first person", "we", r"\bwe (?:can|could) (?:see|notice|observe|assume)\b",
        "We can see a dog that runs on the beach.", "A sign says we can do it"),
    _rule("first person", "i me my",
        r"\bI would (?:say|describe|guess)\b|\blet me (?:describe|know|explain)\b|\bmy description\b"
        r"|\bfrom what I can (?:tell|see)\b|\bin my opinion\b",
        "Let me know if you need more details.", "Me and my dog on a beach"),
    _rule("picture talk", "quality resolution",
        r"\bIMAGE (?:quality|resolution)\b|\b(?:quality|resolution) of the IMAGE\b"
        r"|\b(?:low|poor|high)[ -](?:quality|resolution) IMAGE\b",
        "The image quality is poor.", "A shop for high quality furniture"),
    _rule("picture talk", "blurry pixelated grainy watermarked overexposed underexposed",
        r"\bIMAGE (?:is|appears|looks) (?:\w+ )?(?:blurry|pixelated|grainy|watermarked|\w+exposed)\b",
        "The image is slightly blurry.", "A blurry dog runs past in high grass"),
    _rule("picture talk", "watermark watermarks", r"\bIMAGE (?:has|contains|bears) (?:\w+ ){0,3}watermarks?\b",
        "The image has a watermark in the corner.", "The door of the shop has a watermark"),
    _rule("picture talk", "overall composition lighting",
        r"\boverall,? the (?:IMAGE|composition)\b|\bthe (?:composition|lighting) (?:of|in) the IMAGE\b",
        "Overall, the scene conveys a sense of calm.", "Men in overalls repair the lighting in the hall"),
)  # fmt: skip
TRIGGERS = frozenset().union(*(rule.triggers for rule in RULES))
RULES_BY_TRIGGER = {word: [place for place, rule in enumerate(RULES) if word in rule.triggers] for word in TRIGGERS}
_SYMBOL = re.compile(r"[<\[{`*#\\%]")
_OPENINGS = frozenset(["in", "the", "this", "these"])

_PREAMBLE = re.compile(
    r"\s*(?:in )?(?:the|this|these) (?:given |provided |attached )?"
    r"(?:image|picture|photo|photograph|video|clip|scene|illustration|drawing|painting|frame|screenshot|artwork)s?"
    r"(?:,? (?:we|you|one) can see|,? there (?:is|are)"
    r"| (?:shows?|depicts?|features?|captures?|displays?|presents?|portrays?|illustrates?|contains?|showcases?|is of)"
    r"| appears to (?:be|show|depict))\b[,:]? ?",
    re.I,
)
_SENTENCE = re.compile(r"[^.!?]+[.!?]*")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*$")
_WORD = re.compile(r"\w+")
# Words that do not end a caption; "on", "by" and "her" do: a man with his helmet on, as others stand by behind her.
_DANGLING = frozenset(["a", "an", "the", "and", "or", "of", "with", "from", "is", "are", "was", "his", "its", "as"])
LONG = 30  # words of a caption that ends like its sentences


def find_preamble(caption: str, words: Sequence[str]) -> str | None:
    """Return the opening of a caption that speaks of the picture, not of what it shows: "The image shows"."""
    match = _PREAMBLE.match(caption) if words and words[0] in _OPENINGS else None
    return match[0].strip(" ,:") if match else None


def find_defect(caption: str, words: Sequence[str], repeated_words: float) -> tuple[Defect, str] | None:
    """Return the defect of a generated caption and the span that shows it.

    `words` are those of the normalized caption, `repeated_words` is the fact of that name.
    """
    caption = caption if len(caption) <= LONGEST else caption[:LONGEST]
    for rule in choose_rules(caption, words):
        if match := rule.pattern.search(caption):
            return rule.defect, match[0].strip()[:SPAN]
    if repeated_words > 0.3 and (span := find_loop(caption)):
        return "loop", span[:SPAN]
    if len(caption) < LONGEST and (span := find_cut_end(caption)):
        return "unfinished", span[-SPAN:]
    return None


def choose_rules(caption: str, words: Sequence[str]) -> Sequence[DefectRule]:
    """The rules that are tried on a caption, in their order."""
    if _SYMBOL.search(caption):
        return RULES
    places = {place for word in TRIGGERS.intersection(words) for place in RULES_BY_TRIGGER[word]}
    return [RULES[place] for place in sorted(places)]


def find_loop(caption: str) -> str:
    """Return a sentence that occurs three times, or a run of words that follows itself four times; else ""."""
    parts = (part.strip(" .!?\n").lower() for part in _SENTENCE.findall(caption))
    sentences: Counter[str] = Counter(part for part in parts if part.count(" ") > 1)
    if sentences and (most := sentences.most_common(1)[0])[1] >= 3:
        return most[0]
    words = [word.lower() for word in _WORD.findall(caption)]
    for length in range(1, 9):
        repeats = 0
        for place in range(length, len(words)):
            repeats = repeats + 1 if words[place] == words[place - length] else 0
            if repeats >= max(3 * length, 4):
                return " ".join(words[place - repeats - length + 1 : place + 1])
    return ""


def find_cut_end(caption: str) -> str:
    """Return the last words of a caption that stops in the middle of a sentence, else ""."""
    text = caption.rstrip()
    if not text or (not text[-1].isalpha() and text[-1] not in ",;:-(") or " " not in text:
        return ""
    words = text.split()
    dangling = words[-1].lower() in _DANGLING or (text[-1] in ",;:-(" and len(words) >= LONG)
    if dangling and len(words) >= 8:
        return " ".join(words[-6:])
    ended = [part for part in re.split(r"(?<=[.!?]) +", text) if part]
    whole = len(ended) > 1 and all(_SENTENCE_END.search(part) for part in ended[:-1])
    return " ".join(words[-6:]) if whole and len(words) >= LONG and text[-1].isalpha() else ""
