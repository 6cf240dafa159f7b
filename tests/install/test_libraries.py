"""Libraries as they are, on fineline through PyTorch's names."""

from __future__ import annotations

import functools

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


# -- models that have been compiled before ------------------------------------------------------------------------------------------
def classifier():
    torch.manual_seed(0)
    config = transformers.BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=50)
    return transformers.BertForSequenceClassification(config)


@pytest.mark.parametrize("compiled", [False, True])
def test_trainer_takes_a_compiled_model(tmp_path, compiled):
    """It trains, evaluates and predicts as with the model itself: it finds what the model is called with, and its labels."""
    pytest.importorskip("accelerate")  # without it there is no Trainer
    data = [{"input_ids": torch.arange(6) + i, "attention_mask": torch.ones(6, dtype=torch.long), "labels": torch.tensor(i % 2)} for i in range(8)]

    def ran(model):
        how = transformers.TrainingArguments(str(tmp_path), num_train_epochs=1, per_device_train_batch_size=4, report_to=[], disable_tqdm=True, use_cpu=True)
        trainer = transformers.Trainer(model=model, args=how, train_dataset=data, eval_dataset=data)
        loss = trainer.train().training_loss
        return trainer.label_names, loss, trainer.evaluate()["eval_loss"], trainer.predict(data).predictions.tolist()

    torch.manual_seed(0)
    plain = ran(classifier())
    if compiled:
        counter = CompileCounter()
        torch.manual_seed(0)
        ours = ran(torch.compile(classifier(), backend=counter))
        assert counter.frame_count >= 2
        assert ours[0] == plain[0] == ["labels"] and ours[1:3] == pytest.approx(plain[1:3], rel=1e-4)
        torch.testing.assert_close(torch.tensor(ours[3]), torch.tensor(plain[3]), rtol=1e-3, atol=1e-4)


def test_blocks_that_diffusers_allows_in_graphs():
    """Its transformer blocks carry the mark allow_in_graph, which says nothing of classes."""
    small = {"block_out_channels": (8, 8), "layers_per_block": 1, "cross_attention_dim": 8, "attention_head_dim": 2, "norm_num_groups": 4}
    blocks = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")}
    model = diffusers.UNet2DConditionModel(sample_size=8, **small, **blocks).eval()
    x, step, hidden = torch.randn(1, 4, 8, 8), torch.tensor(3), torch.randn(1, 3, 8)
    with torch.no_grad():
        expected = model(x, step, hidden).sample
        model.compile(backend=(counter := CompileCounter()), fullgraph=True)
        for _ in range(2):
            assert torch.allclose(model(x, step, hidden).sample, expected, atol=1e-6)
    assert counter.frame_count == 1


def test_lightning_s_trainer():
    lightning = pytest.importorskip("lightning.pytorch")

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 2)

        def training_step(self, batch, i):
            return self.net(batch).pow(2).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def trained(make):
        torch.manual_seed(0)
        model = Model()
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", **quiet)
        trainer.fit(make(model), torch.utils.data.DataLoader(torch.arange(32.0).view(8, 4), batch_size=4))
        return model.net.weight.tolist()

    assert trained(functools.partial(torch.compile, backend=(counter := CompileCounter()))) == trained(lambda model: model)
    assert counter.frame_count >= 1


def test_accelerate_and_peft_and_torchinfo():
    accelerate, peft, torchinfo = [pytest.importorskip(name) for name in ("accelerate", "peft", "torchinfo")]
    m, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4)
    compiled = torch.compile(m, backend="eager")
    summaries = [torchinfo.summary(model, (2, 4), verbose=0) for model in (m, compiled)]
    assert summaries[0].total_params == summaries[1].total_params and summaries[0].total_mult_adds == summaries[1].total_mult_adds
    accelerator = accelerate.Accelerator(cpu=True)
    prepared = accelerator.prepare(compiled)
    accelerator.backward(prepared(x).sum())
    assert m[0].weight.grad is not None and accelerator.unwrap_model(prepared, keep_torch_compile=False) is m
    adapted = peft.get_peft_model(torch.compile(m, backend="eager"), peft.LoraConfig(target_modules=["0"], r=2))
    assert torch.equal(adapted(x), m(x)) and len(peft.get_peft_model_state_dict(adapted)) == 2
