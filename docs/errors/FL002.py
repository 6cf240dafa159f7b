# %% event
import logging, sys
import torch
import fineline

log = logging.getLogger("fineline.guards")  # or: FINELINE_LOGS=guards in the environment
log.setLevel(logging.DEBUG)
log.addHandler(logging.StreamHandler(sys.stdout))
fineline.compile(lambda x: x.relu() + 1, backend="eager")(torch.ones(3))
