# %% failing
import torch
import fineline

def double(x):
    return x * 2

@fineline.compile(backend="eager")
async def f(x):
    return double(x)

f(torch.ones(3)).close()
print(fineline.report(f))

# %% fixed
import asyncio
import torch
import fineline

@fineline.compile(backend="eager")
def double(x):
    return x * 2

async def f(x):
    return double(x)

print(asyncio.run(f(torch.ones(3))))
