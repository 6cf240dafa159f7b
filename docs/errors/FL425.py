# %% failing
import torch
import fineline

def f(x):
    import wave
    return x + wave.WAVE_FORMAT_PCM

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import wave
import torch
import fineline

def f(x):
    return x + wave.WAVE_FORMAT_PCM

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
