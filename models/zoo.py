"""A zoo of real models for testing graph-capture front ends.

Every model's code comes from a published package (transformers, diffusers,
torch_geometric, torch.nn) or is a training step over such models.
Weights are random; hidden sizes are small; depths are those of the published
base configuration where that is affordable.

    import zoo
    b = zoo.build("hf_bert_mlm")       # seeded, eval mode
    b.fn(*b.args, **b.kwargs)

`REGISTRY[name]` is an Entry: kind, family, package, tags, whether a train run
makes sense.  `build()` gives a fresh, identical instance on every call.

kinds:  module    an nn.Module (or a plain function): forward is compiled
        step      a whole training step (forward, backward, optimizer) is compiled
        generate  a decode loop / model.generate() is compiled
"""
from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)


# --------------------------------------------------------------------------
# registry
# --------------------------------------------------------------------------
TAGS = {
    "datadep": "data-dependent control flow or shapes (python branch on a tensor value, .item(), nonzero, nms)",
    "kwargs": "called with keyword arguments",
    "modeloutput": "returns a HF ModelOutput / dataclass / dict / custom object",
    "cache": "creates, mutates or returns a KV / state cache object",
    "loop": "long python loop over time steps, layers or solver steps",
    "rng": "uses random numbers in eval mode",
    "rng_train": "python/np/tensor randomness decides control flow in train mode (LayerDrop, stochastic depth, masking)",
    "buffers": "mutates module buffers or attributes in forward",
    "inplace": "mutates an input or uses in-place / view tricks heavily",
    "autogradfn": "uses torch.autograd.Function",
    "hooks": "forward / backward hooks, parametrizations, weight_norm",
    "functorch": "torch.func vmap / grad / functional_call",
    "numpy": "goes through numpy inside forward",
    "jit": "contains torch.jit scripted pieces",
    "einops": "einops calls inside forward",
    "rnn": "nn.LSTM / GRU cells",
    "complex": "complex dtypes or FFT",
    "moe": "mixture of experts",
    "optimizer": "optimizer inside the compiled region",
    "backward": "backward() or autograd.grad inside the compiled region",
    "lists": "takes or returns python lists / dicts of tensors",
    "dist": "torch.distributions objects inside forward",
    "sparse": "scatter / gather on graph edges, sparse ops",
    "custom_op": "a torch.library custom op in the graph",
    "lazy": "python objects with operator overloading or caching around tensors",
}


@dataclass
class Entry:
    name: str
    build: Callable
    family: str
    pkg: str
    kind: str = "module"
    train: bool = True
    tags: tuple = ()
    tol: tuple = (1e-4, 1e-5)
    note: str = ""


@dataclass
class Built:
    entry: Entry
    fn: Any
    args: tuple
    kwargs: dict
    modules: list = field(default_factory=list)


REGISTRY: dict[str, Entry] = {}


def model(name, family, pkg, *, kind="module", train=True, tags="", tol=(1e-4, 1e-5), note=""):
    tags = tuple(tags.split())
    for t in tags:
        assert t in TAGS, t
    if kind == "generate":
        train = False
    if kind == "step":
        train = True

    def deco(f):
        assert name not in REGISTRY, name
        REGISTRY[name] = Entry(name, f, family, pkg, kind, train, tags, tol, note)
        return f

    return deco


def seed_all(seed=0):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _sanitize(mod):
    """Parameters left uninitialised (torch.empty) get small random values."""
    with torch.no_grad():
        for n, p in list(mod.named_parameters()) + list(mod.named_buffers()):
            if p is None or not p.is_floating_point() or p.device.type == "meta" or p.numel() == 0:
                continue
            if isinstance(p, torch.nn.parameter.UninitializedTensorMixin):
                continue
            if n.endswith(("mask", "inv_freq", "running_var")):
                continue
            bad = ~torch.isfinite(p)
            if bad.any() or (isinstance(p, nn.Parameter) and p.abs().max() > 1e4):
                p.copy_(torch.randn(p.shape) * 0.02)


def build(name: str, seed: int = 0) -> Built:
    """A fresh instance: (fn, args, kwargs), eval mode, seeded."""
    e = REGISTRY[name]
    seed_all(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = e.build()
    fn, args = out[0], out[1]
    kwargs = out[2] if len(out) > 2 else {}
    mods = list(getattr(fn, "__zoo_modules__", ()))
    if isinstance(fn, nn.Module):
        mods = [fn]
    for m in mods:
        if isinstance(m, nn.Module):
            if e.kind != "step":
                m.eval()
            _sanitize(m)
    return Built(e, fn, tuple(args), dict(kwargs), mods)


def tie(fn, *modules):
    """Marks the modules (or optimizers) whose state a plain function touches."""
    fn.__zoo_modules__ = list(modules)
    return fn


# --------------------------------------------------------------------------
# input helpers
# --------------------------------------------------------------------------
def ids(*shape, v=1000, lo=5):
    return torch.randint(lo, v, shape)


def mask(b, s):
    m = torch.ones(b, s, dtype=torch.long)
    m[-1, s - max(1, s // 4):] = 0
    return m


def img(b=1, s=32, c=3):
    return torch.randn(b, c, s, s)


def tf():
    import transformers

    transformers.logging.set_verbosity_error()
    return transformers


# --------------------------------------------------------------------------
# HF: text
# --------------------------------------------------------------------------
V = 1000
ENC = {"vocab_size": V, "hidden_size": 64, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 128,
           "max_position_embeddings": 128}


def enc_inputs(b=2, s=16, **extra):
    d = {"input_ids": ids(b, s, v=V), "attention_mask": mask(b, s)}
    d.update(extra)
    return d


def hf(name, family, cls, cfg, conf, inputs, *, tags="kwargs modeloutput", train=True, note="", tol=(1e-4, 1e-5)):
    """Registers a HF model.  conf: dict or callable -> dict; inputs: callable -> kwargs."""

    @model(name, family, "transformers", tags=tags, train=train, note=note, tol=tol)
    def _build():
        t = tf()
        c = conf() if callable(conf) else conf
        config = getattr(t, cfg)(**c) if cfg else c["config"]
        m = getattr(t, cls)(config)
        return m, (), inputs()


hf("hf_bert_mlm", "hf-encoder", "BertForMaskedLM", "BertConfig", ENC, lambda: enc_inputs(labels=ids(2, 16)))
hf("hf_deberta_v2", "hf-encoder", "DebertaV2ForSequenceClassification", "DebertaV2Config",
   {**ENC, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8, "norm_rel_ebd": "layer_norm",
    "share_att_key": True}, enc_inputs, tags="kwargs modeloutput jit autogradfn")
hf("hf_longformer_mlm", "hf-encoder", "LongformerForMaskedLM", "LongformerConfig",
   {**ENC, "attention_window": 8, "pad_token_id": 1},
   lambda: enc_inputs(2, 32, global_attention_mask=torch.eye(2, 32, dtype=torch.long)),
   tags="kwargs modeloutput datadep inplace")

# -- decoders --------------------------------------------------------------
LLAMA = {"vocab_size": V, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 16, "num_attention_heads": 4,
             "num_key_value_heads": 2, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DT = "kwargs modeloutput cache"

hf("hf_bloom", "hf-decoder", "BloomForCausalLM", "BloomConfig",
   {"vocab_size": V, "hidden_size": 64, "n_layer": 12, "n_head": 4}, enc_inputs, tags=DT)
hf("hf_llama", "hf-decoder", "LlamaForCausalLM", "LlamaConfig", LLAMA, lambda: enc_inputs(labels=ids(2, 16)), tags=DT)
hf("hf_mixtral", "hf-decoder", "MixtralForCausalLM", "MixtralConfig",
   {**LLAMA, "num_hidden_layers": 8, "num_local_experts": 4, "num_experts_per_tok": 2}, enc_inputs, tags=DT + " moe datadep")

# -- state space / recurrent ----------------------------------------------
hf("hf_mamba", "hf-ssm", "MambaForCausalLM", "MambaConfig",
   {"vocab_size": V, "hidden_size": 64, "num_hidden_layers": 8, "state_size": 8}, lambda: {"input_ids": ids(1, 12)},
   tags="kwargs modeloutput cache loop", note="slow path: python scan over 12 steps; 8 of 24 layers")

# -- encoder-decoder -------------------------------------------------------


hf("hf_t5", "hf-encdec", "T5ForConditionalGeneration", "T5Config",
   {"vocab_size": V, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 6, "num_heads": 4, "decoder_start_token_id": 0},
   lambda: {"input_ids": ids(2, 16), "attention_mask": mask(2, 16), "labels": ids(2, 8)}, tags=DT)
hf("hf_switch_transformers", "hf-encdec", "SwitchTransformersForConditionalGeneration", "SwitchTransformersConfig",
   {"vocab_size": V, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 6, "num_sparse_encoder_layers": 3, "num_decoder_layers": 6,
        "num_sparse_decoder_layers": 3, "num_heads": 4, "num_experts": 4, "expert_capacity": 16, "decoder_start_token_id": 0},
   lambda: {"input_ids": ids(2, 16), "attention_mask": mask(2, 16), "labels": ids(2, 8)}, tags=DT + " moe datadep")

# -- vision ---------------------------------------------------------------
VIT = {"hidden_size": 64, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 128, "image_size": 32, "patch_size": 8}


def px(b=2, s=32):
    return lambda: {"pixel_values": img(b, s)}


hf("hf_vit", "hf-vision", "ViTForImageClassification", "ViTConfig", VIT, px())


def _detr_conf():
    t = tf()
    return {"config": t.DetrConfig(
        backbone_config=t.ResNetConfig(embedding_size=8, hidden_sizes=[16, 16, 32, 32], depths=[3, 4, 6, 3], out_features=["stage4"]),
        use_timm_backbone=False, use_pretrained_backbone=False, d_model=64, encoder_layers=6, decoder_layers=6, encoder_ffn_dim=128,
        decoder_ffn_dim=128, encoder_attention_heads=4, decoder_attention_heads=4, num_queries=10)}


hf("hf_detr", "hf-detection", "DetrForObjectDetection", None, _detr_conf, px(1, 64), tags="kwargs modeloutput rng_train")


# -- multimodal -----------------------------------------------------------
CLIP_T = {"vocab_size": V, "hidden_size": 64, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 32,
              "eos_token_id": 2, "bos_token_id": 1}
CLIP_V = {"hidden_size": 64, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 128, "image_size": 32, "patch_size": 8}
hf("hf_clip", "hf-multimodal", "CLIPModel", None,
   lambda: {"config": tf().CLIPConfig(text_config=CLIP_T, vision_config=CLIP_V, projection_dim=32)},
   lambda: {"input_ids": ids(2, 16), "attention_mask": mask(2, 16), "pixel_values": img(2, 32), "return_loss": True})


# -- audio ----------------------------------------------------------------


hf("hf_whisper", "hf-audio", "WhisperForConditionalGeneration", "WhisperConfig",
   {"vocab_size": V, "d_model": 64, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128, "max_source_positions": 50, "max_target_positions": 32, "num_mel_bins": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 3}, lambda: {"input_features": torch.randn(1, 16, 100), "decoder_input_ids": ids(1, 8)}, tags=DT + " rng_train")


# --------------------------------------------------------------------------
# diffusers
# --------------------------------------------------------------------------
def df(name, cls, conf, inputs, *, family="diffusion", tags="kwargs modeloutput", train=True, tol=(1e-4, 1e-5), note=""):
    @model(name, family, "diffusers", tags=tags, train=train, tol=tol, note=note)
    def _build():
        tf()
        import diffusers

        m = getattr(diffusers, cls)(**(conf() if callable(conf) else conf))
        return m, (), inputs()


df("df_unet2d_ddpm", "UNet2DModel",
   {"sample_size": 16, "in_channels": 3, "out_channels": 3, "layers_per_block": 2, "block_out_channels": (16, 32, 32), "norm_num_groups": 8,
        "attention_head_dim": 8, "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "AttnUpBlock2D", "UpBlock2D")},
   lambda: {"sample": img(1, 16), "timestep": 10})


# --------------------------------------------------------------------------
# graphs (PyG)
# --------------------------------------------------------------------------
def edges(n=30, e=90):
    return torch.randint(0, n, (2, e))


def pyg(name, build_, inp, tags="sparse", train=True, note=""):
    @model("pyg_" + name, "gnn", "torch-geometric", tags=tags, train=train, note=note)
    def _build():
        import torch_geometric.nn as g

        return build_(g), inp(), {}


pyg("gcn", lambda g: g.GCN(16, 32, num_layers=3, out_channels=7), lambda: (torch.randn(30, 16), edges()))


# --------------------------------------------------------------------------
# torch.nn itself, and TorchBench models
# --------------------------------------------------------------------------
@model("torch_nn_transformer", "encdec", "torch", tags="kwargs")
def _():
    m = nn.Transformer(d_model=64, nhead=4, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=128, batch_first=True)
    return m, (torch.randn(2, 10, 64), torch.randn(2, 8, 64)), {"tgt_mask": nn.Transformer.generate_square_subsequent_mask(8), "tgt_is_causal": True}


# --------------------------------------------------------------------------
# training steps: forward + backward + optimizer inside the compiled function
# --------------------------------------------------------------------------
def step(name, family, pkg, *, tags="", note="", tol=(1e-3, 1e-4)):
    return model("step_" + name, family, pkg, kind="step", tags="backward optimizer " + tags, note=note, tol=tol)


@step("bert_adamw", "train-step", "transformers", tags="modeloutput kwargs")
def _():
    t = tf()
    m = t.BertForSequenceClassification(t.BertConfig(**{**ENC, "num_hidden_layers": 4})).train()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3)

    def train_step(input_ids, attention_mask, labels):
        opt.zero_grad()
        out = m(input_ids=input_ids, attention_mask=attention_mask, labels=labels)
        out.loss.backward()
        opt.step()
        return out.loss.detach()

    return tie(train_step, m, opt), (ids(2, 16), mask(2, 16), torch.tensor([0, 1]))


class _DCGAN:
    @staticmethod
    def nets():
        # torchvision has no GAN: the PyTorch examples' DCGAN shapes
        g = nn.Sequential(nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(True), nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
                          nn.BatchNorm2d(16), nn.ReLU(True), nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False), nn.Tanh())
        d = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32),
                          nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(32, 1, 4, 1, 0, bias=False), nn.Sigmoid())
        return g, d


@step("dcgan", "train-step", "pytorch/examples (layer shapes)", tags="rng buffers inplace", note="two networks, two optimizers, three backward calls")
def _():
    g, d = _DCGAN.nets()
    og, od = torch.optim.Adam(g.parameters(), 2e-4, (0.5, 0.999)), torch.optim.Adam(d.parameters(), 2e-4, (0.5, 0.999))
    bce = nn.BCELoss()

    def train_step(real):
        b = real.size(0)
        d.zero_grad()
        label = torch.full((b,), 1.0)
        err_real = bce(d(real).view(-1), label)
        err_real.backward()
        fake = g(torch.randn(b, 16, 1, 1))
        label.fill_(0.0)
        err_fake = bce(d(fake.detach()).view(-1), label)
        err_fake.backward()
        od.step()
        g.zero_grad()
        label.fill_(1.0)
        err_g = bce(d(fake).view(-1), label)
        err_g.backward()
        og.step()
        return (err_real + err_fake).item(), err_g.item()

    return tie(train_step, g, d, og, od), (img(4, 16),)


@step("lstm_lm_tbptt", "train-step", "torch (nn.LSTM)", tags="rnn", note="word language model of pytorch/examples: hidden state detached and returned, manual SGD")
def _():
    class RNNModel(nn.Module):  # pytorch/examples word_language_model
        def __init__(self):
            super().__init__()
            self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(100, 32)
            self.rnn, self.decoder = nn.LSTM(32, 32, 2, dropout=0.2), nn.Linear(32, 100)
            self.decoder.weight = self.encoder.weight

        def forward(self, x, h):
            o, h = self.rnn(self.drop(self.encoder(x)), h)
            return F.log_softmax(self.decoder(self.drop(o)).view(-1, 100), dim=1), h

    m = RNNModel().train()

    def repackage(h):
        return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage(v) for v in h)

    def train_step(x, y, hidden):
        m.zero_grad()
        hidden = repackage(hidden)
        out, hidden = m(x, hidden)
        loss = F.nll_loss(out, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 0.25)
        for p in m.parameters():
            p.data.add_(p.grad, alpha=-1.0)
        return loss.detach(), repackage(hidden)

    return tie(train_step, m), (ids(8, 4, v=100, lo=0), ids(32, v=100, lo=0), (torch.zeros(2, 4, 32), torch.zeros(2, 4, 32)))


# --------------------------------------------------------------------------
# decode loops
# --------------------------------------------------------------------------
def gen(name, family, pkg, *, tags="", note=""):
    return model("gen_" + name, family, pkg, kind="generate", tags="loop " + tags, note=note)


def _gpt2_small():
    t = tf()
    return t.GPT2LMHeadModel(t.GPT2Config(vocab_size=V, n_embd=64, n_layer=4, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0)).eval()


@gen("gpt2_greedy", "generate", "transformers", tags="cache datadep kwargs", note="model.generate, 6 new tokens")
def _():
    m = _gpt2_small()

    def run(x, am):
        return m.generate(x, attention_mask=am, max_new_tokens=6, do_sample=False, pad_token_id=0)

    return tie(run, m), (ids(2, 6), torch.ones(2, 6, dtype=torch.long))


