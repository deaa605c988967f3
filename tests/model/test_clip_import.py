"""open_clip is imported without what most models do not need, and it is there for those that need it."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from model.clip_import import open_clip

def imported():
    rare = {"timm", "torch._dynamo", "torch._inductor", "huggingface_hub", "torchvision.models", "torchvision.datasets",
            "wcwidth"}
    return sorted(rare & sys.modules.keys())

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
assert torchvision.models.resnet18().fc.out_features == 1000 and torchvision.datasets.CIFAR10
assert not hasattr(torchvision, "nothing")
assert open_clip.pretrained.has_hf_hub()
import ftfy.formatting
assert ftfy.formatting.display_ljust("写", 4) == "写  " and "wcwidth" in imported()
try:
    open_clip.pretrained.download_pretrained_from_hf("no/model", cache_dir=sys.argv[1])
except FileNotFoundError as error:
    assert "no/model" in str(error)
assert "huggingface_hub" in imported()
assert torch.compile(lambda x: x * 2, backend="eager")(torch.ones(1)) == 2
"""


def test_what_most_models_do_not_need_is_imported_on_demand(tmp_path: Path) -> None:
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=offline)
    assert done.returncode == 0, done.stderr
