"""BertAdam against the formula, step by step, and which weights it decays."""

from pathlib import Path

import pytest
import torch

from auditor.research.train.training_run import build_learner, build_optimizer
from model.training.bert_adam import BertAdam
from model.training.training_state import collect_parameters
from tests.support.training import make_tiny_config


def test_steps_are_those_of_the_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    expected, mean, square = weight.clone(), torch.zeros(4, 3).double(), torch.zeros(4, 3).double()
    leaf = weight.clone().requires_grad_()
    optimizer = BertAdam([{"params": [leaf], "weight_decay": 0.2}], lr=0.1, betas=(0.9, 0.98), eps=1e-6)
    for _ in range(5):
        gradient = torch.randn(4, 3, generator=generator, dtype=torch.float64)
        leaf.grad = gradient.clone()
        optimizer.step()
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.98 * square + 0.02 * gradient**2
        expected = expected - 0.1 * (mean / (square.sqrt() + 1e-6) + 0.2 * expected)
        torch.testing.assert_close(leaf.detach(), expected, rtol=1e-12, atol=1e-12)


def test_everything_but_biases_decays_and_the_first_layers_are_frozen(tmp_path: Path) -> None:
    settings = {"optimizer": "bertadam", "train": "layers", "temporal_layers": 2, "weight_decay": 0.2}
    config = make_tiny_config(tmp_path, **settings, lr_encoders=1e-7, lr_other=1e-4)
    learner = build_learner(config)
    names = {id(parameter): name for name, parameter in collect_parameters(learner).items()}
    groups = build_optimizer(config, learner).param_groups
    facts = {names[id(p)]: (group["peak"], group["weight_decay"]) for group in groups for p in group["params"]}
    assert set(facts) == set(names.values())
    for name, (peak, decay) in facts.items():
        assert peak == (1e-7 if name.startswith("backbone.") else 1e-4), name
        assert decay == (0.0 if "bias" in name else 0.2), name
    assert {"head.visual", "backbone.logit_scale", "temporal.positions", "backbone.ln_final.weight"} <= set(facts)
    frozen = {name for name, parameter in learner.backbone.model.named_parameters() if not parameter.requires_grad}
    towers = {"visual.class_embedding", "visual.positional_embedding", "visual.conv1.weight", "visual.ln_pre.weight"}
    assert frozen == towers | {"visual.ln_pre.bias", "token_embedding.weight", "positional_embedding"}


def test_adamw_decays_matrices_only(tmp_path: Path) -> None:
    config = make_tiny_config(tmp_path, temporal_layers=1, weight_decay=0.3)
    learner = build_learner(config)
    names = {id(parameter): name for name, parameter in collect_parameters(learner).items()}
    decays = {
        names[id(p)]: group["weight_decay"] for g in [build_optimizer(config, learner)] for group in g.param_groups
        for p in group["params"]
    }  # fmt: skip
    for name, parameter in collect_parameters(learner).items():
        assert decays[name] == pytest.approx(0.3 if parameter.ndim >= 2 and not name.startswith("head.") else 0.0), name
