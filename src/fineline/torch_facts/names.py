"""Facts about PyTorch's callables, by namespace: names whose class is not the namespace's default. `callables` defines the classes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "metadata": "_debug_has_internal_overlap _has_compatible_shallow_copy_type _is_zerotensor can_cast get_device is_complex "
        "is_conj is_distributed is_floating_point is_inference is_neg is_same_size is_signed numel promote_types q_per_channel_axis "
        "q_scale q_zero_point result_type _nested_get_ragged_idx _use_cudnn_ctc_loss _use_cudnn_rnn_flatten_weight "
        "_use_miopen_ctc_loss",
        "data": "allclose equal is_nonzero _nested_get_max_seqlen _nested_get_min_seqlen _nested_tensor_from_mask_left_aligned _cslt_sparse_mm_search",
        "query": "is_vulkan_available",
        "effect": "_from_blob from_file from_numpy frombuffer _propagate_xla_data _cudnn_init_dropout_state _cudnn_rnn_flatten_weight "
        "sym_constrain_range sym_constrain_range_for_size _functional_sym_constrain_range _functional_sym_constrain_range_for_size",
    }
)
"""`torch._C._VariableFunctions` (the C functions in `torch`); by default `op`."""

METHODS: Mapping[str, str] = MappingProxyType(
    {
        "metadata": "__len__ _dimI _dimV _is_view _is_zerotensor _nested_tensor_size _nested_tensor_storage_offsets "
        "_nested_tensor_strides _nnz dense_dim dim dim_order element_size get_device is_coalesced is_complex is_conj is_contiguous "
        "is_distributed is_floating_point is_inference is_neg is_pinned is_same_size is_set_to is_shared is_signed ndimension "
        "nelement numel q_per_channel_axis q_scale q_zero_point qscheme size sparse_dim storage_offset stride",
        "data": "__array__ __array_wrap__ __bool__ __complex__ __contains__ __dlpack__ __float__ __format__ __index__ __int__ "
        "__long__ __nonzero__ __repr__ _use_count allclose const_data_ptr data_ptr equal is_nonzero item numpy tolist",
        "effect": "__deepcopy__ __new__ __reduce_ex__ __setstate__ _clear_non_serializable_cached_data _dtensor__new__ _fix_weakref "
        "_make_subclass _make_wrapper_subclass _reduce_ex_internal _rev_view_func_unsafe _typed_storage _view_func _view_func_unsafe "
        "apply_ backward map2_ map_ module_load record_stream register_hook register_post_accumulate_grad_hook reinforce retain_grad "
        "share_memory_ storage storage_type untyped_storage",
        "query": "__dlpack_device__",
        "python": "__dir__ __hash__ __iter__ __reversed__ eig lstsq resize resize_as solve symeig",
    }
)
"""`torch.Tensor` and its C base; by default `op`, Python methods too."""

NN: Mapping[str, str] = MappingProxyType({"metadata": "_parse_to"})
"""`torch._C._nn`; by default `op`."""

C_MODULES = "_fft _linalg _nested _sparse _special"
"""Modules of `torch._C` whose functions are all `op`."""

FUNCTIONAL_PYTHON = (
    "assert_int_or_pair boolean_dispatch grouped_mm handle_torch_function linear_cross_entropy lp_pool3d pad rms_norm scaled_grouped_mm "
    "scaled_mm triplet_margin_with_distance_loss"
)
"""Public Python functions of `torch.nn.functional` that are traced into; all others there are `op`, private ones `python`."""

TORCH_PYTHON: Mapping[str, str] = MappingProxyType(
    {
        "op": "atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors cartesian_prod cdist chain_matmul einsum lobpcg lu "
        "meshgrid norm pca_lowrank split stft svd_lowrank tensordot unique unique_consecutive unravel_index",
        "metadata": "_sym_acos _sym_asin _sym_atan _sym_cos _sym_cosh _sym_log2 _sym_sin _sym_sinh _sym_sqrt _sym_tan _sym_tanh "
        "broadcast_shapes is_storage is_tensor sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum",
        "query": "_running_with_deploy are_deterministic_algorithms_enabled compiled_with_cxx11_abi get_default_device "
        "get_deterministic_debug_mode get_float32_matmul_precision is_deterministic_algorithms_warn_only_enabled "
        "is_warn_always_enabled",
        "effect": "_import_device_backends _load_global_deps _preload_cuda_deps _preload_cuda_lib _register_device_module _sync "
        "compile from_dlpack get_file_path get_rng_state initial_seed load manual_seed prepare_multiprocessing_environment save "
        "seed set_default_device set_default_dtype set_default_tensor_type set_deterministic_debug_mode set_float32_matmul_precision "
        "set_printoptions set_rng_state set_warn_always use_deterministic_algorithms",
    }
)
"""Python functions in `torch`; by default `python`."""

C_FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "query": "_accelerator_getAccelerator _are_functorch_transforms_active _autocast_supported_devices _can_use_cudnn_attention "
        "_can_use_flash_attention _can_use_mem_efficient_attention _check_sparse_tensor_invariants _cxx_flags "
        "_debug_only_are_vmap_fallback_warnings_enabled _get_accelerator _get_autograd_fallback_mode _get_backcompat_broadcast_warn "
        "_get_backcompat_keepdim_warn _get_blas_preferred_backend _get_cpu_allow_fp16_reduced_precision_reduction _get_cpu_capability "
        "_get_cublas_allow_bf16_reduced_precision_reduction _get_cublas_allow_fp16_accumulation "
        "_get_cublas_allow_fp16_reduced_precision_reduction _get_cublas_allow_tf32 _get_cudnn_allow_tf32 "
        "_get_cudnn_batch_norm_reserve_space_size _get_cudnn_benchmark _get_cudnn_depthwise_kernel _get_cudnn_deterministic "
        "_get_cudnn_enabled _get_cudnn_sdp_enabled _get_default_device _get_deterministic_algorithms "
        "_get_deterministic_algorithms_warn_only _get_deterministic_fill_uninitialized_memory _get_dtensor_allow_implicit_replication "
        "_get_fa3_sdp_enabled "
        "_get_flash_sdp_enabled _get_float32_matmul_precision _get_fp32_precision_getter _get_graph_executor_optimize "
        "_get_linalg_preferred_backend _get_math_sdp_allow_fp16_bf16_reduction _get_math_sdp_enabled _get_mem_efficient_sdp_enabled "
        "_get_miopen_immediate _get_mkldnn_deterministic _get_mkldnn_enabled _get_nnpack_enabled _get_onednn_allow_tf32 "
        "_get_overrideable_sdp_enabled _get_privateuse1_backend_name _get_qengine _get_rocm_fa_preferred_backend "
        "_get_sdp_priority_order _get_sm_carveout_experimental _get_torch_function_state _get_tracing_state _get_warnAlways "
        "_has_distributed _has_torch_function _has_torch_function_unary _has_torch_function_variadic _is_any_autocast_enabled "
        "_is_autocast_available _is_ck_sdpa_available _is_flash_attention_available _is_fwd_grad_enabled "
        "_is_grad_layout_enforcement_enabled _is_multithreading_enabled _is_torch_function_all_disabled _is_torch_function_enabled "
        "_is_torch_function_mode_enabled _is_tracing _is_view_replay_enabled _is_xnnpack_enabled _len_torch_dispatch_stack "
        "_len_torch_function_stack _log_api_usage_metadata _log_api_usage_once _mps_is_available _mps_is_in_bad_fork "
        "_mps_is_on_macos_or_newer _mtia_isBuilt _only_lift_cpu_tensors _supported_qengines get_autocast_cpu_dtype get_autocast_dtype "
        "get_autocast_gpu_dtype get_autocast_ipu_dtype get_autocast_xla_dtype get_default_dtype get_num_interop_threads "
        "get_num_threads is_anomaly_check_nan_enabled is_anomaly_enabled is_autocast_cache_enabled is_autocast_cpu_enabled "
        "is_autocast_enabled is_autocast_ipu_enabled is_autocast_xla_enabled is_grad_enabled is_inference_mode_enabled",
        "state": "_set_dtensor_allow_implicit_replication _set_fwd_grad_enabled _set_grad_enabled "
        "_set_math_sdp_allow_fp16_bf16_reduction _set_multithreading_enabled "
        "_set_sdp_priority_order _set_sdp_use_cudnn _set_sdp_use_flash _set_sdp_use_math _set_sdp_use_mem_efficient "
        "_set_sdp_use_overrideable _set_view_replay_enabled _vmapmode_decrement_nesting _vmapmode_increment_nesting "
        "autocast_decrement_nesting autocast_increment_nesting clear_autocast_cache set_autocast_cache_enabled "
        "set_autocast_cpu_dtype set_autocast_cpu_enabled set_autocast_dtype set_autocast_enabled set_autocast_gpu_dtype "
        "set_autocast_ipu_dtype set_autocast_ipu_enabled "
        "set_autocast_xla_dtype set_autocast_xla_enabled _enter_dual_level _exit_dual_level",
        "metadata": "_dispatch_isTensorSubclassLike _dispatch_keys _infer_size _is_alias_of _overlaps _select_batch_norm_backend "
        "_select_conv_backend _should_allow_numbers_as_tensors _group_tensors_by_device_and_dtype",
        "effect": "_increment_version _pop_torch_dispatch_stack _pop_torch_function_stack _push_on_torch_dispatch_stack "
        "_push_on_torch_function_stack _replace_ _set_conj _set_cublas_allow_tf32 _set_default_dtype _set_default_tensor_type "
        "_set_deterministic_algorithms _set_deterministic_fill_uninitialized_memory _set_float32_matmul_precision "
        "_set_fp32_precision_setter _set_neg _set_torch_function_state _set_tracing_state _set_warnAlways _storage_address _storage_id "
        "_swap_tensor_impl _to_dlpack fork init_num_threads set_anomaly_enabled set_flush_denormal set_num_interop_threads set_num_threads wait",
    }
)
"""Functions of `torch._C` itself; those not named are unknown."""

FUNCTORCH: Mapping[str, str] = MappingProxyType(
    {
        "state": "_func_decrement_nesting _func_increment_nesting _grad_decrement_nesting _grad_increment_nesting "
        "_jvp_decrement_nesting _jvp_increment_nesting _vmap_decrement_nesting _vmap_increment_nesting _set_vmap_fallback_enabled "
        "set_inplace_requires_grad_allowed set_single_level_autograd_function_allowed",
        "op": "_add_batch_dim _remove_batch_dim _unwrap_batched _unwrap_for_grad _wrap_for_grad",
        "query": "_is_vmap_fallback_enabled get_dynamic_layer_stack_depth get_inplace_requires_grad_allowed get_interpreter_stack "
        "get_single_level_autograd_function_allowed maybe_current_level peek_interpreter_stack current_level",
        "metadata": "is_batchedtensor is_dead_tensor_wrapper is_functionaltensor is_functorch_wrapped_tensor is_gradtrackingtensor "
        "is_legacy_batchedtensor maybe_get_bdim maybe_get_level",
    }
)
"""`torch._C._functorch`. The increments return the new level, a number, not None."""

AUTOGRAD: Mapping[str, str] = MappingProxyType(
    {
        "op": "_get_data_attr",
        "query": "_profiler_enabled _saved_tensors_hooks_get_disabled_error_message _saved_tensors_hooks_is_enabled kineto_available",
        "state": "_saved_tensors_hooks_disable _saved_tensors_hooks_enable",
        "effect": "_pop_saved_tensors_default_hooks _push_saved_tensors_default_hooks _unsafe_set_version_counter",
    }
)
"""`torch._C._autograd`."""

ELSEWHERE: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "fineline.torch_facts.distributed_tensors": {"state": "set_parallel_losses"},
        "torch._utils": {"op": "_flatten_dense_tensors _unflatten_dense_tensors", "query": "is_compiling"},
        "torch._functorch.eager_transforms": {"op": "_autograd_grad"},
        "torch._functorch.predispatch": {
            "op": "_add_batch_dim _remove_batch_dim _unwrap_for_grad _make_dual _unpack_dual",
            "state": "_vmap_increment_nesting _vmap_decrement_nesting _jvp_increment_nesting _jvp_decrement_nesting _enter_dual_level "
            "_exit_dual_level lazy_load_decompositions",
        },
        "torch.amp.autocast_mode": {"state": "_enter_autocast _exit_autocast", "query": "is_autocast_available"},
        "torch.autograd": {"effect": "backward grad"},
        "torch.autograd.grad_mode": {"state": "_enter_inference_mode _exit_inference_mode"},
        "torch.autograd.forward_ad": {"query": "_is_fwd_grad_enabled"},
        # Kernels read these flags when they run, and a compiled graph cannot change them in its middle.
        "torch.backends": {"effect": "set_flags"},
        "torch.backends.cpu": {"query": "get_cpu_capability"},
        "torch.backends.cuda": {
            "query": "SDPAParams can_use_cudnn_attention can_use_efficient_attention can_use_flash_attention is_built is_ck_sdpa_available "
            "is_flash_attention_available",
        },
        "torch.backends.cudnn": {"query": "is_acceptable is_available version", "effect": "set_flags"},
        "torch.backends.mkl": {"query": "is_available"},
        "torch.backends.mkldnn": {"query": "is_available", "effect": "set_flags"},
        "torch.backends.mps": {"query": "is_available is_built"},
        "torch.backends.openmp": {"query": "is_available"},
        "torch.compiler": {
            "query": "is_compiling is_dynamo_compiling is_exporting",
            "effect": "compile reset set_stance",
        },
        "torch.cpu": {"query": "current_device device_count is_available"},
        "torch.cuda": {
            "query": "_is_compiled current_device device_count get_device_capability get_device_name get_device_properties "
            "is_available is_bf16_supported is_current_stream_capturing is_initialized",
            "effect": "empty_cache manual_seed manual_seed_all set_device set_rng_state synchronize",
        },
        "torch.distributed": {"query": "get_rank get_world_size is_available is_initialized"},
        "torch.jit": {
            "query": "is_scripting is_tracing",
            "effect": "fork freeze load save script trace wait",
        },
        "torch.nested": {"op": "as_nested_tensor narrow nested_tensor"},
        # If is_compiling() is true, it passes tensors instead of numbers to an operator that refuses them (torch 2.13).
        "torch.optim.adamax": {"effect": "_multi_tensor_adamax"},
        "torch.overrides": {"metadata": "is_tensor_like"},
        "torch.random": {"effect": "get_rng_state initial_seed manual_seed seed set_rng_state"},
        "torch.sparse": {"op": "sum to_sparse_semi_structured"},
        "torch.utils": {"effect": "swap_tensors"},
        # They put hooks on the gradient node of one operator; a compiled graph does not have that node.
        "torch.utils.hooks:BackwardHook": {"effect": "setup_input_hook setup_output_hook"},
    }
)
"""Python functions of other modules, and of classes there; those not named are unknown, and the interpreter traces into them."""

METADATA_TYPES = "Size device dtype finfo iinfo layout memory_format qscheme"
"""Types in `torch` whose construction makes a constant."""

TENSOR_TYPES = (
    "Tensor BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor ShortTensor"
)
"""Types in `torch` whose construction is one node."""

OPERATORS: Mapping[str, str] = MappingProxyType(
    {
        "data": "_local_scalar_dense allclose equal is_nonzero item",
        "metadata": "can_cast dense_dim dim element_size is_coalesced is_complex is_contiguous is_floating_point is_inference is_neg "
        "is_conj is_pinned is_same_size is_set_to is_signed is_strides_like_format is_non_overlapping_and_dense layout device dtype "
        "numel promote_types q_per_channel_axis q_scale q_zero_point qscheme result_type size sparse_dim storage_offset stride "
        "sym_numel sym_size sym_storage_offset sym_stride sym_is_contiguous",
    }
)
"""Operators of `torch.ops` that return no tensor; the others of that kind are unknown."""

ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        "metadata": "_has_symbolic_sizes_strides device dtype is_cpu is_cuda is_ipu is_leaf is_maia is_meta is_mkldnn is_mps is_mtia "
        "is_nested is_quantized is_sparse is_sparse_csr is_vulkan is_xla is_xpu itemsize layout name nbytes ndim requires_grad shape "
        "volatile",
        "op": "H T data imag mH mT real",
        "source": "__dict__ __weakref__ _backward_hooks _base _cdata _grad _grad_fn _has_grad_dtype_override _post_accumulate_grad_hooks "
        "_python_dispatch _version grad grad_dtype grad_fn output_nr retains_grad",
    }
)
"""Attributes of tensors, by class; `__cuda_array_interface__` is a Python property."""

_OF_FAKES = (
    "__annotations__ "  # from Python 3.14 on
    "_fake_device _find_common_device _item_memo _item_memo_epoch _item_memo_vc _mode_key _nested_int_memo _nested_int_memo_epoch _nested_int_memo_vc "
    "_nonzero_memo _nonzero_memo_epoch _nonzero_memo_vc _normalize_fake_device _unique_consecutive_memo _unique_consecutive_memo_epoch "
    "_unique_consecutive_memo_vc _unique_memo _unique_memo_epoch _unique_memo_vc constant dispatch_keys fake_device fake_mode from_tensor "
    "get_nested_int item_memo nested_int_memo nonzero_memo pytype real_tensor unique_consecutive_memo unique_memo"
)
OF_FAKES = frozenset(_OF_FAKES.split())
"""Attributes that fake tensors have, and the tensors that they stand for have not. A list, because a fake to ask takes two seconds of imports."""
