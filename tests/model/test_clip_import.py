"""open_clip is imported without timm and torch's compiler, and both are there for the models that need them."""

import subprocess
import sys

PROGRAM = """
import sys
from model.clip_import import open_clip

def imported():
    return sorted({"timm", "torch._dynamo", "torch._inductor"} & sys.modules.keys())

assert imported() == [], imported()
import torch
import torchvision

text = {"context_length": 8, "vocab_size": 64, "width": 16, "heads": 2, "layers": 1}
plain = {"image_size": 32, "layers": 1, "width": 16, "head_width": 8, "patch_size": 16}
pixels = torch.zeros(1, 3, 32, 32)
clip = open_clip.model.CLIP(16, open_clip.CLIPVisionCfg(**plain), open_clip.CLIPTextCfg(**text))
assert clip.encode_image(pixels).shape == (1, 16) and imported() == [], imported()
trunk = {"image_size": 32, "timm_model_name": "test_vit"}
clip = open_clip.model.CustomTextCLIP(16, open_clip.CLIPVisionCfg(**trunk), open_clip.CLIPTextCfg(**text))
assert clip.encode_image(pixels).shape == (1, 16) and "timm" in imported()
assert type(clip.visual) is open_clip.model.TimmModel
assert torchvision.ops.roi_align(pixels, torch.tensor([[0, 0, 0, 4, 4.0]]), 2).shape == (1, 3, 2, 2)
assert torch.compile(lambda x: x * 2, backend="eager")(torch.ones(1)) == 2
"""


def test_what_most_models_do_not_need_is_imported_on_demand() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
