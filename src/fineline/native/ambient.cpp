// A cheap picture of the state that `facts.ambient_facts()` describes.
#include "ambient.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/tensor/python_tensor.h>

#include <atomic>
#include <vector>

// Declared here because the header that declares it needs a JSON library that PyTorch does not ship.
namespace at::functorch {
struct DynamicLayer;
TORCH_API const std::vector<DynamicLayer>& getDynamicLayerStack();
}  // namespace at::functorch

namespace fineline {

namespace {

std::atomic<uint64_t> process_rules{0};
thread_local uint64_t thread_rules = 0;

}  // namespace

void set_rules(uint64_t process, uint64_t thread) {
  process_rules.store(process, std::memory_order_relaxed);
  thread_rules = thread;
}

std::optional<AmbientPicture> picture_ambient() {
  using at::impl::PythonTorchFunctionTLS;
  if (PythonTorchFunctionTLS::stack_len() != 0 || c10::impl::TorchDispatchModeTLS::stack_len() != 0) return std::nullopt;
  if (!at::functorch::getDynamicLayerStack().empty()) return std::nullopt;

  at::Context& context = at::globalContext();
  const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  uint64_t bits = 0;
  for (bool bit : {
           autograd.get_grad_mode(), autograd.get_inference_mode(), autograd.get_fw_grad_mode(),
           autograd.get_multithreading_enabled(), autograd.get_view_replay_enabled(),
           at::autocast::is_autocast_enabled(at::kCPU), at::autocast::is_autocast_enabled(at::kCUDA), at::autocast::is_autocast_cache_enabled(), context.deterministicAlgorithms(),
           context.deterministicAlgorithmsWarnOnly(), context.deterministicFillUninitializedMemory(), context.userEnabledFlashSDP(),
           context.userEnabledMemEfficientSDP(), context.userEnabledMathSDP(), context.userEnabledCuDNNSDP(),
           context.userEnabledOverrideableSDP(), context.allowFP16BF16ReductionMathSDP(), context.userEnabledCuDNN(),
           context.userEnabledMkldnn(), !at::SavedTensorDefaultHooks::get_tls_state().stack.empty(),
           torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr})
    bits = bits << 1 | static_cast<uint64_t>(bit);
  for (at::SDPBackend backend : context.sDPPriorityOrder()) bits = bits << 4 | static_cast<uint64_t>(backend);

  auto pair = [](auto high, auto low) { return static_cast<uint64_t>(high) << 32 | static_cast<uint32_t>(low); };
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  c10::Device device = torch::tensors::get_default_device();
  auto precision = [&context](at::Float32Backend backend) { return context.float32Precision(backend, at::Float32Op::MATMUL); };
  return AmbientPicture{
      bits,
      pair(at::autocast::get_autocast_dtype(at::kCPU), at::autocast::get_autocast_dtype(at::kCUDA)),
      pair(c10::typeMetaToScalarType(c10::get_default_dtype()), PythonTorchFunctionTLS::get_disabled_state()),
      pair(device.type(), device.index()),
      static_cast<uint64_t>(at::get_num_threads()),
      pair(precision(at::Float32Backend::CUDA), precision(at::Float32Backend::MKLDNN)),
      keys.included_.raw_repr(),
      keys.excluded_.raw_repr(),
      process_rules.load(std::memory_order_relaxed),
      thread_rules,
  };
}

}  // namespace fineline
