"""Libraries as they are, on fineline through PyTorch's names."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

import fineline

transformers = pytest.importorskip("transformers")
diffusers = pytest.importorskip("diffusers")


@pytest.fixture(autouse=True)
def installed():
    torch.manual_seed(0)
    fineline.install()
    yield
    fineline.uninstall()
    fineline.reset()


def llama():
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


IDS = torch.randint(3, 64, (1, 7), generator=torch.Generator().manual_seed(1))


def test_a_model_whose_forward_is_compiled():
    model, counter = llama(), CompileCounter()
    with torch.no_grad():
        expected = model(IDS).logits
        model.forward = torch.compile(model.forward, backend=counter)
        for _ in range(2):
            assert torch.allclose(model(IDS).logits, expected)
    assert counter.frame_count == 1


def test_a_model_compiled_in_place_and_trained():
    model, counter = llama(), CompileCounter()
    loss = model(IDS, labels=IDS).loss
    loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    keys = list(model.state_dict())
    model.compile(backend=counter)
    assert list(model.state_dict()) == keys and isinstance(model, transformers.LlamaForCausalLM)
    for _ in range(2):
        model.zero_grad()
        again = model(IDS, labels=IDS).loss
        again.backward()
        assert torch.allclose(again, loss)
    for name, p in model.named_parameters():
        assert torch.allclose(p.grad, expected[name], atol=1e-6), name
    assert counter.frame_count == 1


@pytest.mark.parametrize("how", ["forward", "in place"])
def test_generate_with_a_static_cache(how):
    model, counter = llama(), CompileCounter()
    ask = {"max_new_tokens": 8, "do_sample": False, "cache_implementation": "static"}
    # generate compiles by itself where there is a GPU; here it is told to.
    expected = model.generate(IDS, **ask)
    if how == "forward":
        model.forward = torch.compile(model.forward, backend=counter)
    else:
        model.compile(backend=counter)
    assert torch.equal(model.generate(IDS, **ask), expected)
    captured = counter.frame_count
    assert captured == 2  # the prompt, and one token
    for _ in range(2):
        assert torch.equal(model.generate(IDS, **ask), expected)
    assert counter.frame_count == captured


def test_a_diffusers_model_and_its_checks():
    from diffusers.utils.torch_utils import is_compiled_module

    model = diffusers.UNet2DModel(
        sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
        down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"),
    ).eval()  # fmt: skip
    x, counter = torch.randn(1, 3, 8, 8), CompileCounter()
    with torch.no_grad():
        expected = model(x, 3).sample
        compiled = torch.compile(model, backend=counter)
        assert is_compiled_module(compiled) and compiled._orig_mod is model and compiled.config is model.config
        for _ in range(2):
            assert torch.allclose(compiled(x, 3).sample, expected, atol=1e-6)
        pipeline = diffusers.DDPMPipeline(compiled, diffusers.DDPMScheduler(num_train_timesteps=10))
        pipeline.set_progress_bar_config(disable=True)
        image = pipeline(generator=torch.Generator().manual_seed(0), num_inference_steps=2, output_type="np").images
        plain = diffusers.DDPMPipeline(model, diffusers.DDPMScheduler(num_train_timesteps=10))
        plain.set_progress_bar_config(disable=True)
        other = plain(generator=torch.Generator().manual_seed(0), num_inference_steps=2, output_type="np").images
    assert counter.frame_count >= 1 and abs(image - other).max() < 1e-5


def test_a_compiled_model_is_saved_as_the_model(tmp_path):
    model = llama()
    compiled = torch.compile(model, backend="eager")
    compiled.save_pretrained(tmp_path)
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.allclose(again.eval()(IDS).logits, compiled(IDS).logits)


def test_accelerate_unwraps():
    other = pytest.importorskip("accelerate.utils.other")
    m = nn.Linear(2, 2)
    compiled = torch.compile(m, backend="eager")
    assert other.is_compiled_module(compiled) and other.extract_model_from_parallel(compiled, keep_torch_compile=False) is m
