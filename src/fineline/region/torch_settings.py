"""The table of PyTorch's compiler settings and environment variables, and their effects after `install`.

A row's ``effect``:

- "obeyed": the value holds from the next capture on.
- "so anyway": fineline always behaves as if the setting had its other value, or PyTorch itself ignores the setting.
- "backend": AOTAutograd, Inductor or PyTorch's fake tensors read it themselves, as under PyTorch's own compiler.
- "partly": it has an effect only in the backend; fineline reports that once.
- "none": it has no effect; fineline reports that once, with the row's text.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

Effect = Literal["obeyed", "so anyway", "backend", "partly", "none"]
REPORTED: frozenset[Effect] = frozenset({"partly", "none"})


class Row(NamedTuple):
    """The effect of a setting or variable on fineline."""

    effect: Effect
    text: str


_GUARDS = Row("none", "fineline has its own guards and shortcuts")
_NEVER_LEFT_OUT = Row("none", "fineline guards every value that code reads, and never leaves a guard out")
_GUARDED = Row("so anyway", "fineline guards every value that code reads")
_OTHER = Row("none", "it concerns only the internals of the other compiler")
_DEAD = Row("so anyway", "PyTorch itself ignores it now")
_REPRO = Row("backend", "for the repro scripts that Inductor writes")
_PGO = Row("none", "each process finds out for itself which sizes vary")
_MARK = Row("none", "mark sizes that vary with torch._dynamo.mark_dynamic, or pass dynamic=True")
_PRECOMPILED = Row("none", "there are no captures on disk; Inductor keeps its own cache of compiled graphs")
_DUPLICATES = Row("none", "equal calls share one sub-graph if torch.compiler.nested_compile_region marks the function")
_PARAMETERS = Row("none", "parameters are inputs of graphs")
_CUDAGRAPHS = Row("backend", 'for the backend "cudagraphs"')
_RANKS = Row("none", "each rank captures for itself")
_NUMPY = Row("none", "a NumPy number or array keeps the type that NumPy gives it")
_PROFILE = Row("none", "a capture is a plain Python call, which every profiler shows")
_FUNCTION_LISTS = Row("none", 'use rules: Policy(substitute=...) replaces a function, Policy(disable=["name"]) keeps one eager')
_SYMBOLIC = Row("backend", "for symbolic sizes, in torch.fx.experimental")

# The settings of torch._dynamo.config. An alias of another setting has no row.
DYNAMO: Mapping[str, Row] = MappingProxyType(
    {
        # -- options of regions
        "disable": Row("obeyed", "fineline captures nothing more; calls that fit a program still use it"),
        "recompile_limit": Row("obeyed", "the option of this name; torch.compile(recompile_limit=...) overrides it"),
        "error_on_recompile": Row("obeyed", "the option of this name"),
        "fail_on_recompile_limit_hit": Row("obeyed", "the option of this name"),
        "suppress_errors": Row("obeyed", "if the backend fails on a graph, the graph runs as it was captured"),
        "capture_scalar_outputs": Row("obeyed", "the option of this name"),
        "capture_dynamic_output_shape_ops": Row("obeyed", "the option of this name"),
        "assume_static_by_default": Row("obeyed", "False means dynamic=True if torch.compile(dynamic=...) is not given"),
        "automatic_dynamic_shapes": Row("obeyed", "False means dynamic=False if torch.compile(dynamic=...) is not given"),
        # -- limits and shapes
        "accumulated_recompile_limit": Row("none", "each region has its own recompile_limit; there is no other limit"),
        "skip_code_recursive_on_recompile_limit_hit": _DEAD,
        "minimum_call_count": Row("none", 'the first call is captured; torch.compiler.set_stance("eager_then_compile") waits for the second'),
        "specialize_int": Row("none", "dynamic=False keeps numbers constant"),
        "specialize_float": Row("none", "dynamic=False keeps numbers constant"),
        "dynamic_shapes": _DEAD,
        "automatic_dynamic_shapes_mark_as": Row("none", "a size that has changed becomes a symbol with guards; torch._dynamo.mark_unbacked makes one without"),
        "automatic_dynamic_exclusion_guard": _GUARDS,
        "force_parameter_static_shapes": Row("none", "a parameter's size varies only if mark_dynamic marks it"),
        "force_nn_module_property_static_shapes": Row("none", "a module's numbers vary once they have changed"),
        "allow_ignore_mark_dynamic": Row("none", "torch._dynamo.maybe_mark_dynamic allows that a size is constant"),
        "allow_unspec_int_on_nn_module": Row("so anyway", "a module's numbers vary once they have changed"),
        "prefer_deferred_runtime_asserts_over_guards": Row("none", "conditions on sizes are guards"),
        "do_not_emit_runtime_asserts": Row("none", "graphs check the conditions that they need on sizes that depend on data"),
        "force_unspec_int_unbacked_size_like_on_torchrec_kjt": _OTHER,
        "automatic_dynamic_local_pgo": Row("so anyway", "each process finds out for itself which sizes vary"),
        "automatic_dynamic_remote_pgo": _PGO,
        # -- what is captured
        "rewrite_assert_with_torch_assert": Row("none", "an assert on data becomes a check inside the graph"),
        "dead_code_elimination": Row("none", "the backend removes unused operators"),
        "replay_side_effects": Row("none", "side effects are always replayed"),
        "side_effect_replay_policy": Row("none", "side effects are always replayed"),
        "traceable_tensor_subclasses": Row("none", "whether a subclass of Tensor is captured depends on its methods"),
        "nontraceable_tensor_subclasses": Row("none", "whether a subclass of Tensor is captured depends on its methods"),
        "allowed_functions_module_string_ignorelist": Row("none", "rules define which functions are one node of the graph"),
        "skipfiles_inline_module_allowlist": _DEAD,
        "skip_torchrec": Row("none", 'use a rule: Policy(disable=["torchrec.*"])'),
        "dont_skip_tracing": Row("none", "torch._dynamo.dont_skip_tracing, and rules with the verb trace, trace skipped code"),
        "allow_rnn": Row("so anyway", "recurrent modules are captured"),
        "capture_sparse_compute": Row("none", "if a sparse tensor cannot be in a graph, the graph breaks"),
        "capture_autograd_function": Row("none", "autograd.Function classes are captured; Policy(disable=...) keeps one eager"),
        "capture_func_transforms": Row("none", "torch.func is captured; Policy(disable=...) keeps a function eager"),
        "capture_profiler_record_function": Row("none", "a block of the profiler runs at capture and leaves no trace in the graph"),
        "trace_numpy": Row("none", 'NumPy functions with a counterpart are captured; the option numpy="eager" leaves them to NumPy'),
        "numpy_default_float": _NUMPY,
        "numpy_default_complex": _NUMPY,
        "numpy_default_int": _NUMPY,
        "use_numpy_random_stream": Row("so anyway", "NumPy always draws its own random numbers"),
        "trace_autograd_ops": Row("none", "a call of torch.autograd.grad is captured if possible, and breaks the graph otherwise"),
        "enable_trace_contextlib": Row("none", "context managers of contextlib are traced like other Python code"),
        "enable_trace_unittest": Row("none", "unittest is traced like other Python code"),
        "computed_lazy_constant_max_nodes": _OTHER,
        "canonicalize_output_graph_node_order": Row("none", "the operators of a graph are in the order in which the code calls them"),
        "enable_trace_load_build_class": Row("none", "the body of a class is captured; if a metaclass or the like runs code, the statement runs eagerly"),
        "enable_faithful_generator_behavior": Row("none", "generators behave as in eager code"),
        "nested_graph_breaks": Row("so anyway", "a graph can break at any call depth, and the capture continues after the break"),
        "graph_break_on_nn_param_ctor": Row("none", "use a rule: Policy(disable=[torch.nn.Parameter])"),
        "only_allow_pt2_compliant_ops": Row("none", "use a rule: Policy(disallow=[...]) keeps operators out of graphs"),
        "enable_dynamo_decompositions": Row("none", "an operator is one node of the graph; the backend decomposes it"),
        "inline_torch_dispatch_torch_compile": Row("none", "a call under a dispatch mode runs eagerly"),
        "inline_inbuilt_nn_modules": _DEAD,
        "install_free_tensors": _PARAMETERS,
        "install_free_tensors_for_export": _PARAMETERS,
        "prepare_freezing": _PARAMETERS,
        "allow_empty_graphs": Row("none", "a graph without operators is not given to the backend"),
        "wrap_top_frame": Row("so anyway", "a module's hooks are captured with it"),
        "leaf_function_validate_outputs": _OTHER,
        "leaf_function_check_escaped_gradients": _OTHER,
        "enable_invoke_subgraph_regional_compile": _DUPLICATES,
        "inline_invoke_subgraph": _DUPLICATES,
        "inline_single_use_invoke_subgraph": _DUPLICATES,
        "use_graph_deduplication": _DUPLICATES,
        "track_nodes_for_deduplication": _DUPLICATES,
        "graph_deduplication_lint": _DUPLICATES,
        "skip_fwd_side_effects_in_bwd_under_checkpoint": Row("none", "under a checkpoint, the function's writes happen as in eager code"),
        "constant_fold_autograd_profiler_enabled": _OTHER,
        "reorderable_logging_functions": _FUNCTION_LISTS,
        "ignore_logging_functions": _FUNCTION_LISTS,
        # -- guards
        "guard_nn_modules": _NEVER_LEFT_OUT,
        "guard_nn_modules_using_dict_tags": _GUARDS,
        "use_lamba_guard_for_object_aliasing": _GUARDS,
        "skip_fsdp_guards": _GUARDED,
        "skip_nnmodule_hook_guards": _GUARDED,
        "skip_no_tensor_aliasing_guards_on_parameters": _GUARDED,
        "skip_tensor_guards_with_matching_dict_tags": _GUARDED,
        "skip_guards_on_constant_func_defaults": _NEVER_LEFT_OUT,
        "assume_dunder_attributes_remain_unchanged": _GUARDED,
        "use_recursive_dict_tags_for_guards": _GUARDS,
        "max_saved_pointers_for_recursive_dict_tags_check": _GUARDS,
        "enable_cpp_guard_manager": Row("none", 'options={"evaluator": "reference"} evaluates guards in Python'),
        "enable_cpp_symbolic_shape_guards": _GUARDS,
        "enable_cpp_framelocals_guard_eval": _GUARDS,
        # -- other compilers around it and inside of it
        "raise_on_ctx_manager_usage": Row("none", "torch._dynamo.optimize is a decorator"),
        "raise_on_unsafe_aot_autograd": _OTHER,
        "error_on_nested_jit_trace": Row("so anyway", "a call under torch.jit.trace runs eagerly"),
        "error_on_nested_fx_trace": Row("so anyway", "a call that torch.fx traces runs eagerly"),
        "force_compile_during_fx_trace": Row("none", "a call that torch.fx traces runs eagerly"),
        "error_on_dynamo_callback_in_fullgraph_compiled_code": _OTHER,
        "compiled_autograd": Row("none", "the backend compiles the backward pass"),
        "compiled_autograd_kwargs_override": Row("none", "the backend compiles the backward pass"),
        "optimize_ddp": Row("obeyed", "whether graphs are cut at the buckets of DistributedDataParallel"),
        "optimize_ddp_lazy_compile": Row("none", "the parts of a graph are compiled when it is captured"),
        "enable_compiler_collectives": _RANKS,
        "enable_p2p_compilation": _RANKS,
        "cudagraph_backend_keep_input_mutation": _CUDAGRAPHS,
        "cudagraph_backend_support_input_mutation": _CUDAGRAPHS,
        "fake_tensor_cache_enabled": Row("backend", "for PyTorch's fake tensors"),
        "fake_tensor_cache_crosscheck_enabled": Row("backend", "for PyTorch's fake tensors"),
        "fake_tensor_disable_inference_mode": _OTHER,
        # -- caches and logs
        "caching_precompile": _PRECOMPILED,
        "strict_precompile": _PRECOMPILED,
        "enable_aot_compile": Row("so anyway", "a compiled callable has no aot_compile"),
        "use_lazy_graph_module": Row("so anyway", "a graph's module has its code from the start"),
        "run_gc_after_compile": Row("so anyway", "a capture does not collect garbage"),
        "gc_gen2_threshold_during_compile": Row("so anyway", "a capture leaves the collector's thresholds alone"),
        "invalidate_compile_context_weakrefs": _OTHER,
        "verbose": Row("so anyway", "errors and explanations always contain all details"),
        "log_file_name": Row("none", 'fineline\'s records go to the logger "fineline"; FINELINE_LOGS sets what it records'),
        "log_graph_in_out_metadata": _OTHER,
        "log_compilation_metrics": Row("so anyway", "fineline does not record this"),
        "report_guard_failures": Row("so anyway", "fineline prints nothing unless FINELINE_LOGS=recompiles is set"),
        "issue_3_13_0_warning": Row("so anyway", "fineline has no such warning"),
        "generate_pycode": Row("none", "explain(f)(*args).program is the Python source that runs instead of f"),
        "cprofile": _PROFILE,
        "dynamo_profiler": _PROFILE,
        "record_compile_time_instruction_count": _PROFILE,
        "record_runtime_overhead": Row("so anyway", "fineline does not record this"),
        "pt2_compile_id_prefix": Row("none", "fineline's captures have no ids"),
        "verify_correctness": Row("none", 'backend="eager", then backend="aot_eager", show which part gives a wrong result'),
        "debug_backend_override": Row("none", "fineline's graphs have no numbers that stay valid after a run"),
        "debug_inductor_config_override": Row("none", "fineline's graphs have no numbers that stay valid after a run"),
        "debug_dynamo_config_override": Row("none", "fineline's graphs have no numbers that stay valid after a run"),
        "debug_force_nested_calls": _OTHER,
        "debug_force_graph_break_on_leaf_return": _OTHER,
        "debug_disable_compile_counter": _OTHER,
        "inject_BUILD_SET_unimplemented_TESTING_ONLY": _OTHER,
        "replay_record_enabled": Row("none", "explain(f)(*args) shows what a capture did"),
        "repro_after": Row("partly", '"aot" makes Inductor write repro scripts; "dynamo" does nothing'),
        "repro_level": _REPRO,
        "repro_forward_only": _REPRO,
        "repro_tolerance": _REPRO,
        "repro_ignore_non_fp": _REPRO,
        "same_two_models_use_fp64": _REPRO,
        "debug_dir_root": Row("backend", "the folder that Inductor writes to under TORCH_COMPILE_DEBUG"),
        "base_dir": _OTHER,
    }
)

# The settings of torch.compiler.config that are not aliases of these.
COMPILER: Mapping[str, Row] = MappingProxyType(
    {
        "job_id": _PGO,
        "pgo_extra_read_key": _PGO,
        "pgo_extra_write_key": _PGO,
        "dynamic_sources": _MARK,
        "dynamic_values": _MARK,
        "static_sources": Row("none", "mark sizes that stay with torch._dynamo.mark_static, or pass dynamic=False"),
        "unbacked_sources": Row("none", "mark unbacked sizes with torch._dynamo.mark_unbacked"),
        "cache_key_tag": Row("backend", "for Inductor's caches"),
        "force_disable_caches": Row("backend", "for Inductor's caches"),
        "force_cudagraph_gc": Row("backend", "for Inductor's CUDA graphs"),
        "compile_on_one_rank": Row("backend", "for make_fx, Inductor and torch.distributed"),
    }
)

# Environment variables that give a setting its first value: they do what the setting does.
FIRST_VALUES: Mapping[str, str] = MappingProxyType(
    {
        "TORCH_COMPILE_DISABLE": "disable",
        "TORCHDYNAMO_SUPPRESS_ERRORS": "suppress_errors",
        "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS": "capture_scalar_outputs",
        "TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS": "capture_dynamic_output_shape_ops",
        "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES": "automatic_dynamic_shapes",
        "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO": "automatic_dynamic_local_pgo",
        "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_REMOTE_PGO": "automatic_dynamic_remote_pgo",
        "TORCH_DYNAMO_DO_NOT_EMIT_RUNTIME_ASSERTS": "do_not_emit_runtime_asserts",
        "TORCH_DYNAMO_RUN_GC_AFTER_COMPILE": "run_gc_after_compile",
        "TORCH_DYNAMO_GC_GEN2_THRESHOLD_DURING_COMPILE": "gc_gen2_threshold_during_compile",
        "TORCHDYNAMO_VERBOSE": "verbose",
        "TORCHDYNAMO_PREPARE_FREEZING": "prepare_freezing",
        "TORCHDYNAMO_REPRO_AFTER": "repro_after",
        "TORCHDYNAMO_REPRO_LEVEL": "repro_level",
        "TORCHDYNAMO_REPRO_FORWARD_ONLY": "repro_forward_only",
        "TORCHDYNAMO_REPRO_IGNORE_NON_FP": "repro_ignore_non_fp",
        "TORCHDYNAMO_ENABLE_P2P_COMPILATION": "enable_p2p_compilation",
        "TORCH_COMPILER_COLLECTIVES": "enable_compiler_collectives",
        "TORCH_COMPILE_CPROFILE": "cprofile",
        "TORCH_COMPILE_DYNAMO_PROFILER": "dynamo_profiler",
        "TORCH_COMPILE_REPLAY_RECORD": "replay_record_enabled",
        "TORCH_COMPILE_USE_LAZY_GRAPH_MODULE": "use_lazy_graph_module",
        "TORCH_COMPILE_DEBUG_DIR": "debug_dir_root",
        "TORCH_COMPILE_OVERRIDE_BACKENDS": "debug_backend_override",
        "TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS": "debug_inductor_config_override",
        "TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS": "debug_dynamo_config_override",
        "TORCH_CACHING_PRECOMPILE": "caching_precompile",
        "TORCH_STRICT_PRECOMPILE": "strict_precompile",
        "TORCH_FAKE_TENSOR_DISPATCH_CACHE": "fake_tensor_cache_enabled",
        "TORCH_FAKE_TENSOR_DISPATCH_CACHE_CROSSCHECK": "fake_tensor_cache_crosscheck_enabled",
        "PT2_COMPILE_ID_PREFIX": "pt2_compile_id_prefix",
        "TORCH_COMPILE_JOB_ID": "job_id",
        "TORCH_COMPILE_STICKY_PGO_KEY": "job_id",
        "TORCH_COMPILE_STICKY_PGO_READ": "pgo_extra_read_key",
        "TORCH_COMPILE_STICKY_PGO_WRITE": "pgo_extra_write_key",
        "TORCH_COMPILE_DYNAMIC_SOURCES": "dynamic_sources",
        "TORCH_COMPILE_DYNAMIC_VALUES": "dynamic_values",
        "TORCH_COMPILE_STATIC_SOURCES": "static_sources",
        "TORCH_COMPILE_UNBACKED_SOURCES": "unbacked_sources",
        "TORCH_COMPILE_CACHE_KEY_TAG": "cache_key_tag",
        "TORCH_COMPILE_FORCE_DISABLE_CACHES": "force_disable_caches",
        "TORCH_COMPILE_ON_ONE_RANK": "compile_on_one_rank",
    }
)

# The other environment variables.
ENVIRONMENT: Mapping[str, Row] = MappingProxyType(
    {
        "TORCHDYNAMO_DISABLE": Row("obeyed", "1: torch.compile returns what it is given"),
        "TORCH_COMPILE_DEBUG": Row("backend", "Inductor writes its intermediate forms to files"),
        "TORCH_COMPILE_DEBUG_SAVE_REAL": Row("backend", "for Inductor's debug files"),
        "TORCH_COMPILE_DEBUG_EXTEND": Row("backend", "for Inductor's profiles"),
        "TORCH_COMPILE_DEBUG_MAX_EVENTS": Row("backend", "for Inductor's profiles"),
        "TORCH_COMPILE_WORKER_MODE": Row("backend", "for the workers of Inductor"),
        "TORCH_COMPILE_GRAPH_FORMAT": Row("backend", "for the pictures of graphs that AOTAutograd and Inductor draw"),
        "TORCHDYNAMO_AUTO_FUNCTIONALIZED_V2": Row("backend", "for Inductor"),
        "TORCH_FAKE_TENSOR_DEBUG": Row("backend", "for PyTorch's fake tensors"),
        "TORCHDYNAMO_NO_DATA_DEPENDENT_GRAPH_BREAK": _SYMBOLIC,
        "TORCHDYNAMO_TRANSLATION_VALIDATION": _SYMBOLIC,
        "TORCHDYNAMO_TRANSLATION_VALIDATION_TIMEOUT": _SYMBOLIC,
        "TORCHDYNAMO_TRANSLATION_NO_BISECT": _SYMBOLIC,
        "TORCHDYNAMO_EXTENDED_DEBUG_GUARD_ADDED": _SYMBOLIC,
        "TORCHDYNAMO_EXTENDED_DEBUG_CREATE_SYMBOL": _SYMBOLIC,
        "TORCHDYNAMO_EXTENDED_DEBUG_CPP": _SYMBOLIC,
        "TORCHDYNAMO_EXTENDED_ADVICE": _SYMBOLIC,
        "TORCHDYNAMO_DEBUG_FUNCTION": Row("none", 'use rules: Policy(disable=["pkg.*"], trace=["pkg.f"])'),
        "TORCHDYNAMO_PRINT_MISSING": Row("none", "explain(f)(*args) shows what runs eagerly"),
        "UNSAFE_SKIP_FSDP_MODULE_GUARDS": _NEVER_LEFT_OUT,
        "TORCH_COMPILE_STROBELIGHT": Row("backend", "for a profiler inside Meta"),
        "TORCH_COMPILE_BACKEND": Row("backend", "set for the programs that torch._inductor.compiler_bisector runs; they read it themselves"),
        # The backends obey these; FINELINE_LOGS sets what fineline logs.
        "TORCH_LOGS": Row("obeyed", "turns on the category of FINELINE_LOGS for each topic; AOTAutograd and Inductor handle their own topics"),
        "TORCH_LOGS_OUT": Row("backend", "for PyTorch's own logs"),
        "TORCH_LOGS_FORMAT": Row("backend", "for PyTorch's own logs"),
        "TORCH_LOGS_TRACE_ID_FILTER": Row("backend", "for PyTorch's own logs"),
        "TORCH_TRACE": Row("backend", "for PyTorch's own logs"),
    }
)

# The release that brought a setting or variable, if it is not the oldest that fineline runs on.
SINCE: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "computed_lazy_constant_max_nodes": (2, 14),
        "canonicalize_output_graph_node_order": (2, 14),
        "compile_on_one_rank": (2, 14),
        "TORCH_COMPILE_ON_ONE_RANK": (2, 14),
        "TORCH_COMPILE_DEBUG_EXTEND": (2, 14),
        "TORCH_COMPILE_DEBUG_MAX_EVENTS": (2, 14),
        "gc_gen2_threshold_during_compile": (2, 15),
        "TORCH_DYNAMO_GC_GEN2_THRESHOLD_DURING_COMPILE": (2, 15),
        "static_sources": (2, 15),
        "TORCH_COMPILE_STATIC_SOURCES": (2, 15),
        "TORCH_COMPILE_WORKER_MODE": (2, 15),
    }
)
