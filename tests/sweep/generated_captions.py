"""Generated captions with defects, written for the test of recall; no rule was written or changed on them.

The styles are those of several captioners: chat models that refuse or explain, taggers, detectors, and models that stop
at the length limit or repeat themselves.
"""

from auditor.schema import Defect

LEAKS: dict[Defect, tuple[str, ...]] = {
    "refusal": (
        "I'm sorry, but I'm not able to help with identifying real people.",
        "Unfortunately I cannot see the picture you mentioned.",
        "Sorry, I can't describe this content.",
        "I'm unable to view images, but I can help with text.",
        "As a large language model, I do not have access to the file.",
        "It seems that no image was attached to your message.",
        "I can't provide details about who is shown.",
        "My apologies, the content of this picture cannot be described.",
    ),
    "prompt leak": (
        "<|im_start|>assistant\nA cat sleeps on a sofa.",
        "ASSISTANT: Two women ride bicycles along a canal.",
        "[INST] caption this [/INST] A boat at sunset.",
        "Sure, here's a concise caption: a man repairs a bicycle",
        "Certainly! Here is a description of the photo: children play chess.",
        "Describe the video in detail. A crowd waits for a train.",
        "Write a one-sentence caption for this photo. A horse grazes.",
        "A bowl of soup on a table.</s><pad><pad>",
        "Caption: in 15 words or fewer, a bus stops at a corner",
        "Here is the alt text for the photograph you shared: a red kite",
        "### Response:\nA girl blows out candles.",
        "Question: what is in the photo? Answer: a lighthouse.",
    ),
    "placeholder": (
        "[Your caption here]",
        "N/A",
        "no caption available",
        "A portrait of [NAME] at a conference",
        "{subject} standing in front of {background}",
        "Lorem ipsum dolor sit amet, consectetur",
        "null",
        "<insert description>",
    ),
    "code": (
        '{"caption": "a tram in the rain", "tags": ["tram", "rain"]}',
        "```json\n{}\n```",
        "**Title:** Harbor at dawn",
        "# Description\nA tram in the rain",
        "![a tram](tram.png)",
        "- A tram\\n- Rain\\n- People with umbrellas",
        "[{'label': 'tram'}, {'label': 'rain'}]",
    ),
    "numbers": (
        "tram: 0.97, rain: 0.88, umbrella: 0.52",
        "a tram [0.12, 0.33, 0.81, 0.94]",
        "person (score 0.91) beside a tram",
        "tram 98%, bus 1%, car 0.4%",
        "<loc_12><loc_220><loc_400><loc_512> tram",
    ),
    "first person": (
        "I see a tram that stops in the rain.",
        "I think this is a market in southern Europe.",
        "We can observe several boats in the harbor.",
        "From what I can tell, a boy is fishing.",
        "Let me know if you want a longer caption!",
        "In my opinion, the woman looks happy.",
    ),
    "picture talk": (
        "A harbor. The image is slightly blurry and overexposed.",
        "Overall, the image evokes a feeling of nostalgia.",
        "A low-quality photo of a harbor at night.",
        "The composition of the photograph draws attention to the boats.",
        "The video has a watermark in the lower corner.",
        "This photo was taken with a shallow depth of field, and the resolution of the image is low.",
    ),
    "loop": (
        "a boat in the harbor in the harbor in the harbor in the harbor in the harbor",
        "A boy fishes. A boy fishes near a pier. A boy fishes near a pier. A boy fishes near a pier.",
        "boat boat boat boat boat boat",
        "The man is wearing a hat, the man is wearing a hat, the man is wearing a hat, the man is wearing a hat",
    ),
    "unfinished": (
        "A large wooden boat with two masts lies at anchor in a bay and behind it there is a",
        "Several people are walking along the pier, some of them carry bags and others are",
        "A harbor with many small boats. The water is calm and reflects the houses on the other side. In the "
        "foreground a fisherman mends his net while two children watch him, and a dog sleeps beside the",
        "The picture was taken at dusk. Lamps are lit along the quay. A couple stands near the water and looks at "
        "the boats that return from the sea with their catch of the day, and further back there is an old brick ware",
    ),
}
SOUND = (
    "A tram stops in the rain while people with umbrellas wait.",
    "A man apologizes to a woman in a scene of a play.",
    "A sign that reads SORRY WE ARE CLOSED",
    "Two women look at a laptop that shows code",
    "A poster with the words I can see you",
    "A blurry train rushes past a man on the platform.",
    "Ein Boot liegt im Hafen.",
    "A score board shows 3 to 1 in the last minute",
    "Soldiers march, soldiers wave, soldiers sing",
    "A low quality wooden chair stands outside",
    "Price tags of 0.99 and 1.49 on baskets of fruit",
    "A man with a No Caption t-shirt laughs",
    "A user of a wheelchair crosses the road",
    "An assistant hands tools to a mechanic",
    "People wait for the response of the judges",
    "A dog the size of a horse looks at the camera as the sun goes down behind the hills",
    "Children describe the picture to their teacher",
    "A kitchen with a bowl of rice, a bowl of beans and a bowl of soup",
    "Sure-footed goats climb a rock",
    "A book called Me, Myself and I on a shelf",
)
