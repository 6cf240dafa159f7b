"""A Hugging Face model that generates, token by token, with a static cache and a compiled forward."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
model = LlamaForCausalLM(config).eval()
prompt = torch.randint(3, 64, (1, 6))


def decode_one_token(model, token, position, cache):
    logits = model(token, cache_position=position, past_key_values=cache, return_dict=False, use_cache=True)[0]
    return torch.argmax(logits[:, -1], dim=-1)[:, None]


@torch.no_grad()
def generate(decode, steps=8):
    cache = StaticCache(config=config, max_batch_size=1, max_cache_len=32, device="cpu", dtype=torch.float32)
    position = torch.arange(prompt.shape[1])
    token = decode_one_token(model, prompt, position, cache)
    out = [prompt, token]
    position = position[-1:] + 1
    for _ in range(steps):
        token = decode(model, token.clone(), position, cache)
        out.append(token)
        position = position + 1
    return torch.cat(out, 1)


expected = generate(decode_one_token)
compiled = torch.compile(decode_one_token, backend="aot_eager", fullgraph=True)
for _ in range(2):
    assert torch.equal(generate(compiled), expected)
