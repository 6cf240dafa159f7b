# %% failing
import decimal
import torch
import fineline

class Price(decimal.Decimal):
    pass

def f(x):
    return x * float(Price("1.5"))

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import decimal
import torch
import fineline

def f(x, price):
    return x * price

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3), float(decimal.Decimal("1.5"))))
