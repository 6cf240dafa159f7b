# %% event
import pathlib, tempfile, torch, fineline

def local_class():
    class Mode:                                        # no module has it: each process makes its own
        pass
    return Mode

def step(x, mode):
    return x * 2 if mode is None else (x + 1, mode)

compiled = fineline.compile(step, backend="eager")
compiled(torch.ones(3), None)
compiled(torch.ones(3), local_class())
fineline.save(compiled, pathlib.Path(tempfile.mkdtemp()) / "step.captures")
print(fineline.report(compiled))
